package kvmanager

import (
	"fmt"
	"slices"

	"terrace/attention"
	"terrace/internal/kvpage"
)

// Sequence is one text's KV: for each layer and KV head a list of pages in token order.
type Sequence struct {
	m      *Manager
	heads  []head // [layer·KVHeads + head]
	views  []attention.View
	closed bool
}

// head is the cache of one layer and KV head.
type head struct {
	refs   []pageRef
	pages  []attention.Page // the same pages as attention reads them; the last one may have room
	pos    []int32          // the positions of all tokens, as PositionList shows them
	tokens int
}

// NewSequence returns an empty sequence.
func (m *Manager) NewSequence() *Sequence {
	m.sequences++
	n := m.o.Layers * m.o.KVHeads
	return &Sequence{m: m, heads: make([]head, n), views: make([]attention.View, n)}
}

// at returns the cache of a layer and head.
func (s *Sequence) at(layer, kvHead int) *head { return &s.heads[layer*s.m.o.KVHeads+kvHead] }

// Tokens is the number of tokens that a layer and head hold.
func (s *Sequence) Tokens(layer, kvHead int) int { return s.at(layer, kvHead).tokens }

// PositionList is the positions that a layer and head hold, in token order; it is the sequence's own and holds until the
// sequence changes.
func (s *Sequence) PositionList(layer, kvHead int) []int32 { return s.at(layer, kvHead).pos }

// Views are the layer's KV, one view a head, valid until the sequence changes.
func (s *Sequence) Views(layer int) []attention.View {
	g := s.m.o.KVHeads
	out := s.views[layer*g : (layer+1)*g]
	for i := range out {
		out[i] = attention.View{Layout: s.m.o.Layout, Pages: s.at(layer, i).pages}
	}
	return out
}

// Bytes is what the sequence's pages hold, shared ones included.
func (s *Sequence) Bytes() int64 {
	n := 0
	for i := range s.heads {
		n += len(s.heads[i].refs)
	}
	return int64(n) * int64(s.m.o.Layout.PageBytes())
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
	for g := range o.KVHeads {
		s.at(layer, g).append(s.m, k[g*o.Layout.KeyDim:], o.KVHeads*o.Layout.KeyDim, v[g*o.Layout.ValueDim:], o.KVHeads*o.Layout.ValueDim, pos)
	}
	return nil
}

// reserve makes room for n more tokens in every head of a layer, or changes nothing.
func (s *Sequence) reserve(layer, n int) error {
	g := s.m.o.KVHeads
	for i := range g {
		if err := s.at(layer, i).reserve(s.m, n); err != nil {
			for j := range g {
				s.at(layer, j).unreserve(s.m)
			}
			return err
		}
	}
	return nil
}

func (h *head) reserve(m *Manager, n int) error {
	t := m.o.Layout.Tokens
	if last := len(h.pages) - 1; last >= 0 && h.pages[last].N < t && m.slabs.shared(h.refs[last]) {
		if err := h.own(m, last); err != nil { // invariant 3
			return err
		}
	}
	for len(h.pages)*t-h.tokens < n {
		p, err := m.take()
		if err != nil {
			return err
		}
		h.refs = append(h.refs, p)
		h.pages = append(h.pages, attention.Page{Data: m.slabs.data(p), Pos: m.slabs.positions(p)})
	}
	return nil
}

// unreserve gives back empty pages at the end.
func (h *head) unreserve(m *Manager) {
	for i := len(h.pages) - 1; i >= 0 && h.pages[i].N == 0; i-- {
		m.drop(h.refs[i])
		h.refs, h.pages = h.refs[:i], h.pages[:i]
	}
}

// own replaces a shared page by a copy (invariant 3).
func (h *head) own(m *Manager, i int) error {
	p, err := m.take()
	if err != nil {
		return err
	}
	old := h.pages[i]
	copy(m.slabs.data(p), old.Data)
	copy(m.slabs.positions(p), old.Pos)
	m.drop(h.refs[i])
	h.refs[i] = p
	h.pages[i] = attention.Page{Data: m.slabs.data(p), Pos: m.slabs.positions(p), N: old.N}
	return nil
}

// append writes rows into the reserved room; tokens are dense, so token i lies in page i/Tokens.
func (h *head) append(m *Manager, k []float32, kStride int, v []float32, vStride int, pos []int32) {
	l, done := m.o.Layout, 0
	at := h.tokens / l.Tokens
	for done < len(pos) {
		p := &h.pages[at]
		n := min(l.Tokens-p.N, len(pos)-done)
		attention.Append(l, p.Data, p.N, n, k[done*kStride:], kStride, v[done*vStride:], vStride)
		copy(p.Pos[p.N:], pos[done:done+n])
		p.N += n
		done += n
		at++
	}
	h.tokens += len(pos)
	h.pos = append(h.pos, pos...)
}

// Keep drops every token of a layer and head but those at the given indices (ascending, in token order) and frees the pages
// that become empty. The bytes of kept tokens do not change.
func (s *Sequence) Keep(layer, kvHead int, keep []int) error {
	h, l := s.at(layer, kvHead), s.m.o.Layout
	for i, x := range keep {
		if x < 0 || x >= h.tokens || (i > 0 && x <= keep[i-1]) {
			return fmt.Errorf("kvmanager: keep index %d at %d of layer %d head %d with %d tokens: %w", x, i, layer, kvHead, h.tokens, ErrPlan)
		}
	}
	if len(keep) == h.tokens {
		return nil
	}
	if l.K.Quantised() {
		return fmt.Errorf("kvmanager: dropping single tokens of %v keys: %w", l.K, ErrUnsupported)
	}
	unchanged := 0
	for unchanged < len(keep) && keep[unchanged] == unchanged {
		unchanged++
	}
	first := unchanged / l.Tokens
	if need := (len(keep) + l.Tokens - 1) / l.Tokens; first < need {
		for i := first; i < need; i++ {
			if s.m.slabs.shared(h.refs[i]) {
				if err := h.own(s.m, i); err != nil {
					return err
				}
			}
		}
	}
	for to := unchanged; to < len(keep); to++ {
		src, dst := &h.pages[keep[to]/l.Tokens], &h.pages[to/l.Tokens]
		if !kvpage.Move(l, dst.Data, to%l.Tokens, src.Data, keep[to]%l.Tokens) {
			panic("kvmanager: a token of a quantised page was moved alone") // refused above
		}
		dst.Pos[to%l.Tokens] = src.Pos[keep[to]%l.Tokens]
		h.pos[to] = h.pos[keep[to]]
	}
	h.pos = h.pos[:len(keep)]
	for i := range h.pages {
		h.pages[i].N = max(0, min(l.Tokens, len(keep)-i*l.Tokens))
	}
	h.tokens = len(keep)
	h.unreserve(s.m)
	return nil
}

// Truncate keeps the first n tokens of every layer and head (rolling back a pass that was not accepted).
func (s *Sequence) Truncate(n int) {
	t := s.m.o.Layout.Tokens
	for i := range s.heads {
		h := &s.heads[i]
		if h.tokens <= n {
			continue
		}
		for j := range h.pages {
			h.pages[j].N = max(0, min(h.pages[j].N, n-j*t))
		}
		h.tokens, h.pos = n, h.pos[:n]
		h.unreserve(s.m)
	}
}

// Fork returns a sequence that shares every page with s; either copies a page when it first writes to it.
func (s *Sequence) Fork() (*Sequence, error) {
	if s.closed {
		return nil, fmt.Errorf("kvmanager: fork: %w", ErrClosed)
	}
	f := s.m.NewSequence()
	for i := range s.heads {
		h := &s.heads[i]
		f.heads[i] = head{refs: slices.Clone(h.refs), pages: slices.Clone(h.pages), pos: slices.Clone(h.pos), tokens: h.tokens}
		for _, p := range h.refs {
			s.m.slabs.ref(p)
		}
	}
	return f, nil
}

// Free gives back every page. A second call does nothing.
func (s *Sequence) Free() {
	if s.closed {
		return
	}
	s.closed = true
	for i := range s.heads {
		for _, p := range s.heads[i].refs {
			s.m.drop(p)
		}
		s.heads[i] = head{}
	}
	s.m.sequences--
}

// Release gives the memory of freed pages back to the system; called after an eviction that freed much.
func (m *Manager) Release() { m.slabs.release() }
