package policy

import (
	"cmp"
	"slices"
)

// kvCompose keeps the same number of tokens in every KV head of a layer, each head its own, so that the j-th best of all heads make one
// composite token (Akulov et al. 2025, arXiv 2509.05165; kvpress's KVComposePress). After the prompt the engine reads the context a second
// time behind the whole cache, and with the largest (agg_task) softmax weight a_h,i that row gives token i under head h:
//
//	s_g,i = mean over the group (agg_group) of a_h,i; times ‖v_g,i‖ with add_v_norm; plus the mean of s over the layer's KV heads
//	c_j   = mean over the KV heads (agg_head) of the j-th largest s_g
//
// The composite tokens of all layers share one budget, the largest c stay; c of the first layer is the largest of all layers' at each j, so
// that it keeps no less than another. structured=false lets all heads of all layers share the budget, token by token.
//
// The second pass is as long as the prompt and reads it twice over: three times the prompt's attention, and room for the context twice.
type kvCompose struct {
	base
	budget               Budget
	structured           bool
	task, group, head    aggregate
	valueNorm, meanHeads bool
	least                int

	layers []composedLayer
	cut    bool // the layers' picks are made
	pick   picker
}

// aggregate is how numbers become one.
type aggregate int

const (
	aggMean aggregate = iota
	aggMax
)

// composedLayer is a layer's scores, and then what stays of it.
type composedLayer struct {
	scores [][]float32 // [KVHeads][tokens], in cache order; nil = the layer was not seen
	keep   [][]int32
}

func init() {
	register(Info{
		Name:          "kvcompose",
		Summary:       "reads the prompt a second time; a layer's heads keep equally many tokens, each its own",
		Paper:         "KVCompose: Efficient Structured KV Cache Compression with Composite Tokens, arXiv 2509.05165",
		Phase:         PhasePrompt,
		MayDropNewest: true,
		Params: append(budgetParams("50%"),
			Param{Name: "structured", Default: "true", Doc: "false: all KV heads of all layers share the budget, token by token"},
			Param{Name: "agg_task", Default: "max", Doc: "over the rows of the second pass: max or mean"},
			Param{Name: "agg_group", Default: "mean", Doc: "over the heads of a group: mean or max"},
			Param{Name: "agg_head", Default: "mean", Doc: "over the KV heads of a composite token: mean or max"},
			Param{Name: "add_v_norm", Default: "false", Doc: "times the norm of the token's value"},
			Param{Name: "add_mean_across_heads", Default: "true", Doc: "plus the mean over the layer's KV heads"},
			Param{Name: "keep_token_lower_bound", Default: "0", Doc: "composite tokens that every layer keeps, as far as the budget goes"}),
	}, func(a *args) Policy {
		return &kvCompose{base: a.base(), budget: a.budget(), structured: a.bool("structured"), task: a.aggregate("agg_task"), group: a.aggregate("agg_group"),
			head: a.aggregate("agg_head"), valueNorm: a.bool("add_v_norm"), meanHeads: a.bool("add_mean_across_heads"), least: a.int("keep_token_lower_bound", 0, maxTokens)}
	})
}

func (a *args) aggregate(name string) aggregate { return aggregate(a.choice(name, "mean", "max")) }

func (p *kvCompose) Needs() Needs { return Needs{} }

// Bind refuses layers of different widths: composite tokens of one budget would differ in size.
func (p *kvCompose) Bind(m Model) error {
	_, err := m.one(p.Name())
	return err
}

// Repeats asks for the context alone, at once.
func (p *kvCompose) Repeats(n, kvBytes int) Repeats {
	return Repeats{Plain: true, ChunkTokens: n, Summed: p.task == aggMean, ValueNorms: p.valueNorm, None: p.budget.Tokens(n, kvBytes) >= n}
}

// BeginRepeats forgets what was seen of an earlier prompt.
func (p *kvCompose) BeginRepeats() { p.layers, p.cut = p.layers[:0], false }

// ObserveRepeat makes the scores of a layer's tokens. A sum over rows stands for their mean: all layers have as many.
func (p *kvCompose) ObserveRepeat(l *Layer, r *Repeat) {
	for len(p.layers) <= l.Index {
		p.layers = append(p.layers, composedLayer{})
	}
	c, group := &p.layers[l.Index], l.Group()
	if c.scores == nil {
		c.scores = make([][]float32, l.KVHeads)
	}
	for g := range c.scores {
		row := append(c.scores[g], make([]float32, r.From[g]-len(c.scores[g]))...)
		for i := range r.To[g] - r.From[g] {
			s := p.group.of(group, func(h int) float32 { return r.Weights[g*group+h][i] })
			if p.valueNorm {
				s *= r.Norms[g*group][i]
			}
			row = append(row, s)
		}
		c.scores[g] = row
	}
	if p.meanHeads {
		c.addMean(l, r)
	}
}

// of makes one number of n.
func (a aggregate) of(n int, number func(i int) float32) float32 {
	out := number(0)
	for i := 1; i < n; i++ {
		if a == aggMax {
			out = max(out, number(i))
		} else {
			out += number(i)
		}
	}
	if a == aggMean {
		out /= float32(n)
	}
	return out
}

// addMean adds to each token's score the mean over the layer's heads at its position; a head that has dropped it counts 0.
func (c *composedLayer) addMean(l *Layer, r *Repeat) {
	sums := make([]float32, l.N)
	for g, row := range c.scores {
		for i := r.From[g]; i < r.To[g]; i++ {
			sums[l.Pos[g][i]] += row[i]
		}
	}
	for g, row := range c.scores {
		for i := r.From[g]; i < r.To[g]; i++ {
			row[i] += sums[l.Pos[g][i]] / float32(l.KVHeads)
		}
	}
}

// KeepPrompt keeps what the scores of all layers together say.
func (p *kvCompose) KeepPrompt(l *Layer, keep *Selection) {
	keep.Reset(l.KVHeads)
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
}

// choose makes the picks of all layers.
func (p *kvCompose) choose(l *Layer) {
	var rows [][]float32 // of composite tokens a layer, or of the scores of a head
	var seen []*composedLayer
	for i := range p.layers {
		c := &p.layers[i]
		if c.scores == nil {
			continue
		}
		seen = append(seen, c)
		if p.structured {
			rows = append(rows, p.composites(c.scores))
			continue
		}
		for _, scores := range c.scores {
			rows = append(rows, descending(scores))
		}
	}
	if p.structured {
		for _, row := range rows[1:] {
			for j := range min(len(row), len(rows[0])) {
				rows[0][j] = max(rows[0][j], row[j])
			}
		}
	}
	counts := p.share(rows, p.stay(len(rows), l.N, l.KVBytes))
	for i, c := range seen {
		c.keep = make([][]int32, len(c.scores))
		for g, scores := range c.scores {
			at := i
			if !p.structured {
				at = i*len(c.scores) + g
			}
			c.keep[g] = p.pick.best(nil, scores, counts[at], 0)
		}
	}
}

// composites are the scores of a layer's composite tokens, the largest first; a head that has fewer tokens is left out of the last.
func (p *kvCompose) composites(scores [][]float32) []float32 {
	heads, n := make([][]float32, len(scores)), 0
	for g, row := range scores {
		heads[g] = descending(row)
		n = max(n, len(row))
	}
	out := make([]float32, n)
	for j := range out {
		with := slices.DeleteFunc(slices.Clone(heads), func(row []float32) bool { return j >= len(row) })
		out[j] = p.head.of(len(with), func(g int) float32 { return with[g][j] })
	}
	return out
}

// share is how many numbers of each row are among the k largest of all; the first of each row come before all others.
func (p *kvCompose) share(rows [][]float32, k int) []int {
	var flat []float32
	for _, row := range rows {
		for j := range min(p.least, len(row)) {
			row[j] = infinity
		}
		flat = append(flat, row...)
	}
	picks, counts, to := p.pick.best(nil, flat, k, 0), make([]int, len(rows)), 0
	for i, row := range rows {
		to += len(row)
		for len(picks) > 0 && int(picks[0]) < to {
			counts[i]++
			picks = picks[1:]
		}
	}
	return counts
}

// stay is the budget of some rows of n numbers together.
func (p *kvCompose) stay(rows, n, kvBytes int) int {
	if p.budget.Removes() {
		return int(float64(rows*n) * (1 - p.budget.ratio))
	}
	return rows * p.budget.Tokens(n, kvBytes)
}

// descending is a sorted copy, the largest first.
func descending(x []float32) []float32 {
	out := slices.Clone(x)
	slices.SortFunc(out, func(a, b float32) int { return cmp.Compare(order(b), order(a)) })
	return out
}
