package policy

// adaKV shares a layer's budget among its KV heads: the best (head, token) pairs of the layer stay, whatever head they
// belong to, after each head has been given its best alpha_safeguard share of an even budget (Feng et al. 2024, arXiv
// 2407.11550). Scores are those of the policy it wraps.
type adaKV struct {
	scored
	inner Scored
	safe  float64
	flat  []float32
	picks []int32
}

func init() {
	register(Info{
		Name:          "adakv",
		Summary:       "shares the budget of a layer among its heads by score; wraps a scorer",
		Paper:         "Ada-KV: Optimizing KV Cache Eviction by Adaptive Budget Allocation, arXiv 2407.11550",
		Phase:         PhaseWrapper,
		MayDropNewest: true,
		Wraps:         "snapkv",
		Params:        []Param{{Name: "alpha_safeguard", Default: "0.2", Doc: "share of an even budget that each head keeps in any case"}},
	}, func(a *args) Policy {
		return &adaKV{scored: scored{base: a.base()}, inner: a.wrapped(), safe: a.float("alpha_safeguard", 0, 1)}
	})
}

func (p *adaKV) Bind(m Model) error { return bind(p.inner, m) }

func (p *adaKV) Needs() Needs { return p.inner.Needs() }

func (p *adaKV) KeepPrompt(l *Layer, keep *Selection) { p.keepBest(p, l, keep) }

// Target is the wrapped policy's, as the mean over the heads.
func (p *adaKV) Target(l *Layer) int { return p.inner.Target(l) }

// Score is the wrapped policy's.
func (p *adaKV) Score(l *Layer, target int, dst [][]float32) { p.inner.Score(l, target, dst) }

// Cut keeps the best KVHeads·target pairs of the layer, each head's best safe ones first.
func (p *adaKV) Cut(l *Layer, scores [][]float32, target int, keep *Selection) {
	safe := int(float64(target) * p.safe)
	if p.safe > 0 {
		safe = max(safe, 1)
	}
	p.flat = p.flat[:0]
	for _, row := range scores {
		at := len(p.flat)
		p.flat = append(p.flat, row...)
		p.picks = p.pick.best(p.picks[:0], row, safe, int32(at))
		for _, i := range p.picks {
			p.flat[i] = infinity
		}
	}
	p.picks = p.pick.best(p.picks[:0], p.flat, l.KVHeads*target, 0)
	g, start := 0, int32(0)
	for _, i := range p.picks {
		for i >= start+int32(len(scores[g])) {
			start += int32(len(scores[g]))
			g++
		}
		keep.Heads[g] = append(keep.Heads[g], i-start)
	}
}
