package policy

import "terrace/internal/kernels"

// observedAttention keeps the tokens with the largest average attention weight over the whole prompt: H2O's column sums,
// divided by the number of queries that can see the column, averaged over the heads of a group (kvpress's reading of Zhang
// et al. 2023, arXiv 2306.14048).
type observedAttention struct{ scored }

func init() {
	register(Info{
		Name:          "observed_attention",
		Summary:       "keeps what got most attention over the whole prompt, per query that saw it",
		Paper:         "H2O: Heavy-Hitter Oracle, arXiv 2306.14048",
		Phase:         PhasePrompt,
		MayDropNewest: true,
		Params:        budgetParams("50%"),
	}, func(a *args) Policy { return &observedAttention{scored{base: a.base(), budget: a.budget()}} })
}

func (p *observedAttention) Needs() Needs { return Needs{PromptSums: AllRows} }

func (p *observedAttention) KeepPrompt(l *Layer, keep *Selection) { p.keepBest(p, l, keep) }

// Score is the column's sum over the number of queries that see it, mean over the group.
func (p *observedAttention) Score(l *Layer, _ int, dst [][]float32) {
	group := l.Group()
	for g, row := range dst {
		clear(row)
		for h := g * group; h < (g+1)*group; h++ {
			kernels.Add(row, l.ColumnSums[h][:len(row)])
		}
		for i, pos := range l.Pos[g] {
			seen := l.N - int(pos)
			if l.Window > 0 {
				seen = min(seen, l.Window)
			}
			row[i] /= float32(seen * group)
		}
	}
}
