package policy

// leoam models LeoAM's hierarchical scoring as algorithms.md 5.4 reads it (the paper is not at hand; results are marked
// "LeoAM-like"): chunks of tokens have an abstract, the element-wise minimum and maximum of their keys, which bounds their
// attention as Quest's pages do. Scoring is a tree: coarse chunks are bounded first; the best `expand` times as many as the
// budget needs are opened, and their fine chunks bounded; the fine chunks with the highest bounds are read. In layers whose
// attention is flat, opening brings nothing, and the coarse chunks themselves are read.
//
// A layer is flat while its opened chunks hold less than `flat` more of the bounds' softmax than an even share would:
// decided again at each step from the coarse bounds alone, so that nothing but abstracts is read for scoring.
type leoam struct {
	chooser
	fine, coarse int
	expand, flat float64
	stored       bool

	opened []int32 // coarse chunks
	inside []int32 // their fine chunks
	bounds []float32
	weight []float32
}

func init() {
	register(Info{
		Name:    "leoam",
		Summary: "bounds chunks by abstracts, coarse ones first, opens the best, reads the best fine chunks (LeoAM-like)",
		Paper:   "LeoAM, as HillInfer describes it",
		Phase:   PhaseRead,
		Params: append(chooserParams("10%", "0", "0", "1", "max"),
			Param{Name: "chunk", Default: "16", Doc: "tokens of a fine chunk"},
			Param{Name: "coarse", Default: "64", Doc: "tokens of a coarse chunk, a multiple of chunk"},
			Param{Name: "expand", Default: "2", Doc: "coarse chunks opened, in multiples of the budget"},
			Param{Name: "flat", Default: "0.1", Doc: "a layer is flat below this much more weight in the opened chunks than an even share"}, sketchParam),
	}, func(a *args) Policy {
		p := &leoam{
			chooser: newChooser(a), fine: a.int("chunk", 1, 4096), coarse: a.int("coarse", 1, 1<<20),
			expand: a.float("expand", 1, 1e6), flat: a.float("flat", 0, 1), stored: a.stored(),
		}
		if p.coarse%p.fine != 0 {
			a.fail("coarse", "a multiple of chunk", nil)
		}
		return p
	})
}

func (p *leoam) Needs() Needs {
	return Needs{Sketch: Sketch{Kind: SketchBounds, Blocks: []int{p.fine, p.coarse}, Stored: p.stored}}
}

// Most implements [Reader]: a flat layer reads coarse chunks.
func (p *leoam) Most(l *Layer) (tokens, run int) {
	return max(p.mostOfBlocks(l, p.fine, 1), p.mostOfBlocks(l, p.coarse, 1)), p.fine
}

// SelectsByHead implements HeadSelector.
func (p *leoam) SelectsByHead() {}

// Select walks the two levels of each KV head.
func (p *leoam) Select(l *Layer, read *Selection) {
	target, ok := p.start(l, read)
	if !ok {
		return
	}
	for g := range read.Heads {
		n := l.Tokens(g)
		p.open(l, g, target)
		if p.flatLayer(n) {
			blocks := max(target/p.coarse, 1)
			p.picked = p.forced(p.picked[:0], p.bounds, blocks, blocksOf(p.sinks, p.coarse), 1)
			read.Heads[g] = blockTokens(read.Heads[g], p.picked, p.coarse, n)
			continue
		}
		p.refine(l, g)
		p.picked = p.forced(p.picked[:0], p.bounds, max(target/p.fine, 1), blocksOf(p.sinks, p.fine), max(blocksOf(p.recent, p.fine), 1))
		read.Heads[g] = blockTokens(read.Heads[g], p.picked, p.fine, n)
	}
}

// open bounds the coarse chunks and chooses those to look into.
func (p *leoam) open(l *Layer, g, target int) {
	chunks := blocksOf(l.Tokens(g), p.coarse)
	p.scores = sized(p.scores, l.Group()*chunks)
	l.Scores.Bounds(g, p.coarse, nil, l.queries(g), l.Group(), p.scores)
	p.bounds = append(p.bounds[:0], p.merge(l, g, chunks)...)
	many := max(int(p.expand*float64(target)/float64(p.coarse)), 1)
	p.opened = p.forced(p.opened[:0], p.bounds, many, blocksOf(p.sinks, p.coarse), 1)
	p.weight = append(p.weight[:0], p.bounds...)
	softmaxRow(p.weight, l.scale())
}

// flatLayer reports whether the opened chunks hold hardly more weight than their number says.
func (p *leoam) flatLayer(n int) bool {
	var held float32
	for _, c := range p.opened {
		held += p.weight[c]
	}
	return float64(held) < float64(len(p.opened))/float64(len(p.weight))+p.flat
}

// refine bounds the fine chunks inside the opened ones; the others get no chance.
func (p *leoam) refine(l *Layer, g int) {
	chunks := blocksOf(l.Tokens(g), p.fine)
	p.inside = blockTokens(p.inside[:0], p.opened, p.coarse/p.fine, chunks)
	p.scores = sized(p.scores, l.Group()*len(p.inside))
	l.Scores.Bounds(g, p.fine, p.inside, l.queries(g), l.Group(), p.scores)
	fine := p.merge(l, g, len(p.inside))
	p.bounds = sized(p.bounds, chunks)
	for i := range p.bounds {
		p.bounds[i] = -infinity
	}
	for i, c := range p.inside {
		p.bounds[c] = fine[i]
	}
}
