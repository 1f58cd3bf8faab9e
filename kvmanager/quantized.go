package kvmanager

import (
	"errors"
	"fmt"

	"terrace/attention"
	"terrace/internal/kvpage"
)

// quantizer is the codec of quantized caches (KIVI): keys share a scale with the others of their group a channel, values have their
// own, and the newest tokens stay in full precision until a whole group of them leaves the window. What is appended
// together is read so by its own rows: only what the first row alone pushes out of the window is quantized before them, the rest by settle.
type quantizer struct {
	m      *Manager
	window int // tokens that stay in full precision
	group  int // tokens that leave it at once: kvpage.Elem.KeyGroup of the cache's type, whole ones of a layer's own
	bulk   attention.Reader
	k, v   []float32 // a group on its way
	pos    []int32
}

func newQuantizer(m *Manager) *quantizer {
	q := &quantizer{m: m, window: m.o.Window, group: m.o.Layout.K.KeyGroup()}
	q.pos = make([]int32, q.group)
	for i := range m.layers {
		l := m.main(i)
		q.k, q.v = grown(q.k, q.group*l.KeyDim), grown(q.v, q.group*l.ValueDim)
	}
	return q
}

func (q *quantizer) encode(s *Sequence) encoding {
	e := &quantized{quantizer: q, s: s, windows: make([]window, len(s.lists.all))}
	for layer := range q.m.layers {
		for i := q.m.first[layer]; i < q.m.first[layer+1]; i++ {
			e.windows[i].owned = ownedPages{m: q.m, of: q.m.layers[layer].classes[residualPages]}
		}
	}
	return e
}

func (q *quantizer) split(tokens int) (main, residual int) {
	main = q.leaving(0, tokens)
	return main, tokens - main
}

// leaving is how many tokens leave a window of had tokens when n more come: whole groups, so that the window keeps its size.
func (q *quantizer) leaving(had, n int) int {
	return max(0, had+n-q.window) / q.group * q.group
}

// quantized is the encoding of one sequence of a quantized cache. Its main pages hold whole groups.
type quantized struct {
	*quantizer
	s       *Sequence
	windows []window // as Sequence.heads
}

// window is the newest tokens of one layer and KV head in full precision: f16, a tile a page.
type window struct {
	list
	owned   ownedPages
	pending int // its oldest tokens that settle moves: whole groups, which the main pages have room for
}

// batch is tokens on their way from one kind of page to another.
type batch struct {
	k, v []float32
	pos  []int32
}

func (e *quantized) at(layer, kvHead int) *window {
	return &e.windows[e.m.first[layer]+kvHead]
}

func (e *quantized) incoming(layer, n int, more []int) {
	for g := range more {
		more[g] = e.leaving(e.at(layer, g).tokens, n)
	}
}

// together stops before the token that would push the next group out of the window: the tokens before it read that in full
// precision.
func (e *quantized) together(layer, n int) int {
	for g := range e.m.heads(layer) {
		had := e.at(layer, g).tokens
		for n > 1 && e.leaving(had, n) != e.leaving(had, 1) {
			n--
		}
	}
	return n
}

func (e *quantized) reserve(layer, n int) error {
	for g := range e.m.heads(layer) {
		w := e.at(layer, g)
		if err := w.owned.reserve(&w.list, n); err != nil {
			return err
		}
	}
	return nil
}

func (e *quantized) unreserve(layer int) {
	for g := range e.m.heads(layer) {
		w := e.at(layer, g)
		w.owned.unreserve(&w.list)
	}
}

// append takes tokens into the window and quantizes the groups that leave it before the first of them reads.
func (e *quantized) append(layer, kvHead int, k []float32, kStride int, v []float32, vStride int, pos []int32) {
	w, h := e.at(layer, kvHead), e.s.lists.at(layer, kvHead)
	n := e.leaving(w.tokens, min(1, len(pos)))
	w.append(e.m.recent(layer), k, kStride, v, vStride, pos)
	h.pos = append(h.pos, pos...)
	if n > 0 {
		e.quantize(layer, w, &h.main, n)
	}
	w.pending = e.leaving(w.tokens, 0)
}

// settle quantizes a window's oldest groups until it is less than a group larger than it should be; less where a cut has left less.
func (e *quantized) settle(layer, kvHead int) {
	w := e.at(layer, kvHead)
	if n := min(w.pending, e.leaving(w.tokens, 0)); n > 0 {
		e.quantize(layer, w, &e.s.lists.at(layer, kvHead).main, n)
	}
	w.pending = 0
}

// quantize moves the oldest n tokens of a window, whole groups, to main pages that were reserved.
func (e *quantized) quantize(layer int, w *window, main *list, n int) {
	l, dk, dv := *e.m.recent(layer), e.m.main(layer).KeyDim, e.m.main(layer).ValueDim
	for first := 0; first < n; first += e.group {
		for i := range e.group {
			p, j := &w.pages[(first+i)/kvpage.Tile], i%kvpage.Tile
			kvpage.ReadK(l, p.Data, j, e.k[i*dk:(i+1)*dk])
			kvpage.ReadV(l, p.Data, j, e.v[i*dv:(i+1)*dv])
			e.pos[i] = p.Pos[j]
		}
		main.append(e.m.main(layer), e.k, dk, e.v, dv, e.pos)
	}
	pages := n / kvpage.Tile
	for i := range pages {
		e.m.drop(w.owned.of, w.owned.refs[i])
	}
	w.owned.refs = w.owned.refs[:copy(w.owned.refs, w.owned.refs[pages:])]
	w.pages = w.pages[:copy(w.pages, w.pages[pages:])]
	w.tokens -= n
}

// keep leaves groups before the first dropped token as they are; later quantized tokens form new groups, their values moved bit
// for bit; what does not fill a group goes back to the front of the window.
func (e *quantized) keep(layer, kvHead int, keep []int) error {
	m, h, w, l := e.m, e.s.lists.at(layer, kvHead), e.at(layer, kvHead), e.m.main(layer)
	stay := 0 // kept tokens that were quantized
	for stay < len(keep) && keep[stay] < h.main.tokens {
		stay++
	}
	first := min(same(keep), stay) / e.group * e.group
	whole := stay / e.group * e.group
	if err := e.fits(layer, kvHead, len(keep)-whole, first, whole); err != nil {
		return err
	}
	view := attention.View{Layout: *l, Pages: h.main.pages, RecentLayout: *m.recent(layer), Recent: w.pages}
	late := e.read(layer, &view, keep[whole:], h.pos)
	for i, x := range keep {
		h.pos[i] = h.pos[x]
	}
	h.cutPositions(len(keep))
	if err := e.s.store.own(layer, kvHead, first, whole); err != nil {
		return err
	}
	e.regroup(layer, &h.main, keep[first:whole], first)
	h.main.cut(m, l, whole)
	err := e.s.store.unreserve(layer) // what leaves makes room for the window
	e.resize(layer, w, 0)
	w.pending = 0
	if rerr := w.owned.reserve(&w.list, len(late.pos)); rerr != nil {
		return errors.Join(err, rerr)
	}
	w.append(m.recent(layer), late.k, l.KeyDim, late.v, l.ValueDim, late.pos)
	return err
}

func (e *quantized) editKeys(layer, kvHead int, fn func(from int, keys []float32)) error {
	h, w := e.s.lists.at(layer, kvHead), e.at(layer, kvHead)
	if err := e.m.makeRoom(e.s.store.extra(layer, kvHead, 0, h.main.tokens)); err != nil {
		return fmt.Errorf("kvmanager: changing keys of a quantized cache: %w", err)
	}
	if err := errors.Join(e.s.store.own(layer, kvHead, 0, h.main.tokens), w.owned.ownRange(&w.list, 0, w.tokens)); err != nil {
		return err
	}
	h.main.editKeys(e.m.main(layer), 0, fn)
	w.editKeys(e.m.recent(layer), h.main.tokens, fn)
	return nil
}

func (e *quantized) renumber(layer, kvHead int, first int32) { e.at(layer, kvHead).renumber(first) }

// resize cuts a window to its first n tokens.
func (e *quantized) resize(layer int, w *window, n int) {
	w.cut(e.m, e.m.recent(layer), n)
	w.owned.unreserve(&w.list)
}

// fits checks that a window of late tokens, and copies of shared main pages of the tokens first to whole-1, fit the budget.
func (e *quantized) fits(layer, kvHead, late, first, whole int) error {
	w, size := e.at(layer, kvHead), e.at(layer, kvHead).owned.of.bytes
	more := int64((late+kvpage.Tile-1)/kvpage.Tile)*size + e.s.store.extra(layer, kvHead, first, whole)
	for i := range w.owned.refs {
		if !w.owned.shared(i) {
			more -= size
		}
	}
	if err := e.m.makeRoom(max(more, 0)); err != nil {
		return fmt.Errorf("kvmanager: dropping tokens of a quantized cache: %w", err)
	}
	return nil
}

// read takes the tokens at the given indices of a view.
func (e *quantized) read(layer int, v *attention.View, index []int, pos []int32) batch {
	dk, dv := e.m.main(layer).KeyDim, e.m.main(layer).ValueDim
	r := batch{k: make([]float32, len(index)*dk), v: make([]float32, len(index)*dv), pos: make([]int32, len(index))}
	for i, x := range index {
		e.bulk.Keys(v, x, x+1, r.k[i*dk:(i+1)*dk])
		e.bulk.Values(v, x, x+1, r.v[i*dv:(i+1)*dv])
		r.pos[i] = pos[x]
	}
	return r
}

// regroup writes the quantized tokens at the given indices, whole groups of them, to the places from first on.
func (e *quantized) regroup(layer int, p *list, keep []int, first int) {
	l := *e.m.main(layer)
	view := attention.View{Layout: l, Pages: p.pages}
	values := make([]byte, 0, e.group*l.VRowBytes())
	for t := 0; t < len(keep); t += e.group {
		values = values[:0]
		for j, x := range keep[t : t+e.group] {
			e.bulk.Keys(&view, x, x+1, e.k[j*l.KeyDim:(j+1)*l.KeyDim])
			values = append(values, l.VRow(p.pages[x/l.Tokens].Data, x%l.Tokens)...)
			e.pos[j] = p.pages[x/l.Tokens].Pos[x%l.Tokens]
		}
		page, slot, of := &p.pages[(first+t)/l.Tokens], (first+t)%l.Tokens, l.K.KeyGroup()
		for j := 0; j < e.group; j += of {
			kvpage.PutGroupK(l, page.Data, (slot+j)/of, of, e.k[j*l.KeyDim:], l.KeyDim, loneAt(e.pos[j:]))
		}
		n := l.VRowBytes()
		for j := range e.group {
			copy(l.VRow(page.Data, slot+j), values[j*n:(j+1)*n])
		}
		copy(page.Pos[slot:], e.pos)
	}
}

func (e *quantized) cut(layer, kvHead, n int) error {
	h := e.s.lists.at(layer, kvHead)
	if n >= h.main.tokens {
		e.resize(layer, e.at(layer, kvHead), n-h.main.tokens)
		h.pos = h.pos[:n]
		return nil
	}
	keep := make([]int, n)
	for i := range keep {
		keep[i] = i
	}
	return e.keep(layer, kvHead, keep)
}

// rewrites: a cut within the main pages moves what does not fill a group back into the window.
func (e *quantized) rewrites(layer int, next int32) (first int, ok bool) {
	for g := range e.m.heads(layer) {
		h := e.s.lists.at(layer, g)
		if n := firstAtLeast(h.pos, next); n < h.main.tokens && (!ok || n < first) {
			first, ok = n, true
		}
	}
	return first / e.m.o.Layout.Tokens, ok
}

func (e *quantized) movesTokens() bool { return false }

func (e *quantized) show(layer, kvHead int, v *attention.View) {
	v.RecentLayout, v.Recent = *e.m.recent(layer), e.at(layer, kvHead).pages
}

func (e *quantized) share(fork encoding) {
	f := fork.(*quantized)
	for i := range e.windows {
		f.windows[i] = window{list: e.windows[i].clone(), owned: e.windows[i].owned.fork()}
	}
}

func (e *quantized) bytes() (n int64) {
	for i := range e.windows {
		n += e.windows[i].owned.bytes()
	}
	return n
}

// growth: every window may be a token short of letting a group go, and that of one layer has the new tokens beside.
func (e *quantized) growth(rows, tokens int) int64 {
	pages := func(tokens int) int { return (tokens + kvpage.Tile - 1) / kvpage.Tile }
	most := min(e.window+e.group-1, tokens)
	coming := min(most+rows, tokens)
	all, widest := int64(0), int64(0) // of a page in every head of every layer, and of one layer
	for i := range e.m.layers {
		if l := &e.m.layers[i]; l.heads > 0 {
			n := int64(l.heads) * l.classes[residualPages].bytes
			all, widest = all+n, max(widest, n)
		}
	}
	return max(all*int64(pages(most))+widest*int64(pages(coming)-pages(most))-e.bytes(), 0)
}

func (e *quantized) free() {
	for i := range e.windows {
		e.windows[i].owned.free()
		e.windows[i].list = list{}
	}
}

// grown is b with room for n numbers.
func grown(b []float32, n int) []float32 {
	if len(b) < n {
		return make([]float32, n)
	}
	return b
}
