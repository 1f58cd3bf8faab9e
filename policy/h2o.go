package policy

import "terrace/internal/kernels"

// h2o keeps heavy hitters, the tokens with the largest attention summed over every query so far, and the most recent ones
// (Zhang et al. 2023, arXiv 2306.14048; algorithms.md 5.2). The cache is cut once after the prompt, by the column sums of
// its attention, and then at each step by the running sums: of the tokens that aren't recent the one with the smallest sum
// goes, and never returns. Sums and choice are per KV head (summed over the heads of its group).
//
// A budget that is a fraction grows with the text, as all fractions here do; the public port takes it of the prompt.
// Cost a step: one pass over the cached tokens of each head; memory: 8 bytes a cached token, layer and KV head.
type h2o struct{ heavy }

// heavy is embedded by policies that rank tokens by the attention they got so far.
type heavy struct {
	base
	budget Budget
	recent Budget // of the budget, or tokens
	layers []layerSums
	pick   picker
}

// heavyParams are the parameters of [heavy].
func heavyParams(recent string) []Param {
	return append(budgetParams("20%"), Param{Name: "recent", Default: "50%", Doc: recent})
}

func newHeavy(a *args) heavy {
	return heavy{base: a.base(), budget: a.budget(), recent: a.share("recent")}
}

// layerSums are the running sums of one layer, aligned with its cache.
type layerSums struct {
	pos [][]int32
	sum [][]float32
}

func init() {
	register(Info{
		Name:    "h2o",
		Summary: "keeps the tokens with the most attention so far (heavy hitters) and the newest, at every step",
		Paper:   "H2O: Heavy-Hitter Oracle for Efficient Generative Inference, arXiv 2306.14048",
		Phase:   PhaseDecode,
		Params:  heavyParams("newest tokens that always stay: a share of the budget, or tokens"),
	}, func(a *args) Policy { return &h2o{newHeavy(a)} })
}

func (p *h2o) Needs() Needs { return Needs{PromptSums: AllRows, StepSums: 1} }

// sizes are the budget of a layer and the part of it that is for recent tokens, at least 1.
func (p *heavy) sizes(l *Layer) (target, recent int) {
	target = p.budget.Of(l, l.N)
	return target, p.recent.Tokens(target, l.KVBytes)
}

// KeepPrompt starts the sums and keeps the heaviest and the newest.
func (p *h2o) KeepPrompt(l *Layer, keep *Selection) {
	keep.Reset(l.KVHeads)
	target, recent := p.sizes(l)
	s := p.observe(l)
	if fits(l, target) {
		keep.All = true
		return
	}
	for g := range keep.Heads {
		keep.Heads[g] = p.pick.heaviest(keep.Heads[g], s.sum[g], target, recent)
		s.compact(g, keep.Heads[g])
	}
}

// DropStep adds the step's weights and drops the lightest tokens that aren't recent.
func (p *h2o) DropStep(l *Layer, drop *Selection) {
	drop.Reset(l.KVHeads)
	target, recent := p.sizes(l)
	s := p.observe(l)
	for g := range drop.Heads {
		n := len(s.sum[g])
		switch {
		case n <= target:
			continue
		case n == target+1:
			drop.Heads[g] = append(drop.Heads[g], int32(worst(s.sum[g], 0, n-recent)))
			s.remove(g, int(drop.Heads[g][0]))
		default:
			keep := p.pick.heaviest(nil, s.sum[g], target, recent)
			drop.Heads[g] = rest(drop.Heads[g], keep, n)
			s.compact(g, keep)
		}
	}
}

// heaviest appends the best target-recent of the older tokens and the recent ones.
func (p *picker) heaviest(dst []int32, sum []float32, target, recent int) []int32 {
	old := len(sum) - recent
	return span(p.best(dst, sum[:old], target-recent, 0), old, len(sum))
}

// sums are a layer's, in line with its cache.
func (p *heavy) sums(l *Layer) *layerSums {
	for len(p.layers) <= l.Index {
		p.layers = append(p.layers, layerSums{})
	}
	s := &p.layers[l.Index]
	if s.pos == nil {
		s.pos, s.sum = make([][]int32, l.KVHeads), make([][]float32, l.KVHeads)
	}
	for g := range s.sum {
		s.align(g, l.Pos[g])
	}
	return s
}

// observe adds the weights in l.ColumnSums to a layer's sums.
func (p *heavy) observe(l *Layer) *layerSums {
	s, group := p.sums(l), l.Group()
	for g := range s.sum {
		for _, mass := range l.ColumnSums[g*group : (g+1)*group] {
			s.add(g, mass)
		}
	}
	return s
}

// add adds a query head's weights.
func (s *layerSums) add(g int, mass []float32) { kernels.Add(s.sum[g], mass[:len(s.sum[g])]) }

// align keeps the sums of tokens that are still cached and starts new ones at 0.
func (s *layerSums) align(g int, pos []int32) {
	old, at := s.pos[g], 0
	if len(pos) >= len(old) && samePositions(old, pos) {
		for i := len(old); i < len(pos); i++ {
			s.pos[g], s.sum[g] = append(s.pos[g], pos[i]), append(s.sum[g], 0)
		}
		return
	}
	sum := make([]float32, len(pos))
	for i, x := range pos {
		for at < len(old) && old[at] < x {
			at++
		}
		if at < len(old) && old[at] == x {
			sum[i] = s.sum[g][at]
		}
	}
	s.pos[g], s.sum[g] = append(old[:0], pos...), sum
}

// compact leaves only the kept indices.
func (s *layerSums) compact(g int, keep []int32) {
	for to, from := range keep {
		s.pos[g][to], s.sum[g][to] = s.pos[g][from], s.sum[g][from]
	}
	s.pos[g], s.sum[g] = s.pos[g][:len(keep)], s.sum[g][:len(keep)]
}

// remove closes the gap of one index.
func (s *layerSums) remove(g, at int) {
	s.pos[g] = append(s.pos[g][:at], s.pos[g][at+1:]...)
	s.sum[g] = append(s.sum[g][:at], s.sum[g][at+1:]...)
}
