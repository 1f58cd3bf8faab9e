package kvmanager

import "terrace/internal/kvpage"

// Course is how a text is read in a cache without a backing store: a prompt in passes, a repetition of it by a fork, then steps of a token.
// Who refuses a text before it is read and who says beforehand what it takes ask the same question of it (Manager.Most).
type Course struct {
	Have    int                                   // tokens that the text has
	Prompt  int                                   // that come in passes
	Rows    func(left int) int                    // of the next pass, where so many of them are left
	ByLayer bool                                  // all passes go through one layer, then through the next
	Slides  bool                                  // after each pass layers with a window keep what later rows read (Sequence.Slide)
	Index   func(layer, prompt, tokens int) int64 // bytes charged of a layer from the prompt's end on, the prompt all until there; nil = none
	Beside  int64                                 // bytes charged while the prompt is read, whatever of it is read
	Again   []int                                 // rows that forks of the prompt read at its end, each fork after the one before it
	Steps   int                                   // tokens that follow, one a pass
}

// Most is the most that the text takes on the way, in bytes, and what it takes of that now. An earlier index is not in it.
func (m *Manager) Most(c Course) (most, now int64) {
	w := course{m: m, o: &c, layers: make([]int64, len(m.layers)), index: make([]int64, len(m.layers))}
	for layer := range w.layers {
		w.layers[layer] = m.held(layer, m.lies(layer, c.Have, c.Slides))
		w.sum += w.layers[layer]
	}
	w.most = w.sum
	if now = w.sum; c.Have > 0 {
		now += 2 * m.StateBytes()
	}
	w.prompt()
	w.repeat()
	w.steps()
	if c.Have+c.Prompt+c.Steps > 0 {
		w.most += 2 * m.StateBytes()
	}
	return w.most + c.Beside, now
}

// course follows one.
type course struct {
	m      *Manager
	o      *Course
	layers []int64 // what each takes now, beside its index
	index  []int64
	sum    int64 // of both
	most   int64
	forked int // tokens that it has from the text that it was forked from
}

// TailBytes is the most that the tokens of a text of n take that are not in whole blocks: with a backing store they stay in memory.
func (m *Manager) TailBytes(n int) (bytes int64) {
	main, residual := m.codec.split(n)
	for i := range m.layers {
		l := &m.layers[i]
		if main%m.o.Layout.Tokens > 0 {
			bytes += l.blockBytes()
		}
		bytes += int64(l.heads*pagesOf(residual, kvpage.Tile)) * int64(l.layouts[residualPages].PageBytes())
	}
	return bytes
}

// lying is which tokens of a layer's heads lie where, by their numbers: those from first to before main in main pages, those from window to
// before end in the window.
type lying struct{ first, main, window, end int }

// lies is that of n tokens between two passes: it does not depend on how they came.
func (m *Manager) lies(layer, n int, slides bool) lying {
	main, _ := m.codec.split(n)
	l := lying{main: main, window: main, end: n}
	if w := m.sliding(layer); slides && w > 0 {
		at := slideTokens(m.o.Layout.Tokens)
		l.first = max(0, min(n-w+1, main)) / at * at
	}
	return l
}

// held is the bytes of a layer's pages.
func (m *Manager) held(layer int, l lying) int64 {
	x, t := &m.layers[layer], m.o.Layout.Tokens
	bytes := int64(pagesOf(l.main, t)-l.first/t) * int64(x.layouts[mainPages].PageBytes())
	if _, floats := m.codec.(floatCodec); !floats && l.window < l.end {
		bytes += int64(pagesOf(l.end, kvpage.Tile)-l.window/kvpage.Tile) * int64(x.layouts[residualPages].PageBytes())
	}
	return int64(x.heads) * bytes
}

// own leaves out the pages of a fork that are still those of the text, of had tokens, that it was forked from.
func (m *Manager) own(l lying, had int) lying {
	t, main := m.o.Layout.Tokens, 0
	if main, _ = m.codec.split(had); l.main == main {
		main = roundUp(main, t)
	}
	l.first, l.window = max(l.first, main), max(l.window, had/kvpage.Tile*kvpage.Tile)
	return l
}

// pass takes a layer from so many tokens to more; its rows lie in the window until they have read each other.
func (w *course) pass(layer, from, to int) {
	w.settle(layer, w.append(layer, from, to, w.m.lies(layer, from, w.o.Slides)))
}

// append adds the rows of a pass to a layer whose tokens lie so; what its first row pushes out of the window leaves at once.
func (w *course) append(layer, from, to int, before lying) lying {
	during := w.m.lies(layer, to, false)
	during.first, during.window = before.first, before.window
	w.most = max(w.most, w.sum-w.layers[layer]+w.bytes(layer, during))
	during.window = max(before.window, w.m.lies(layer, from+1, false).window)
	w.set(layer, w.bytes(layer, during))
	return during
}

// settle takes what has left the window of a layer out of it.
func (w *course) settle(layer int, l lying) {
	l.window = l.main
	w.set(layer, w.bytes(layer, l))
}

// bytes is held, of a fork without what it shares.
func (w *course) bytes(layer int, l lying) int64 {
	if w.forked > 0 {
		l = w.m.own(l, w.forked)
	}
	return w.m.held(layer, l)
}

// set says what a layer takes.
func (w *course) set(layer int, bytes int64) {
	w.sum += bytes - w.layers[layer]
	w.layers[layer] = bytes
	w.most = max(w.most, w.sum)
}

// scan charges a layer's index of so many tokens.
func (w *course) scan(layer, tokens int) {
	if w.o.Index == nil {
		return
	}
	bytes := w.o.Index(layer, w.o.Have+w.o.Prompt, tokens)
	w.sum += bytes - w.index[layer]
	w.index[layer] = bytes
	w.most = max(w.most, w.sum)
}

// slide ends a pass that brought the text to so many tokens.
func (w *course) slide(tokens int) {
	for layer := range w.layers {
		if w.o.Slides && w.m.sliding(layer) > 0 {
			w.set(layer, w.m.held(layer, w.m.lies(layer, tokens, true)))
		}
	}
}

// prompt reads the prompt.
func (w *course) prompt() {
	end := w.o.Have + w.o.Prompt
	each := func(do func(from, to int, last bool)) {
		for at := w.o.Have; at < end; {
			to := at + w.o.Rows(end-at)
			do(at, to, to == end)
			at = to
		}
	}
	if w.o.ByLayer {
		for layer := range w.layers {
			l := lying{}
			each(func(from, to int, _ bool) { l = w.append(layer, from, to, l) })
			w.scan(layer, end)
			w.settle(layer, l)
		}
		return
	}
	each(func(from, to int, last bool) {
		for layer := range w.layers {
			if w.pass(layer, from, to); last {
				w.scan(layer, to)
			}
		}
		w.slide(to)
	})
}

// repeat has forks of the prompt read more.
func (w *course) repeat() {
	had := w.o.Have + w.o.Prompt
	for _, rows := range w.o.Again {
		fork := course{m: w.m, o: &Course{}, layers: make([]int64, len(w.layers)), forked: had}
		for left := rows; left > 0; {
			n := w.o.Rows(left)
			from := had + rows - left
			for layer := range fork.layers {
				fork.pass(layer, from, from+n)
			}
			left -= n
		}
		w.most = max(w.most, w.sum+fork.most+2*w.m.StateBytes())
	}
}

// steps takes the steps. What a layer holds grows from one period to the next, so that the last one has the most of them.
func (w *course) steps() {
	had := w.o.Have + w.o.Prompt
	period := slideTokens(w.m.o.Layout.Tokens)
	if q, ok := w.m.codec.(*quantizer); ok {
		period *= (q.group + period - 1) / period
	}
	for n := max(had, had+w.o.Steps-2*period); n < had+w.o.Steps; n++ {
		for layer := range w.layers {
			if n > had && n == had+w.o.Steps-2*period { // those before are left out
				w.set(layer, w.m.held(layer, w.m.lies(layer, n, w.o.Slides)))
				w.scan(layer, n)
			}
		}
		for layer := range w.layers {
			w.pass(layer, n, n+1)
		}
		for layer := range w.layers {
			w.scan(layer, n+1)
		}
		w.slide(n + 1)
	}
}
