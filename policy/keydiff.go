package policy

import "terrace/internal/kernels"

// keydiff keeps the keys that differ most from the rest: score = -cos(k, anchor), the anchor being the mean of the
// normalised keys of the KV head (Park et al. 2025, arXiv 2504.15364). One pass for the anchor, one for the scores.
type keydiff struct {
	scored
	buf    []float32
	anchor []float32
}

func init() {
	register(Info{
		Name:          "keydiff",
		Ranked:        true,
		Summary:       "keeps the tokens whose keys are least like the average key",
		Paper:         "KeyDiff: Key Similarity-Based KV Cache Eviction, arXiv 2504.15364",
		Phase:         PhasePrompt,
		MayDropNewest: true,
		Params:        budgetParams("50%"),
	}, func(a *args) Policy { return &keydiff{scored: scored{base: a.base(), budget: a.budget()}} })
}

func (p *keydiff) Needs() Needs { return Needs{Keys: true} }

func (p *keydiff) KeepPrompt(l *Layer, keep *Selection) { p.keepBest(p, l, keep) }

// Score is the negative cosine of each key with the anchor.
func (p *keydiff) Score(l *Layer, _ int, dst [][]float32) {
	p.anchor = sized(p.anchor, l.KeyDim)
	for g, row := range dst {
		clear(p.anchor)
		eachKey(l, g, &p.buf, func(i int, key []float32) {
			length := float32(max(norm(key), 1e-12))
			row[i] = length
			kernels.Axpy(p.anchor, 1/length, key)
		})
		kernels.Scale(p.anchor, 1/float32(len(row)))
		anchorNorm := float32(max(norm(p.anchor), 1e-8))
		eachKey(l, g, &p.buf, func(i int, key []float32) {
			row[i] = -kernels.Dot(key, p.anchor) / (max(row[i], 1e-8) * anchorNorm)
		})
	}
}
