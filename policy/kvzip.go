package policy

import "fmt"

// kvzip keeps the KV that the model needs to say its context again, whatever will be asked later (Kim et al. 2025,
// arXiv 2505.23416; kvpress's KVzipPress). After the prompt the engine reads the context a second time behind the whole
// cache, chunk by chunk, each after "Repeat the previous context exactly."; a token's score is the largest attention weight
// that it gets from the repetition of its own chunk, over rows and the heads of its group. The lowest scores go: of all
// layers and heads together (budgets=global), of a layer, or the same number of each head.
//
// kvzip_plus weighs each weight by what it brings: divided by the norm of the row's input to the projections, times the norm
// of the head's output projection of the value.
//
// The second pass costs 2 to 3 times the prompt; it is part of the time to the first token, and reported.
type kvzip struct {
	base
	ranked
	budget  Budget
	share   kvzipShare
	sinks   int
	chunk   int
	postfix int
	plus    bool

	layers []zipLayer
	cut    bool // the layers' picks are made
	pick   picker
}

// kvzipShare says what shares a budget.
type kvzipShare int

const (
	zipGlobal kvzipShare = iota
	zipLayerwise
	zipHeadwise
)

// zipLayer is a layer's scores, and then what stays of it.
type zipLayer struct {
	scores [][]float32 // [KVHeads][tokens], in cache order; nil = the layer was not seen
	keep   [][]int32
	ranks  [][]uint32 // of what stays, where ranks are noted
}

func init() {
	params := append(budgetParams("50%"),
		Param{Name: "budgets", Default: "global", Doc: "what shares the budget: global (all layers and heads), layer, or head (every KV head the same number)"},
		Param{Name: "layerwise", Default: "false", Doc: "true is budgets=layer"},
		Param{Name: "n_sink", Aliases: []string{"sinks"}, Default: "4", Doc: "first tokens that always stay"},
		Param{Name: "chunk_size", Default: "2048", Doc: "tokens of the context that are repeated at a time"},
		Param{Name: "postfix", Default: "8", Doc: "last tokens of a chunk that lead on to the next"})
	const paper = "KVzip: Query-Agnostic KV Cache Compression with Context Reconstruction, arXiv 2505.23416"
	register(Info{
		Name:          "kvzip",
		Ranked:        true,
		Summary:       "reads the prompt a second time, keeps what the model needs to repeat it",
		Paper:         paper,
		Phase:         PhasePrompt,
		MayDropNewest: true,
		Params:        append(params, Param{Name: "kvzip_plus_normalization", Aliases: []string{"plus"}, Default: "false", Doc: "weigh by the norms of rows and projected values, as kvzip_plus does"}),
	}, func(a *args) Policy { p := newKVzip(a); p.plus = a.bool("kvzip_plus_normalization"); return p })
	register(Info{
		Name:          "kvzip_plus",
		Ranked:        true,
		Summary:       "kvzip, with each weight times the size of what it brings to the output",
		Paper:         paper,
		Phase:         PhasePrompt,
		MayDropNewest: true,
		Params:        params,
	}, func(a *args) Policy { p := newKVzip(a); p.plus = true; return p })
}

func newKVzip(a *args) *kvzip {
	p := &kvzip{base: a.base(), budget: a.budget(), share: kvzipShare(a.choice("budgets", "global", "layer", "head")),
		sinks: a.int("n_sink", 0, maxTokens), chunk: a.int("chunk_size", 1, maxTokens), postfix: a.int("postfix", 0, maxTokens)}
	if a.bool("layerwise") {
		if a.has("budgets") && p.share != zipLayerwise {
			a.errs = append(a.errs, fmt.Errorf("policy: %s: layerwise=true and budgets=%s contradict each other: %w", a.info.Name, a.raw("budgets"), ErrParam))
		}
		p.share = zipLayerwise
	}
	return p
}

func (p *kvzip) Needs() Needs { return Needs{} }

// Repeats says how the context is read again.
func (p *kvzip) Repeats(n, kvBytes int) Repeats {
	return Repeats{ChunkTokens: p.chunk, Postfix: p.postfix, Sinks: p.sinks, Weighed: p.plus, None: p.budget.Tokens(n, kvBytes) >= n}
}

// BeginRepeats forgets what was seen of an earlier prompt.
func (p *kvzip) BeginRepeats() { p.layers, p.cut = p.layers[:0], false }

// ObserveRepeat takes the largest over the heads of each group.
func (p *kvzip) ObserveRepeat(l *Layer, r *Repeat) {
	for len(p.layers) <= l.Index {
		p.layers = append(p.layers, zipLayer{})
	}
	z := &p.layers[l.Index]
	if z.scores == nil {
		z.scores = make([][]float32, l.KVHeads)
	}
	group := l.Group()
	for g := range z.scores {
		row := append(z.scores[g], make([]float32, r.From[g]-len(z.scores[g]))...) // what stands before the context counts nothing
		at := len(row)
		row = append(row, make([]float32, r.To[g]-r.From[g])...)
		for h := g * group; h < (g+1)*group; h++ {
			for i, w := range r.Weights[h] {
				if r.Norms != nil {
					w *= r.Norms[h][i]
				}
				row[at+i] = max(row[at+i], w)
			}
		}
		z.scores[g] = row
	}
}

// Found are the scores of a layer [KVHeads][tokens], in cache order, once [Reconstructor].ObserveRepeat has shown them; nil where it has not,
// and of a keeper that is no kvzip. First tokens that always stay lose theirs when the first layer is cut.
func Found(keeper PromptKeeper, layer int) [][]float32 {
	p, ok := keeper.(*kvzip)
	if !ok || layer >= len(p.layers) {
		return nil
	}
	return p.layers[layer].scores
}

// KeepPrompt keeps what the scores of all layers together say.
func (p *kvzip) KeepPrompt(l *Layer, keep *Selection) {
	keep.Reset(l.KVHeads)
	p.forget(l.Index)
	if l.Index >= len(p.layers) || p.layers[l.Index].scores == nil || p.budget.Of(l, l.N) >= l.N {
		keep.All = true
		return
	}
	if !p.cut {
		p.choose(l)
		p.cut = true
	}
	for g, idx := range p.layers[l.Index].keep {
		keep.Heads[g] = append(keep.Heads[g], idx...)
	}
	if p.noting {
		p.note(l.Index, p.layers[l.Index].ranks)
	}
}

// choose makes the picks of all layers.
func (p *kvzip) choose(l *Layer) {
	var seen []*zipLayer
	top := float32(0)
	for i := range p.layers {
		if z := &p.layers[i]; z.scores != nil {
			seen = append(seen, z)
			for _, row := range z.scores {
				for _, s := range row {
					top = max(top, s)
				}
			}
		}
	}
	for _, z := range seen {
		z.keep, z.ranks = make([][]int32, len(z.scores)), make([][]uint32, len(z.scores))
		for g, row := range z.scores { // sinks are positions, and those that are cached stand first, in layers of any number of heads
			pos := l.Pos[min(g, len(l.Pos)-1)]
			for i := range row {
				if int(pos[i]) >= p.sinks {
					break
				}
				row[i] = top + 1
			}
		}
	}
	switch p.share {
	case zipGlobal:
		p.together(seen, l)
	case zipLayerwise:
		for i := range seen {
			p.together(seen[i:i+1], l)
		}
	default:
		for _, z := range seen {
			for g, row := range z.scores {
				z.keep[g] = p.pick.best(nil, row, p.stay(1, l.N, l.KVBytes), 0)
				z.ranks[g] = p.rankPicks(z.keep[g], row)
			}
		}
	}
}

// together cuts some layers to their budget, whichever head a token belongs to.
func (p *kvzip) together(layers []*zipLayer, l *Layer) {
	var flat []float32
	heads := 0
	for _, z := range layers {
		heads += len(z.scores)
		for _, row := range z.scores {
			flat = append(flat, row...)
		}
	}
	picks, from := p.pick.best(nil, flat, p.stay(heads, l.N, l.KVBytes), 0), int32(0)
	ranks := p.rankPicks(picks, flat)
	for _, z := range layers {
		for g, row := range z.scores {
			to, n := from+int32(len(row)), 0
			for n < len(picks) && picks[n] < to {
				z.keep[g] = append(z.keep[g], picks[n]-from)
				n++
			}
			if picks = picks[n:]; ranks != nil {
				z.ranks[g], ranks = ranks[:n:n], ranks[n:]
			}
			from = to
		}
	}
}

// rankPicks gives picks of scores their places, where ranks are noted.
func (p *kvzip) rankPicks(picks []int32, scores []float32) []uint32 {
	if !p.noting {
		return nil
	}
	return p.rank(picks, func(i int32) uint64 { return scoreKey(scores[i], i) })
}

func (p *kvzip) shared() rankScope { return [...]rankScope{rankAll, rankLayer, rankHead}[p.share] }

// stay is the budget of some heads of all layers together; of a head alone where each has its own.
func (p *kvzip) stay(heads, n, kvBytes int) int {
	all := heads * n
	if p.share != zipHeadwise && p.budget.Removes() {
		return all - int(float64(all)*p.budget.ratio)
	}
	return heads * p.budget.Tokens(n, kvBytes)
}

// Repeats says how a [Reconstructor] wants the context to be read a second time.
type Repeats struct {
	ChunkTokens int  // of the context, repeated at a time
	Postfix     int  // last tokens of a chunk that lead on to the next
	Sinks       int  // first positions that take part in every softmax
	Weighed     bool // weights are divided by the norms of rows, and Repeat.Norms is filled
	Plain       bool // the context alone is repeated: no words ask for it, a chat template's beginning is a part of it
	Summed      bool // Repeat.Weights are sums over rows
	ValueNorms  bool // Repeat.Norms are those of the values themselves; not with Weighed
	None        bool // nothing would be dropped: no second pass
}

// Repeat is what the repetition of one chunk attended to in one layer.
type Repeat struct {
	From, To []int       // [KVHeads] the chunk's tokens, by index in the cache
	Weights  [][]float32 // [Heads][To-From] largest softmax weight over the rows of the repetition, or their sum
	Norms    [][]float32 // [Heads][To-From] ‖W_O·v‖ of the head's part of the output projection, or ‖v‖; nil unless asked for
}

// Reconstructor is a PromptKeeper that scores the prompt by a second pass over it.
type Reconstructor interface {
	PromptKeeper
	// Repeats is asked once the prompt of n tokens is read; kvBytes is [Layer].KVBytes.
	Repeats(n, kvBytes int) Repeats
	// BeginRepeats comes before the second pass, ObserveRepeat for each chunk in order and in it each global layer, KeepPrompt
	// after it.
	BeginRepeats()
	ObserveRepeat(l *Layer, r *Repeat)
}
