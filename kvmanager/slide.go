package kvmanager

import (
	"fmt"
	"math"
	"slices"

	"terrace/internal/kernels"
)

// Slide frees the pages of layers with a sliding window that no row from position next on reads: those that
// lie wholly before its window, as far as they fill blocks of attention. What is read stays as it is, to the bit. Afterwards Truncate to a position below next may be
// refused (ErrSlid). Nothing may be on its way into these layers (AppendLater), and token indices are those of what is left.
func (s *Sequence) Slide(next int32) {
	if s.closed {
		return
	}
	for layer := range s.m.layers {
		window := s.m.sliding(layer)
		if low := next - int32(window) + 1; window > 0 && low > 0 {
			s.slideLayer(layer, low, int32(window))
		}
	}
}

// slideTokens is what goes at once: whole pages, and whole blocks of attention, which are counted from the first token of a view.
// So the blocks that rows see stay the same, and their sums are added in the same order.
func slideTokens(pageTokens int) int {
	n := pageTokens
	for n%kernels.BlockTokens != 0 {
		n += pageTokens
	}
	return n
}

// SlidingTokens is the most tokens that a layer with a sliding window holds while a sequence that is slid after each pass reads on,
// rows at a time, in pages of pageTokens.
func SlidingTokens(window, rows, pageTokens int) int {
	n := window - 1 + slideTokens(pageTokens) - 1 + rows
	return (n + pageTokens - 1) / pageTokens * pageTokens
}

// slideLayer frees the pages of a layer whose tokens all lie before a position, in every head.
func (s *Sequence) slideLayer(layer int, low, window int32) {
	t, heads, tokens := s.m.o.Layout.Tokens, s.m.heads(layer), math.MaxInt
	for g := range heads {
		h := s.lists.at(layer, g)
		tokens = min(tokens, firstAtLeast(h.pos, low), h.main.tokens)
	}
	n := tokens / slideTokens(t) * slideTokens(t) / t
	if n == 0 {
		return
	}
	last := int32(-1)
	if n = s.store.drop(layer, n, slideTokens(t)/t); n == 0 {
		return
	}
	for g := range heads {
		h := s.lists.at(layer, g)
		last = max(last, h.pos[n*t-1])
		h.main.pages = slices.Delete(h.main.pages, 0, n)
		h.main.tokens -= n * t
		h.pos = slices.Delete(h.pos, 0, n*t)
	}
	s.slid = max(s.slid, last+window)
}

// reaches refuses a cut after which rows would read what slid away. Nothing is left of a cut to 0, so it is always possible.
func (s *Sequence) reaches(next int32) error {
	if next > 0 && next < s.slid {
		return fmt.Errorf("kvmanager: truncating to position %d, layers with a sliding window have what is read from position %d on: %w", next, s.slid, ErrSlid)
	}
	return nil
}
