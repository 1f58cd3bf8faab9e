package kvmanager

import (
	"slices"

	"terrace/attention"
)

// encoding is how a sequence takes new tokens into its main pages and lets others go: floats at once and bit for bit, quantized
// tokens tile by tile, behind a window in full precision. It is chosen with the cache's layout.
type encoding interface {
	// incoming sets, a KV head, to how many tokens the main pages of a layer get when n more come.
	incoming(layer, n int, more []int)
	// together is how many of n more tokens of a layer may come at once, with main pages as they were if each came alone.
	together(layer, n int) int
	// reserve makes room for n more tokens beside the main pages; where it fails, unreserve takes away what is empty.
	reserve(layer, n int) error
	unreserve(layer int)
	// append takes tokens of a head into the room that was reserved; head.pos follows.
	append(layer, kvHead int, k []float32, kStride int, v []float32, vStride int, pos []int32)
	// settle moves tokens of an append that were to be read first to the main pages, where they have room.
	settle(layer, kvHead int)
	// keep drops all tokens of a head but those at the given indices, within an edit of the layer store; head.pos follows.
	keep(layer, kvHead int, keep []int) error
	// editKeys shows fn the keys of a head, some tokens at a time, and writes back what it makes of them, within an edit.
	editKeys(layer, kvHead int, fn func(from int, keys []float32)) error
	// renumber gives what lies beside a head's main pages, which are its own, the positions from first on.
	renumber(layer, kvHead int, first int32)
	// cut drops the tokens of a head from number n on; head.pos follows.
	cut(layer, kvHead, n int) error
	// rewrites is the first page of a layer that cutting positions from next on rewrites, if it rewrites any: then the cut is
	// within an edit.
	rewrites(layer int, next int32) (first int, ok bool)
	// movesTokens reports whether tokens can be put between others.
	movesTokens() bool
	// show adds what is beside the main pages to a view.
	show(layer, kvHead int, v *attention.View)
	// share gives a fork the same tokens.
	share(fork encoding)
	// bytes is what lies beside the main pages.
	bytes() int64
	// growth is how much more than bytes that becomes at most on the way to so many tokens, of which rows come to each layer at once.
	growth(rows, tokens int) int64
	free()
}

// floats is the encoding of f32, f16 and bf16: all tokens are in the main pages.
type floats struct{ s *Sequence }

func (f floats) incoming(_, n int, more []int) {
	for g := range more {
		more[g] = n
	}
}

func (f floats) together(_, n int) int { return n }

func (f floats) reserve(int, int) error { return nil }

func (f floats) growth(int, int) int64 { return 0 }

func (f floats) unreserve(int) {}

func (f floats) append(layer, kvHead int, k []float32, kStride int, v []float32, vStride int, pos []int32) {
	h := f.s.lists.at(layer, kvHead)
	h.main.append(f.s.m.main(layer), k, kStride, v, vStride, pos)
	h.pos = append(h.pos, pos...)
}

func (f floats) settle(int, int) {}

func (f floats) keep(layer, kvHead int, keep []int) error {
	if err := f.s.store.own(layer, kvHead, same(keep), len(keep)); err != nil {
		return err
	}
	f.s.lists.at(layer, kvHead).compact(f.s.m, f.s.m.main(layer), keep)
	return nil
}

func (f floats) editKeys(layer, kvHead int, fn func(from int, keys []float32)) error {
	main := &f.s.lists.at(layer, kvHead).main
	if err := f.s.store.own(layer, kvHead, 0, main.tokens); err != nil {
		return err
	}
	main.editKeys(f.s.m.main(layer), 0, fn)
	return nil
}

func (f floats) renumber(int, int, int32) {}

func (f floats) cut(layer, kvHead, n int) error {
	h := f.s.lists.at(layer, kvHead)
	h.main.cut(f.s.m, f.s.m.main(layer), n)
	h.pos = h.pos[:n]
	return nil
}

func (f floats) rewrites(int, int32) (int, bool) { return 0, false }

func (f floats) movesTokens() bool { return true }

func (f floats) show(int, int, *attention.View) {}

func (f floats) share(encoding) {}

func (f floats) bytes() int64 { return 0 }

func (f floats) free() {}

// codec is a cache's way to encode sequences.
type codec interface {
	// encode returns the encoding of a new sequence.
	encode(s *Sequence) encoding
	// split is how many of a sequence's tokens are in main pages and how many beside them.
	split(tokens int) (main, residual int)
}

// floatCodec makes floats.
type floatCodec struct{}

func (floatCodec) encode(s *Sequence) encoding { return floats{s} }

func (floatCodec) split(tokens int) (main, residual int) { return tokens, 0 }

// firstAtLeast is the number of tokens before a position, in ascending positions.
func firstAtLeast(pos []int32, next int32) int {
	n, _ := slices.BinarySearch(pos, next)
	return n
}
