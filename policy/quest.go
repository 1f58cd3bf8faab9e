package policy

// quest reads whole pages: the element-wise minimum and maximum of a page's keys bound every product inside it, Σ max(q·min,
// q·max), and the pages with the highest bounds are read (Tang et al. 2024, arXiv 2406.10774). The first layers read all;
// at least min_pages pages are read, whatever the budget; the newest page always is, and counts as a whole one.
//
// A step scans 2·KeyDim values a page and KV head: 1/page of the K and V bytes.
type quest struct {
	chooser
	page, minPages int
	stored         bool
}

func init() {
	params := append(chooserParams("1024", "2", "0", "1", "sum"),
		Param{Name: "page", Aliases: []string{"page_size", "chunk_size"}, Default: "16", Doc: "tokens of a page"},
		Param{Name: "min_pages", Default: "3", Doc: "pages read in any case"}, sketchParam)
	register(Info{
		Name:    "quest",
		Summary: "bounds each page's attention by its keys' minima and maxima, reads the best pages",
		Paper:   "Quest: Query-Aware Sparsity for Efficient Long-Context LLM Inference, arXiv 2406.10774",
		Phase:   PhaseRead,
		Params:  params,
	}, func(a *args) Policy {
		return &quest{newChooser(a), a.int("page", 1, 4096), a.int("min_pages", 1, maxTokens), a.stored()}
	})
}

func (p *quest) Needs() Needs {
	return Needs{Sketch: Sketch{Kind: SketchBounds, Blocks: []int{p.page}, Stored: p.stored}}
}

// Most implements [Reader].
func (p *quest) Most(l *Layer) (tokens, run int) {
	return p.mostOfBlocks(l, p.page, p.minPages), p.page
}

// SelectsByHead implements HeadSelector.
func (p *quest) SelectsByHead() {}

// Select ranks pages by their bounds.
func (p *quest) Select(l *Layer, read *Selection) {
	target, ok := p.start(l, read)
	if !ok {
		return
	}
	for g := range read.Heads {
		n := l.Tokens(g)
		pages := blocksOf(n, p.page)
		p.scores = sized(p.scores, l.Group()*pages)
		l.Scores.Bounds(g, p.page, nil, l.queries(g), l.Group(), p.scores)
		bounds := p.merge(l, g, pages)
		p.picked = p.forced(p.picked[:0], bounds, max(target/p.page, p.minPages), blocksOf(p.sinks, p.page), max(blocksOf(p.recent, p.page), 1))
		read.Heads[g] = blockTokens(read.Heads[g], p.picked, p.page, n)
	}
}

// blocksOf is how many blocks hold n tokens.
func blocksOf(n, size int) int { return (n + size - 1) / size }

// blockTokens appends the token indices of blocks.
func blockTokens(dst, blocks []int32, size, n int) []int32 {
	for _, b := range blocks {
		dst = span(dst, int(b)*size, min((int(b)+1)*size, n))
	}
	return dst
}
