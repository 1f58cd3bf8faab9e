package policy

// h2oOffload is H2O with offload instead of drop, as HillInfer compares itself with (algorithms.md 5.2): nothing is lost, each
// step weighs all tokens by their softmax attention from the exact keys and adds that to their sums, and the tokens with
// the largest sums and the newest are read. Sums and choice are per KV head (summed over the heads of its group).
//
// Where KV lies on a tier the keys lie there a second time, alone and one layer after another, and are read whole at every
// step: half of the KV bytes.
type h2oOffload struct {
	heavy
	heads []weighing // [KVHeads]: they may be on different threads
}

// weighing is one KV head's scratch.
type weighing struct {
	scores []float32 // [group][tokens]
	pick   picker
}

func init() {
	register(Info{
		Name:    "h2o_offload",
		Summary: "h2o that drops nothing: weighs all tokens at every step, reads the heaviest and the newest",
		Paper:   "H2O, arXiv 2306.14048, with offload as HillInfer describes it",
		Phase:   PhaseRead,
		Params:  heavyParams("newest tokens that are always read: a share of the budget, or tokens"),
	}, func(a *args) Policy { return &h2oOffload{heavy: newHeavy(a)} })
}

func (p *h2oOffload) Needs() Needs {
	return Needs{PromptSums: AllRows, Sketch: Sketch{Kind: SketchExact, Stored: true}, TokenGranularity: true}
}

// Most implements [Reader].
func (p *h2oOffload) Most(l *Layer) (tokens, run int) {
	target, _ := p.sizes(l)
	return target, 1
}

// ObservePrompt starts the sums.
func (p *h2oOffload) ObservePrompt(l *Layer) { p.observe(l) }

// Select adds the step's weights over all tokens and reads the heaviest and the newest.
func (p *h2oOffload) Select(l *Layer, read *Selection) {
	read.Reset(l.KVHeads)
	target, recent := p.sizes(l)
	s := p.sums(l)
	for len(p.heads) < l.KVHeads {
		p.heads = append(p.heads, weighing{})
	}
	read.All = fits(l, target)
	l.each(l.KVHeads, func(_, g int) {
		n, w := l.Tokens(g), &p.heads[g]
		w.scores = sized(w.scores, l.Group()*n)
		l.Scores.Dot(g, l.queries(g), l.Group(), w.scores)
		for h := range l.Group() {
			row := w.scores[h*n : (h+1)*n]
			l.weigh(row, l.scale(), g*l.Group()+h)
			s.add(g, row)
		}
		if !read.All {
			read.Heads[g] = w.pick.heaviest(read.Heads[g], s.sum[g], min(target, n), min(recent, n))
		}
	})
}
