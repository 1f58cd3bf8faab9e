package kvmanager

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"

	"terrace/attention"
	"terrace/internal/kvpage"
	"terrace/kvmanager/slab"
)

// Sequence is one text's KV: for each layer and KV head a list of pages in token order.
type Sequence struct {
	m      *Manager
	id     uint64 // no other sequence of the manager has or had it; from 1
	heads  []head // [layer·KVHeads + head]
	views  []attention.View
	parked map[parkKey]*parked // pages out of every view
	closed bool

	tiers []layerBlocks // [Layers], on tiers
	home  *home         // where new blocks are stored
	quota []int         // [Layers] blocks that stay in memory, set by Plan
}

// head is the cache of one layer and KV head: settled tokens, then those of the window (quantised caches only). Both are
// dense; the settled tokens of a quantised cache are whole tiles.
type head struct {
	list [kinds]list
	pos  []int32 // the positions of all tokens, as PositionList shows them
}

// list is pages of one kind and the tokens in them.
type list struct {
	refs   []slab.Ref
	pages  []attention.Page // the same pages as attention reads them; the last one may have room
	tokens int
}

// NewSequence returns an empty sequence.
func (m *Manager) NewSequence() *Sequence {
	m.sequences++
	m.opened++
	n := m.o.Layers * m.o.KVHeads
	s := &Sequence{m: m, id: m.opened, heads: make([]head, n), views: make([]attention.View, n)}
	if m.lower != nil {
		s.tiers, s.quota, s.home = make([]layerBlocks, m.o.Layers), make([]int, m.o.Layers), m.newHome()
		m.tiered = append(m.tiered, s)
	}
	return s
}

// ID names the sequence among all of its manager, as views do (attention.View.Cache).
func (s *Sequence) ID() uint64 { return s.id }

// at returns the cache of a layer and head.
func (s *Sequence) at(layer, kvHead int) *head { return &s.heads[layer*s.m.o.KVHeads+kvHead] }

func (h *head) tokens() int { return len(h.pos) }

// Tokens is the number of tokens that a layer and head hold.
func (s *Sequence) Tokens(layer, kvHead int) int { return s.at(layer, kvHead).tokens() }

// PositionList is the positions that a layer and head hold, in token order; it is the sequence's own and holds until the
// sequence changes.
func (s *Sequence) PositionList(layer, kvHead int) []int32 { return s.at(layer, kvHead).pos }

// Views are the layer's KV, one view a head, valid until the sequence changes.
func (s *Sequence) Views(layer int) []attention.View {
	g := s.m.o.KVHeads
	out := s.views[layer*g : (layer+1)*g]
	for i := range out {
		h := s.at(layer, i)
		out[i] = attention.View{Layout: s.m.layout[settled], Pages: h.list[settled].pages, Cache: s.id}
		if s.m.quantised {
			out[i].RecentLayout, out[i].Recent = s.m.layout[recent], h.list[recent].pages
		}
	}
	return out
}

// Bytes is what the sequence's pages hold, shared ones included.
func (s *Sequence) Bytes() (n int64) {
	for i := range s.tiers {
		n += int64(len(s.tiers[i].blocks)) * s.m.size[settled]
	}
	for i := range s.heads {
		for kind := range kinds {
			n += int64(len(s.heads[i].list[kind].refs)) * int64(s.m.layout[kind].PageBytes())
		}
	}
	return n
}

// Append adds n tokens to a layer: k [n, G·dk] (rotated), v [n, G·dv], their positions ascending past what is there.
// On ErrBudget nothing has changed.
func (s *Sequence) Append(layer int, k, v []float32, pos []int32) error {
	if s.closed {
		return fmt.Errorf("kvmanager: append: %w", ErrClosed)
	}
	o := &s.m.o
	if err := s.reserve(layer, len(pos)); err != nil {
		return err
	}
	kind := settled
	if s.m.quantised {
		kind = recent
	}
	first := math.MaxInt
	for g := range o.KVHeads {
		h := s.at(layer, g)
		if s.tiers != nil {
			first = min(first, h.list[settled].tokens/o.Layout.Tokens)
		}
		h.list[kind].append(s.m, kind, k[g*o.Layout.KeyDim:], o.KVHeads*o.Layout.KeyDim, v[g*o.Layout.ValueDim:], o.KVHeads*o.Layout.ValueDim, pos)
		h.pos = append(h.pos, pos...)
		if s.m.quantised {
			h.settle(s.m)
		}
	}
	if s.tiers != nil {
		s.touched(layer, min(first, len(s.tiers[layer].blocks)))
		s.reopen(layer)
	}
	return nil
}

// DefersAppend reports whether AppendLater can be used: a cache of floats without tiers.
func (m *Manager) DefersAppend() bool { return m.lower == nil && !m.quantised }

// AppendLater is Append of keys and values that are still on their way: the tokens are there, and fill writes their bytes, once,
// from any goroutine. Until it has returned nothing may read the bytes of these tokens, or change the layer.
func (s *Sequence) AppendLater(layer int, pos []int32) (fill func(k, v []float32), err error) {
	if s.closed || !s.m.DefersAppend() {
		return nil, fmt.Errorf("kvmanager: append later: %w", ErrClosed)
	}
	if err := s.reserve(layer, len(pos)); err != nil {
		return nil, err
	}
	o, n, first := &s.m.o, len(pos), make([]int, s.m.o.KVHeads)
	for g := range o.KVHeads {
		h := s.at(layer, g)
		first[g] = h.list[settled].tokens
		h.list[settled].count(&s.m.layout[settled], pos)
		h.pos = append(h.pos, pos...)
	}
	return func(k, v []float32) {
		for g := range o.KVHeads {
			s.at(layer, g).list[settled].write(&s.m.layout[settled], first[g], n, k[g*o.Layout.KeyDim:], o.KVHeads*o.Layout.KeyDim,
				v[g*o.Layout.ValueDim:], o.KVHeads*o.Layout.ValueDim)
		}
	}, nil
}

// Reserve makes room for n more tokens in a layer, or changes nothing. Where it reports apart, an Append of these tokens
// touches nothing that other sequences have a part in, so that Appends to several sequences may run at the same time.
func (s *Sequence) Reserve(layer, n int) (apart bool, err error) {
	if s.closed {
		return false, fmt.Errorf("kvmanager: reserve: %w", ErrClosed)
	}
	return s.tiers == nil && !s.m.quantised, s.reserve(layer, n)
}

// reserve makes room for n more tokens in every head of a layer, or changes nothing.
func (s *Sequence) reserve(layer, n int) error {
	err := error(nil)
	if s.tiers != nil {
		err = s.reserveBlocks(layer, n)
	}
	for i := 0; err == nil && s.tiers == nil && i < s.m.o.KVHeads; i++ {
		err = s.at(layer, i).reserve(s.m, n)
	}
	if err == nil {
		return nil
	}
	for i := range s.m.o.KVHeads {
		for kind := range kinds {
			s.at(layer, i).list[kind].unreserve(s.m, kind)
		}
	}
	if s.tiers != nil {
		err = errors.Join(err, s.trim(layer))
	}
	return err
}

func (h *head) reserve(m *Manager, n int) error {
	if !m.quantised {
		return h.list[settled].reserve(m, settled, n)
	}
	if err := h.list[recent].reserve(m, recent, n); err != nil {
		return err
	}
	return h.list[settled].reserve(m, settled, m.settling(h.list[recent].tokens, n))
}

func (p *list) reserve(m *Manager, kind, n int) error {
	if n == 0 {
		return nil
	}
	t := m.layout[kind].Tokens
	if last := len(p.pages) - 1; last >= 0 && p.pages[last].N < t && m.slabs[kind].Shared(p.refs[last]) {
		if err := p.own(m, kind, last); err != nil { // invariant 3
			return err
		}
	}
	for len(p.pages)*t-p.tokens < n {
		r, err := m.take(kind)
		if err != nil {
			return err
		}
		p.refs = append(p.refs, r)
		p.pages = append(p.pages, attention.Page{Data: m.slabs[kind].Data(r), Pos: m.slabs[kind].Positions(r), Version: m.stamp()})
	}
	return nil
}

// unreserve gives back empty pages at the end.
func (p *list) unreserve(m *Manager, kind int) {
	for i := len(p.pages) - 1; i >= 0 && p.pages[i].N == 0; i-- {
		if !m.inBlocks(kind) {
			m.drop(kind, p.refs[i])
			p.refs = p.refs[:i]
		}
		p.pages = p.pages[:i]
	}
}

// own replaces a shared page by a copy (invariant 3).
func (p *list) own(m *Manager, kind, i int) error {
	r, err := m.take(kind)
	if err != nil {
		return err
	}
	old := p.pages[i]
	copy(m.slabs[kind].Data(r), old.Data)
	copy(m.slabs[kind].Positions(r), old.Pos)
	m.drop(kind, p.refs[i])
	p.refs[i] = r
	p.pages[i] = attention.Page{Data: m.slabs[kind].Data(r), Pos: m.slabs[kind].Positions(r), N: old.N, Version: m.stamp()}
	return nil
}

// append writes rows into the reserved room.
func (p *list) append(m *Manager, kind int, k []float32, kStride int, v []float32, vStride int, pos []int32) {
	p.write(&m.layout[kind], p.tokens, len(pos), k, kStride, v, vStride)
	p.count(&m.layout[kind], pos)
}

// write writes n rows into the room of the tokens from a number on; tokens are dense, so token i lies in page i/Tokens.
func (p *list) write(l *kvpage.Layout, first, n int, k []float32, kStride int, v []float32, vStride int) {
	for done := 0; done < n; {
		at := first + done
		slot := at % l.Tokens
		run := min(l.Tokens-slot, n-done)
		attention.Append(*l, p.pages[at/l.Tokens].Data, slot, run, k[done*kStride:], kStride, v[done*vStride:], vStride)
		done += run
	}
}

// count takes the tokens with these positions into the list.
func (p *list) count(l *kvpage.Layout, pos []int32) {
	for at := p.tokens / l.Tokens; len(pos) > 0; at++ {
		page := &p.pages[at]
		n := copy(page.Pos[page.N:l.Tokens], pos)
		page.N += n
		p.tokens += n
		pos = pos[n:]
	}
}

// resize sets the number of tokens after some at the end went, and frees the pages that became empty.
func (p *list) resize(m *Manager, kind, n int) {
	t := m.layout[kind].Tokens
	for i := n / t; i < len(p.pages); i++ {
		if left := max(0, n-i*t); left < p.pages[i].N {
			p.pages[i].N, p.pages[i].Version = left, m.stamp()
		}
	}
	p.tokens = n
	p.unreserve(m, kind)
}

// Keep drops every token of a layer and head but those at the given indices (ascending, in token order) and frees the pages
// that become empty. The bytes of kept tokens do not change, except quantised keys: those of a tile that lost tokens are
// quantised anew with their new neighbours, which adds at most half a step of the new scale to each number. On ErrBudget
// (a quantised cache moves up to 15 tokens back into its window) nothing has changed.
func (s *Sequence) Keep(layer, kvHead int, keep []int) error {
	h := s.at(layer, kvHead)
	for i, x := range keep {
		if x < 0 || x >= h.tokens() || (i > 0 && x <= keep[i-1]) {
			return fmt.Errorf("kvmanager: keep index %d at %d of layer %d head %d with %d tokens: %w", x, i, layer, kvHead, h.tokens(), ErrPlan)
		}
	}
	if len(keep) == h.tokens() {
		return nil
	}
	first := min(same(keep), h.list[settled].tokens) / s.m.o.Layout.Tokens
	if s.tiers != nil {
		if err := s.materialise(layer, first); err != nil {
			return err
		}
	}
	err := error(nil)
	if s.m.quantised {
		err = h.requantise(s.m, keep)
	} else {
		err = h.compact(s.m, keep)
	}
	if s.tiers != nil {
		s.touched(layer, first)
		err = errors.Join(err, s.trim(layer))
	}
	return err
}

// same is how many of the first indices stay where they are.
func same(keep []int) int {
	n := 0
	for n < len(keep) && keep[n] == n {
		n++
	}
	return n
}

// ownFrom makes the pages that hold the tokens first to end-1 writable and gives them new versions.
func (p *list) ownFrom(m *Manager, kind, first, end int) error {
	if m.inBlocks(kind) { // the whole layer was made writable
		for i := first / m.layout[kind].Tokens; i*m.layout[kind].Tokens < end; i++ {
			p.pages[i].Version = m.stamp()
		}
		return nil
	}
	t := m.layout[kind].Tokens
	for i := first / t; i*t < end; i++ {
		if m.slabs[kind].Shared(p.refs[i]) {
			if err := p.own(m, kind, i); err != nil {
				return err
			}
		} else {
			p.pages[i].Version = m.stamp()
		}
	}
	return nil
}

// runOf is how many of the first indices, at most limit, follow one another.
func runOf(keep []int, limit int) int {
	n := 1
	for n < limit && n < len(keep) && keep[n] == keep[0]+n {
		n++
	}
	return n
}

// compact moves the kept tokens of a cache of floats together, bit for bit.
func (h *head) compact(m *Manager, keep []int) error {
	p, l, first := &h.list[settled], m.layout[settled], same(keep)
	if err := p.ownFrom(m, settled, first, len(keep)); err != nil {
		return err
	}
	for to := first; to < len(keep); {
		from := keep[to]
		src, dst := &p.pages[from/l.Tokens], &p.pages[to/l.Tokens]
		n := runOf(keep[to:], kvpage.Tile-max(from%kvpage.Tile, to%kvpage.Tile))
		if !kvpage.MoveRun(l, dst.Data, to%l.Tokens, src.Data, from%l.Tokens, n) {
			panic("kvmanager: tokens of a quantised page were moved alone") // those go through requantise
		}
		copy(dst.Pos[to%l.Tokens:][:n], src.Pos[from%l.Tokens:][:n])
		copy(h.pos[to:to+n], h.pos[from:from+n])
		to += n
	}
	h.cutPositions(len(keep))
	p.resize(m, settled, len(keep))
	return nil
}

// cutPositions keeps the first n positions, in a list of its own where most went.
func (h *head) cutPositions(n int) {
	if h.pos = h.pos[:n]; cap(h.pos) > 2*n+64 {
		h.pos = slices.Clone(h.pos)
	}
}

// Truncate forgets every token whose position is not below next (rolling back a pass that was not accepted).
func (s *Sequence) Truncate(next int32) error {
	s.dropParked(next)
	if s.tiers != nil {
		return s.truncateBlocks(next)
	}
	for i := range s.heads {
		if err := s.cut(i, next); err != nil {
			return err
		}
	}
	return nil
}

// cut is Truncate of one layer and head.
func (s *Sequence) cut(i int, next int32) error {
	h := &s.heads[i]
	n := sort.Search(len(h.pos), func(j int) bool { return h.pos[j] >= next })
	switch {
	case n == h.tokens():
	case n >= h.list[settled].tokens && s.m.quantised:
		h.list[recent].resize(s.m, recent, n-h.list[settled].tokens)
		h.pos = h.pos[:n]
	case s.m.quantised:
		keep := make([]int, n)
		for j := range keep {
			keep[j] = j
		}
		return h.requantise(s.m, keep)
	default:
		h.list[settled].resize(s.m, settled, n)
		h.pos = h.pos[:n]
	}
	return nil
}

// Fork returns a sequence that shares every page with s; either copies a page when it first writes to it.
func (s *Sequence) Fork() (*Sequence, error) {
	if s.closed {
		return nil, fmt.Errorf("kvmanager: fork: %w", ErrClosed)
	}
	if len(s.parked) > 0 {
		return nil, fmt.Errorf("kvmanager: fork of a sequence with parked tokens: %w", ErrPlan)
	}
	f := s.m.NewSequence()
	for i := range s.heads {
		h := &s.heads[i]
		f.heads[i].pos = slices.Clone(h.pos)
		for kind := range kinds {
			p := &h.list[kind]
			f.heads[i].list[kind] = list{refs: slices.Clone(p.refs), pages: slices.Clone(p.pages), tokens: p.tokens}
			for _, r := range p.refs {
				s.m.slabs[kind].Ref(r)
			}
		}
	}
	if s.tiers != nil {
		return f, s.shareBlocks(f)
	}
	return f, nil
}

// Free gives back every page. A second call does nothing.
func (s *Sequence) Free() {
	if s.closed {
		return
	}
	s.closed = true
	s.dropParked(0)
	for i := range s.heads {
		for kind := range kinds {
			for _, p := range s.heads[i].list[kind].refs {
				s.m.drop(kind, p)
			}
		}
		s.heads[i] = head{}
	}
	s.freeBlocks()
	s.m.sequences--
}

// Release gives the memory of freed pages back to the system; called after an eviction that freed much.
func (m *Manager) Release() {
	for kind := range m.slabs {
		m.slabs[kind].Release()
	}
}
