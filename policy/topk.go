package policy

// topK reads the tokens whose keys, kept a second time in 8 or 4 bits, have the largest products with the query: the
// sketch (1/4 or 1/8 of the K bytes in f32, 1/2 or 1/4 in f16) is scanned whole, the cache only where it matters.
//
// The query is rounded to 8 bits too, so that products are of integers. Recall of the exact best 256 of 2,000 tokens, and
// the attention that the picks hold (SmolLM2, wikitext-2, two steps of ten layers): int8 keys 0.988 (0.989 with a float
// query) and 0.959, int4 keys 0.832 (0.831) and 0.954: rounding the query costs a thousandth at most.
type topK struct {
	chooser
	sketch SketchKind
}

func init() {
	register(Info{
		Name:    "topk",
		Summary: "scans an 8-bit or 4-bit copy of the keys, reads the best tokens",
		Phase:   PhaseRead,
		Params: append(chooserParams("1024", "0", "0", "1", "softmax"),
			Param{Name: "score", Default: "int8", Doc: "precision of the copy: int8 or int4"}),
	}, func(a *args) Policy {
		return &topK{newChooser(a), []SketchKind{SketchInt8, SketchInt4}[a.choice("score", "int8", "int4")]}
	})
}

func (p *topK) Needs() Needs {
	return Needs{Sketch: Sketch{Kind: p.sketch, Scale: ScaleToken}, TokenGranularity: true}
}

// SelectsByHead implements HeadSelector.
func (p *topK) SelectsByHead() {}

// Scans implements Scanner.
func (p *topK) Scans(l *Layer) bool { return !p.readsAll(l) }

// Select ranks by the sketch's scores.
func (p *topK) Select(l *Layer, read *Selection) {
	target, ok := p.start(l, read)
	if !ok {
		return
	}
	for g := range read.Heads {
		n := l.Tokens(g)
		scores, stride := p.approx(l, g, n)
		read.Heads[g] = p.choose(read.Heads[g], p.mergeRows(l, g, scores, stride, n), target)
	}
}
