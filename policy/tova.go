package policy

import "terrace/internal/kernels"

// tova keeps the tokens that the newest query attends to, by the mean weight over all heads of the layer, so that every KV
// head keeps the same tokens; the newest token always stays (Oren et al. 2024, arXiv 2401.06104).
type tova struct{ scored }

// tovaDecoder repeats the choice after every decode step.
type tovaDecoder struct{ tova }

func init() {
	register(Info{
		Name:    "tova",
		Summary: "keeps what the newest query attends to, one choice for all heads of a layer",
		Paper:   "Transformers are Multi-State RNNs, arXiv 2401.06104",
		Phase:   PhasePrompt,
		Params:  append(budgetParams("50%"), decodeParam),
	}, func(a *args) Policy {
		p := tova{scored{base: a.base(), budget: a.budget()}}
		if a.decodes(p.budget) {
			return &tovaDecoder{p}
		}
		return &p
	})
}

func (p *tova) Needs() Needs { return Needs{PromptSums: 1} }

func (p *tovaDecoder) Needs() Needs { return Needs{PromptSums: 1, StepSums: 1} }

func (p *tova) KeepPrompt(l *Layer, keep *Selection) { p.keepBest(p, l, keep) }

// Score is the mean weight over the heads of the layer; where KV heads hold different tokens (after another method's
// eviction), the mean over the heads of each group.
func (p *tova) Score(l *Layer, _ int, dst [][]float32) {
	shared := true
	for g := range dst {
		shared = shared && len(dst[g]) == len(dst[0]) && samePositions(l.Pos[g], l.Pos[0])
	}
	group := l.Group()
	for g, row := range dst {
		from, to := g*group, (g+1)*group
		if shared {
			from, to = 0, l.Heads
		}
		clear(row)
		for _, mass := range l.ColumnSums[from:to] {
			kernels.Add(row, mass[:len(row)])
		}
		kernels.Scale(row, 1/float32((to-from)*l.SumRows))
	}
	var top float32
	for _, row := range dst {
		for _, s := range row[:len(row)-1] {
			top = max(top, s)
		}
	}
	for _, row := range dst {
		row[len(row)-1] = top + 1
	}
}

// DropStep drops what is not among the best of the budget.
func (p *tovaDecoder) DropStep(l *Layer, drop *Selection) { p.dropWorst(p, l, p.Target(l), drop) }

// dropWorst is DropStep of a scored policy that scores every step again.
func (s *scored) dropWorst(p Scored, l *Layer, target int, drop *Selection) {
	drop.Reset(l.KVHeads)
	if fits(l, target) {
		return
	}
	s.scores = heads(s.scores, l)
	p.Score(l, target, s.scores)
	s.kept.Reset(l.KVHeads)
	p.Cut(l, s.scores, target, &s.kept)
	for g := range drop.Heads {
		drop.Heads[g] = rest(drop.Heads[g], s.kept.Heads[g], l.Tokens(g))
	}
}

func samePositions(a, b []int32) bool {
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}
