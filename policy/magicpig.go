package policy

import (
	"math"
	"slices"

	"terrace/internal/kernels"
)

// magicPIG samples tokens by hashes and weighs them by how likely they were to be drawn (Chen et al. 2024, arXiv 2410.16179; algorithms.md
// 5.14). The first n_sink tokens, the prompt's newest `recent` and all generated ones are read. The others lie in L tables by the signs of K
// random projections of their key less the mean μ of such keys; a query head draws the tokens that have its query's hash in two tables or
// more, which happens with
//
//	w = 1 − (1 − p^K)^L − L·p^K·(1 − p^K)^(L−1),  p = 1 − arccos(cos(q, k − μ))/π
//
// and its attention is
//
//	(Σ_read e^z·v + Σ_drawn e^z/(w + 1e-4)·v) / (Σ_read e^z + Σ_drawn e^z/(w + 1e-4)),  z = scale·q·k
//
// The error: over random projections the denominator's mean is right but for the 1e-4, which leaves out tokens that hardly can be drawn,
// and its variance is about Σ e^2z·(1 − w)/w over the tokens that are hashed, what those with like hashes have in common aside.
//
// There is no budget: K (bits) and L (tables) decide how many are drawn. Layers in full_layers read everything. Beside the chains of a query's L hashes, 4
// bytes a token met, a step reads the keys and values of what any head of a group has drawn. Tables take 4·L bytes a token and KV head,
// more than the key itself. On tiers layers stream whole.
type magicPIG struct {
	base
	bits, tables  int
	sinks, window int
	full          []int
	seed          uint64
	token         float64 // share of [Layer].KVBytes that a KV head of a layer has

	heads []hashingHead
	value []float32
}

// hashingHead is one KV head's scratch: heads may be on different threads.
type hashingHead struct {
	found  []Collisions // [group]
	drawn  []int32      // by any head of the group, ascending
	raw    []float32    // [group][drawn] products
	scores []float32    // likewise: z − log(w + 1e-4), −∞ where the head has not drawn the token
}

// Collisions are the tokens that a query has drawn from a [SketchHashes].
type Collisions struct {
	Tokens []int32   // ascending
	Norms  []float32 // [tokens of the KV head] ‖key − mean‖; read only
	Mean   float32   // q·mean
}

func init() {
	register(Info{
		Name:    "magicpig",
		Summary: "draws tokens whose hashes collide with the query's, weighted by their chance",
		Paper:   "MagicPIG: LSH Sampling for Efficient LLM Generation, arXiv 2410.16179",
		Phase:   PhaseRead,
		Params: []Param{
			{Name: "bits", Aliases: []string{"K"}, Default: "10", Doc: "signs of a hash: fewer draw more tokens"},
			{Name: "tables", Aliases: []string{"L"}, Default: "150", Doc: "tables: more draw more tokens"},
			{Name: "n_sink", Aliases: []string{"sinks"}, Default: "4", Doc: "first tokens that are always read"},
			{Name: "recent", Aliases: []string{"window"}, Default: "64", Doc: "newest tokens of the prompt that are always read, as are those behind it"},
			{Name: "full_layers", Default: "0/16/32/48", Doc: "layers that read everything, of those there are"},
			{Name: "seed", Default: "0", Doc: "of the projections"},
		},
	}, func(a *args) Policy {
		return &magicPIG{base: a.base(), bits: a.int("bits", 1, 12), tables: a.int("tables", 2, 1024), sinks: a.int("n_sink", 0, maxTokens), window: a.int("recent", 0, maxTokens),
			full: a.ints("full_layers"), seed: uint64(a.int("seed", 0, maxTokens))}
	})
}

// Bind counts the layers and KV heads that share a token's bytes.
func (p *magicPIG) Bind(m Model) (err error) {
	if _, err = m.one(p.Name()); err == nil {
		p.token = tokenShare(m)
	}
	return err
}

// tokenShare is the share of [Model].KVBytes that a KV head of a layer has, where layers are of one width.
func tokenShare(m Model) float64 {
	n := 0
	for i := range m.Layers {
		if m.Acts(i) {
			n += m.Layers[i].KV.Heads
		}
	}
	return 1 / float64(max(n, 1))
}

func (p *magicPIG) Needs() Needs {
	return Needs{TokenGranularity: true, Estimates: true, Sketch: Sketch{Kind: SketchHashes, Bits: p.bits, Rank: p.bits * p.tables, Sinks: p.sinks, Recent: p.window, Listed: ListedExact}}
}

// Project draws the projections of a layer and KV head.
func (p *magicPIG) Project(l *Layer, kvHead int, dst []float32) {
	copy(dst, gaussian(len(dst), 1, p.seed^splitmix(uint64(l.Index)<<32|uint64(kvHead))))
}

// Most implements [Reader].
func (p *magicPIG) Most(l *Layer) (tokens, run int) {
	if from, to := p.sinks, l.Prompt-p.window; from < to && !slices.Contains(p.full, l.Index) {
		return l.N - (to - from), 1
	}
	return l.N, 1
}

// hashed are the indices of a KV head's tokens that are drawn or not, not read.
func (p *magicPIG) hashed(l *Layer, g int) (from, to int) {
	from, _ = slices.BinarySearch(l.Pos[g], int32(p.sinks))
	to, _ = slices.BinarySearch(l.Pos[g], int32(l.Prompt-p.window))
	return from, max(from, to)
}

// Select reads the steady tokens, and estimates what the others add.
func (p *magicPIG) Select(l *Layer, read *Selection) {
	read.Reset(l.KVHeads)
	read.All = slices.Contains(p.full, l.Index)
	for g := range l.KVHeads {
		if from, to := p.hashed(l, g); from == to || !l.Scores.Trained(g) {
			read.All = true
		}
	}
	if read.All {
		return
	}
	for len(p.heads) < l.KVHeads {
		p.heads = append(p.heads, hashingHead{})
	}
	l.each(l.KVHeads, func(_, g int) {
		from, to := p.hashed(l, g)
		read.Heads[g] = span(span(read.Heads[g], 0, from), to, l.Tokens(g))
		p.heads[g].draw(p, l, g, from, to)
	})
	for g := range l.KVHeads { // values are read by one thread
		p.estimate(l, g, read)
	}
}

// draw leaves a KV head's drawn tokens and their scores.
func (h *hashingHead) draw(p *magicPIG, l *Layer, g, from, to int) {
	group, queries, d := l.Group(), l.queries(g), l.KeyDim
	for len(h.found) < group {
		h.found = append(h.found, Collisions{})
	}
	h.found = h.found[:group]
	l.Scores.Colliding(g, queries, h.found)
	h.drawn = h.drawn[:0]
	for r := range h.found {
		c := &h.found[r]
		a, _ := slices.BinarySearch(c.Tokens, int32(from))
		b, _ := slices.BinarySearch(c.Tokens, int32(to))
		c.Tokens = c.Tokens[a:b]
		h.drawn = append(h.drawn, c.Tokens...)
	}
	slices.Sort(h.drawn)
	h.drawn = slices.Compact(h.drawn)
	n := len(h.drawn)
	h.raw, h.scores = sized(h.raw, group*n), sized(h.scores, group*n)
	l.Scores.Listed(g, h.drawn, queries, group, h.raw)
	for r := range h.found {
		c, size, next := &h.found[r], norm(queries[r*d:(r+1)*d]), 0
		for i, t := range h.drawn {
			h.scores[r*n+i] = -infinity
			if next == len(c.Tokens) || c.Tokens[next] != t {
				continue
			}
			next++
			x := h.raw[r*n+i]
			cosine := float64(x-c.Mean) / (size * float64(c.Norms[t]))
			h.scores[r*n+i] = l.scale()*x - float32(math.Log(p.likely(cosine)+1e-4))
		}
	}
}

// likely is how likely a token is drawn whose key has a cosine with the query.
func (p *magicPIG) likely(cosine float64) float64 {
	if cosine != cosine { // a key at the mean, or no query: any angle
		cosine = 0
	}
	one := math.Pow(1-math.Acos(max(-1, min(cosine, 1)))/math.Pi, float64(p.bits))
	n := float64(p.tables)
	return 1 - math.Pow(1-one, n) - n*one*math.Pow(1-one, n-1)
}

// estimate adds what a KV head's drawn tokens stand for, by query head.
func (p *magicPIG) estimate(l *Layer, g int, read *Selection) {
	h, group, dim, e := &p.heads[g], l.Group(), l.ValueDim, &read.Estimates
	n, from := len(h.drawn), len(e.Values)
	e.Values = append(e.Values, make([]float32, group*dim)...)
	read.Scanned += int64(p.token * float64(l.KVBytes) / float64(l.KeyDim+dim) * float64(n*dim)) // keys are counted where they are scored
	for r := range group {
		row := h.scores[r*n : (r+1)*n]
		if len(h.found[r].Tokens) == 0 {
			e.LogSum = append(e.LogSum, -infinity)
			continue
		}
		top, total := float64(slices.Max(row)), 0.0
		for i, s := range row {
			x := math.Exp(float64(s) - top)
			row[i] = float32(x)
			total += x
		}
		kernels.Scale(row, float32(1/total))
		e.LogSum = append(e.LogSum, float32(top+math.Log(total)))
	}
	p.value = sized(p.value, dim)
	for i, t := range h.drawn {
		l.KV.Values(g, int(t), int(t)+1, p.value)
		for r := range group {
			if len(h.found[r].Tokens) > 0 {
				kernels.Axpy(e.Values[from+r*dim:from+(r+1)*dim], h.scores[r*n+i], p.value)
			}
		}
	}
}
