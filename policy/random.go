package policy

// random keeps random tokens: the floor that every score has to beat. The choice depends on the seed, the layer, the KV
// head and the token's position only, so that it is the same in every run and for every cache layout.
type random struct {
	scored
	seed uint64
}

func init() {
	register(Info{
		Name:    "random",
		Summary: "keeps random tokens of the prompt, the newest among them: the floor for every score",
		Phase:   PhaseControl,
		Params:  append(budgetParams("50%"), Param{Name: "seed", Default: "0", Doc: "of the choice"}),
	}, func(a *args) Policy {
		return &random{scored{base: a.base(), budget: a.budget()}, uint64(a.int("seed", 0, 1<<62))}
	})
}

func (p *random) Needs() Needs { return Needs{} }

func (p *random) KeepPrompt(l *Layer, keep *Selection) { p.keepBest(p, l, keep) }

// Score draws a number in [0, 1) for each token.
func (p *random) Score(l *Layer, _ int, dst [][]float32) {
	for g, row := range dst {
		for i := range row {
			row[i] = p.loneScore(l, g, i)
		}
		row[len(row)-1] = 1
	}
}

// loneScore implements loneScorer.
func (p *random) loneScore(l *Layer, kvHead, i int) float32 {
	x := splitmix(p.seed ^ splitmix(uint64(l.Index)<<40|uint64(kvHead)<<32|uint64(l.Pos[kvHead][i])))
	return float32(x>>40) / (1 << 24)
}

// splitmix is the finalizer of SplitMix64.
func splitmix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
