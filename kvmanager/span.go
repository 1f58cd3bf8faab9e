package kvmanager

import (
	"fmt"

	"terrace/internal/kvpage"
)

// Span is tokens of one layer and KV head as they lie in pages: what outlives a sequence, and comes back bit for bit.
type Span struct {
	Pos  []int32 // positions, ascending
	Data []byte  // of the pages that hold them, whole; the last one may have room
}

// MainTokens is how many tokens of a layer and KV head lie in the main pages: all of them but a quantized cache's window.
func (s *Sequence) MainTokens(layer, kvHead int) int { return s.lists.at(layer, kvHead).main.tokens }

// MainOf is how many of a sequence's first tokens lie in main pages once that many were appended.
func (m *Manager) MainOf(tokens int) int {
	main, _ := m.codec.split(tokens)
	return main
}

// RecentFormat is the layout of the pages that AppendRecent copies (a quantized cache's window) but for the widths, which are each
// layer's: the window of a layer with a type of its own is f16 too.
func (m *Manager) RecentFormat() kvpage.Layout { return WindowFormat() }

// WindowFormat is RecentFormat of any cache.
func WindowFormat() kvpage.Layout {
	return kvpage.Layout{K: kvpage.F16, V: kvpage.F16, Tokens: kvpage.Tile}
}

// AppendMain appends the pages of the main tokens from to to-1 of a layer and KV head to data and returns their positions, which
// are the sequence's own. from is a page's first token, and so is to, unless it is the end. The layer must be readable (Acquire).
func (s *Sequence) AppendMain(data []byte, layer, kvHead, from, to int) ([]byte, []int32, error) {
	h, l := s.lists.at(layer, kvHead), s.m.main(layer)
	if s.closed || from < 0 || to < from || to > h.main.tokens || from%l.Tokens != 0 || to%l.Tokens != 0 && to != h.main.tokens {
		return data, nil, fmt.Errorf("kvmanager: tokens %d to %d of layer %d head %d, which has %d in pages of %d: %w", from, to, layer, kvHead, h.main.tokens, l.Tokens, ErrPlan)
	}
	for i := from / l.Tokens; i*l.Tokens < to; i++ {
		if h.main.pages[i].Data == nil {
			return data, nil, fmt.Errorf("kvmanager: page %d of layer %d head %d is not in memory: %w", i, layer, kvHead, ErrPlan)
		}
		data = append(data, h.main.pages[i].Data[:l.PageBytes()]...)
	}
	return data, h.pos[from:to], nil
}

// AppendRecent appends the pages of a quantized cache's window to data; there are none in a cache of floats.
func (s *Sequence) AppendRecent(data []byte, layer, kvHead int) ([]byte, []int32, error) {
	e, ok := s.enc.(*quantized)
	if !ok {
		return data, nil, nil
	}
	w := e.at(layer, kvHead)
	for i := range w.pages {
		data = append(data, w.pages[i].Data...)
	}
	h := s.lists.at(layer, kvHead)
	return data, h.pos[h.main.tokens:], nil
}

// Restore appends tokens to a layer as AppendMain and AppendRecent gave them: main[g] behind the main tokens of a head, then
// recent[g], where not nil, as its window. Until the window is there the layer must have none. What does not fit together is
// ErrPlan, no room ErrBudget; then the sequence is to be freed.
func (s *Sequence) Restore(layer int, main, recent []Span) error {
	if s.closed {
		return fmt.Errorf("kvmanager: restore: %w", ErrClosed)
	}
	l, heads := s.m.main(layer), s.m.heads(layer)
	if len(main) != heads || recent != nil && len(recent) != heads {
		return fmt.Errorf("kvmanager: restore of %d heads, want %d: %w", len(main), heads, ErrPlan)
	}
	more := s.lists.counts(layer)
	first := 1 << 30
	for g := range main {
		h := s.lists.at(layer, g)
		if more[g] = 0; len(main[g].Pos)+len(main[g].Data) == 0 {
			continue
		}
		if h.main.tokens%l.Tokens != 0 || len(h.pos) != h.main.tokens || !follows(h.pos, main[g].Pos) || len(main[g].Data) != pagesOf(len(main[g].Pos), l.Tokens)*l.PageBytes() {
			return fmt.Errorf("kvmanager: restore of %d tokens in %d bytes behind %d of layer %d head %d: %w", len(main[g].Pos), len(main[g].Data), len(h.pos), layer, g, ErrPlan)
		}
		more[g] = len(main[g].Pos)
		first = min(first, h.main.tokens/l.Tokens)
	}
	if err := s.store.reserve(layer, more); err != nil {
		return err
	}
	for g := range main {
		h := s.lists.at(layer, g)
		if more[g] == 0 {
			continue
		}
		h.main.restore(l, main[g])
		h.pos = append(h.pos, main[g].Pos...)
	}
	s.store.appended(layer, first)
	if recent == nil {
		return nil
	}
	return s.restoreRecent(layer, recent)
}

// restoreRecent fills the windows of a quantized cache.
func (s *Sequence) restoreRecent(layer int, recent []Span) error {
	l := *s.m.recent(layer)
	for g, span := range recent {
		if len(span.Pos) == 0 {
			continue
		}
		e, ok := s.enc.(*quantized)
		h := s.lists.at(layer, g)
		if !ok || !follows(h.pos, span.Pos) || len(span.Data) != pagesOf(len(span.Pos), l.Tokens)*l.PageBytes() {
			return fmt.Errorf("kvmanager: restore of a window of %d tokens in %d bytes, layer %d head %d: %w", len(span.Pos), len(span.Data), layer, g, ErrPlan)
		}
		w := e.at(layer, g)
		if err := w.owned.reserve(&w.list, len(span.Pos)); err != nil {
			return err
		}
		w.restore(&l, span)
		h.pos = append(h.pos, span.Pos...)
	}
	return nil
}

// restore copies whole pages into reserved ones behind the list's last, which is full.
func (p *list) restore(l *kvpage.Layout, span Span) {
	n, at := l.PageBytes(), p.tokens/l.Tokens
	for i := 0; i*n < len(span.Data); i++ {
		copy(p.pages[at+i].Data[:n], span.Data[i*n:(i+1)*n])
	}
	p.count(l, span.Pos)
}

func pagesOf(tokens, pageTokens int) int { return (tokens + pageTokens - 1) / pageTokens }

// follows reports whether positions ascend strictly, from past the last of those before.
func follows(have, pos []int32) bool {
	last := int32(-1)
	if len(have) > 0 {
		last = have[len(have)-1]
	}
	for _, p := range pos {
		if p <= last {
			return false
		}
		last = p
	}
	return true
}
