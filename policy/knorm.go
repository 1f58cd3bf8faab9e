package policy

import (
	"math"

	"terrace/internal/kernels"
)

// knorm keeps the tokens whose keys have the smallest L2 norm: low-norm keys draw attention (Devoto et al. 2024,
// arXiv 2406.11430). literal=true drops low norms instead, as EvicPress's text has it (algorithms.md 4.7).
type knorm struct {
	scored
	sign float64
	buf  []float32
}

func init() {
	register(Info{
		Name:          "knorm",
		Ranked:        true,
		Summary:       "keeps the tokens with the smallest key norm",
		Paper:         "A Simple and Effective L2 Norm-Based Strategy for KV Cache Compression, arXiv 2406.11430",
		Phase:         PhasePrompt,
		MayDropNewest: true,
		Params:        append(budgetParams("50%"), Param{Name: "literal", Default: "false", Doc: "keep large norms instead, as one paper's text says"}),
	}, func(a *args) Policy {
		p := &knorm{scored: scored{base: a.base(), budget: a.budget()}, sign: -1}
		if a.bool("literal") {
			p.sign = 1
		}
		return p
	})
}

func (p *knorm) Needs() Needs { return Needs{Keys: true} }

func (p *knorm) KeepPrompt(l *Layer, keep *Selection) { p.keepBest(p, l, keep) }

// Score is -‖k‖.
func (p *knorm) Score(l *Layer, _ int, dst [][]float32) {
	for g, row := range dst {
		eachKey(l, g, &p.buf, func(i int, key []float32) { row[i] = float32(p.sign * norm(key)) })
	}
}

// loneScore implements loneScorer.
func (p *knorm) loneScore(l *Layer, kvHead, i int) float32 {
	p.buf = sized(p.buf, l.KeyDim)
	l.KV.Keys(kvHead, i, i+1, p.buf)
	return float32(p.sign * norm(p.buf))
}

// norm is the L2 norm of a vector.
func norm(x []float32) float64 { return math.Sqrt(float64(kernels.Dot(x, x))) }
