package policy

// keydiff keeps the keys that differ most from the rest: score = -cos(k, anchor), the anchor being the mean of the
// normalised keys of the KV head (Park et al. 2025, arXiv 2504.15364). One pass for the anchor, one for the scores.
type keydiff struct {
	scored
	buf    []float32
	anchor []float64
}

func init() {
	register(Info{
		Name:    "keydiff",
		Summary: "keeps the tokens whose keys are least like the average key",
		Paper:   "KeyDiff: Key Similarity-Based KV Cache Eviction, arXiv 2504.15364",
		Phase:   PhasePrompt,
		Params:  budgetParams("50%"),
	}, func(a *args) Policy { return &keydiff{scored: scored{base: a.base(), budget: a.budget()}} })
}

func (p *keydiff) Needs() Needs { return Needs{Keys: true} }

func (p *keydiff) KeepPrompt(l *Layer, keep *Picks) { p.keepBest(p, l, keep) }

// Score is the negative cosine of each key with the anchor.
func (p *keydiff) Score(l *Layer, _ int, dst [][]float32) {
	for g, row := range dst {
		p.anchor = sized(p.anchor, l.KeyDim)
		clear(p.anchor)
		eachKey(l, g, &p.buf, func(i int, key []float32) {
			length := max(norm(key), 1e-12)
			row[i] = float32(length)
			for j, v := range key {
				p.anchor[j] += float64(v) / length
			}
		})
		var anchorNorm float64
		p.buf = sized(p.buf, l.KeyDim)
		for j, v := range p.anchor {
			p.buf[j] = float32(v / float64(len(row)))
		}
		anchorNorm = max(norm(p.buf[:l.KeyDim]), 1e-8)
		eachKey(l, g, &p.buf, func(i int, key []float32) {
			var dot float64
			for j, v := range key {
				dot += float64(v) * p.anchor[j]
			}
			row[i] = float32(-dot / float64(len(row)) / (max(float64(row[i]), 1e-8) * anchorNorm))
		})
	}
}
