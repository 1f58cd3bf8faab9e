package policy

// topp lets a selector pick generously and then reads, of what it picked, only as many tokens as hold the share p of each
// query head's estimated attention (Twilight, Lin et al. 2025, arXiv 2502.02770): budgets follow the text, head by head. The
// estimate is a softmax over the picks, of 4-bit keys (estimate=int4: rounded between the smallest and the largest number of
// each key) or of the true ones. A KV head reads what any of its query heads keeps, and the newest token. Layers that are
// dense for the selector stay so.
//
// Beside the selector's own scan a step reads KeyDim/2 + 8 bytes of each picked token.
type topp struct {
	base
	aroundSelector
	p     float64
	exact bool

	picks Selection
	heads []nucleus
}

// toppByHead is around a selector that decides each KV head by itself.
type toppByHead struct{ topp }

// toppProjecting is around a selector that chooses columns of keys.
type toppProjecting struct {
	topp
	aroundProjector
}

// SelectsByHead implements HeadSelector.
func (p *toppByHead) SelectsByHead() {}

// nucleus is one KV head's scratch.
type nucleus struct {
	scores, row, left []float32
	in                []bool
}

func init() {
	register(Info{
		Name:    "topp",
		Aliases: []string{"twilight"},
		Summary: "reads of what a selector picks as many tokens as hold a share of the attention; wraps a selector",
		Paper:   "Twilight: Adaptive Attention Sparsity with Hierarchical Top-p Pruning, arXiv 2502.02770",
		Phase:   PhaseWrapper,
		Wraps:   "quest",
		Inner:   "select",
		Params: []Param{
			{Name: "p", Default: "0.85", Doc: "share of a head's estimated attention that is read, above 0 and at most 1"},
			{Name: "estimate", Default: "int4", Doc: "what attention is estimated with: int4 (4-bit keys) or exact (the keys)"},
		},
	}, newTopp)
}

func newTopp(a *args) Policy {
	p := topp{base: a.base(), p: a.float("p", 0, 1), exact: a.choice("estimate", "int4", "exact") == 1}
	if p.p == 0 {
		a.fail("p", "a number above 0 and at most 1", nil)
	}
	inner := a.innerSelector()
	if inner == nil {
		return &p
	}
	p.aroundSelector = aroundSelector{inner}
	if _, ok := inner.(HeadSelector); ok {
		return &toppByHead{p}
	}
	if _, ok := inner.(Projector); ok {
		return &toppProjecting{p, aroundProjector{inner}}
	}
	return &p
}

// Needs are the selector's, and keys to estimate with.
func (p *topp) Needs() Needs {
	n := p.inner.Needs()
	n.TokenGranularity, n.SharedAcrossHeads, n.SinglesByHead = true, false, false
	n.Sketch.Listed = ListedInt4
	if p.exact {
		n.Sketch.Listed = ListedExact
	}
	return n
}

// Most implements [Reader].
func (p *topp) Most(l *Layer) (tokens, run int) { return p.most(l) }

// denser is a selector with first layers that read everything.
type denser interface{ denseLayers() int }

func (c *chooser) denseLayers() int   { return c.dense }
func (p *pqcache) denseLayers() int   { return p.dense }
func (p *infinigen) denseLayers() int { return p.dense }
func (p *sparQ) denseLayers() int     { return p.dense }
func (p *hillinfer) denseLayers() int { return p.dense }

// Select prunes what the selector picked.
func (p *topp) Select(l *Layer, read *Selection) {
	p.picks.Reset(l.KVHeads)
	p.inner.Select(l, &p.picks)
	read.Reset(l.KVHeads)
	if d, ok := p.inner.(denser); p.picks.All && (p.p == 1 || ok && l.Index < d.denseLayers()) {
		read.All = true
		return
	}
	for len(p.heads) < l.KVHeads {
		p.heads = append(p.heads, nucleus{})
	}
	l.each(l.KVHeads, func(_, g int) {
		picks := p.picks.Heads[g]
		if p.picks.All {
			picks = span(picks[:0], 0, l.Tokens(g))
			p.picks.Heads[g] = picks
		}
		if p.p == 1 {
			read.Heads[g] = append(read.Heads[g], picks...)
			return
		}
		read.Heads[g] = p.heads[g].prune(read.Heads[g], l, g, picks, p.p)
	})
}

// prune appends the picks that any head of a group keeps.
func (n *nucleus) prune(dst []int32, l *Layer, g int, picks []int32, p float64) []int32 {
	m, group := len(picks), l.Group()
	if m == 0 {
		return dst
	}
	n.scores, n.in = sized(n.scores, group*m), sized(n.in, m)
	clear(n.in)
	n.in[m-1] = int(l.Pos[g][picks[m-1]]) == l.N-1
	l.Scores.Listed(g, picks, l.queries(g), group, n.scores)
	for h := range group {
		n.row = weights(n.row, n.scores[h*m:(h+1)*m], l.scale())
		n.keep(n.row[:m], p)
	}
	for i, in := range n.in {
		if in {
			dst = append(dst, picks[i])
		}
	}
	return dst
}

// keep marks the shortest list of the largest weights, ties to the lower position, that sum to p.
func (n *nucleus) keep(w []float32, p float64) {
	cut, ties := n.cut(w, p)
	for i, x := range w {
		switch {
		case x > cut:
			n.in[i] = true
		case x == cut && ties > 0:
			n.in[i] = true
			ties--
		}
	}
}

// cut finds the least weight of that list, and how many of that weight are in it: by halving what is left, as a selection does,
// with sums in place of counts.
func (n *nucleus) cut(w []float32, p float64) (cut float32, ties int) {
	n.left = append(n.left[:0], w...)
	x, have := n.left, 0.0
	for len(x) > 0 {
		pivot := median(x[0], x[len(x)/2], x[len(x)-1])
		above, same, sum := 0, 0, 0.0 // x[:above] > pivot, x[above:above+same] == pivot
		for i, v := range x {
			switch {
			case v > pivot:
				sum += float64(v)
				x[i] = x[above+same]
				x[above+same], x[above] = x[above], v
				above++
			case v == pivot:
				x[i], x[above+same] = x[above+same], v
				same++
			}
		}
		if have+sum >= p {
			x = x[:above]
			continue
		}
		have += sum
		for i := 1; i <= same; i++ {
			if have += float64(pivot); have >= p {
				return pivot, i
			}
		}
		cut, ties = pivot, same
		x = x[above+same:]
	}
	return cut, ties // all of it: rounding never got there
}

func median(a, b, c float32) float32 { return max(min(a, b), min(max(a, b), c)) }

// ListedKind is a copy of the keys that products with single tokens are made of.
type ListedKind uint8

const (
	ListedNone  ListedKind = iota
	ListedInt4             // 16 steps between the smallest and the largest number of each key
	ListedExact            // the keys themselves
)
