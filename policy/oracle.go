package policy

// oracle reads the tokens with the largest true attention weights: the ceiling for every selector at the same budget. It
// scans the exact keys, so it saves nothing.
type oracle struct{ chooser }

func init() {
	register(Info{
		Name:    "oracle",
		Summary: "reads the tokens with the largest true attention: the ceiling for selectors",
		Phase:   PhaseControl,
		Params:  chooserParams("20%", "0", "0", "1", "softmax"),
	}, func(a *args) Policy { return &oracle{newChooser(a)} })
}

func (p *oracle) Needs() Needs {
	return Needs{Sketch: Sketch{Kind: SketchExact}, TokenGranularity: true}
}

// SelectsByHead implements HeadSelector.
func (p *oracle) SelectsByHead() {}

// Select ranks by exact scores.
func (p *oracle) Select(l *Layer, read *Selection) {
	target, ok := p.start(l, read)
	if !ok {
		return
	}
	for g := range read.Heads {
		n := l.Tokens(g)
		p.scores = sized(p.scores, l.Group()*n)
		l.Scores.Dot(g, l.queries(g), l.Group(), p.scores)
		read.Heads[g] = p.choose(read.Heads[g], p.merge(l, g, n), target)
	}
}
