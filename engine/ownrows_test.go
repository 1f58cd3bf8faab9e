package engine

import (
	"slices"
	"testing"

	"terrace/engine/fakes"
	"terrace/internal/kvpage"
)

// TestChunkReadsItselfInF16: a prompt of one chunk has the logits of an f16 cache, to the bit, whatever its keys and values are kept as
// afterwards; one of two chunks has not, and where tokens leave the window from chunk to chunk as from token to token.
func TestChunkReadsItselfInF16(t *testing.T) {
	t.Parallel()
	const chunk = 160
	logits := func(n int, o Options) []float32 {
		o.Threads, o.ChunkTokens, o.KVTypeSet = 2, chunk, true
		o.Rotate = RotateNone
		e := small(t, o)
		s, err := e.NewSession(nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if err := s.Prefill(t.Context(), fakes.IDs(n, 8), PrefillHooks{}); err != nil {
			t.Fatal(err)
		}
		if got, want := s.Sequence().Bytes(), e.kv.BytesFor(n); got != want {
			t.Errorf("%v keys, %d tokens: %d bytes behind the prompt, want %d", o.KType, n, got, want)
		}
		return slices.Clone(s.Logits())
	}
	for _, e := range []kvpage.Elem{kvpage.I8, kvpage.I4, kvpage.I3, kvpage.I2} {
		for _, window := range []int{0, 20} {
			o := Options{KType: e, VType: e, KVWindow: window, KVWindowSet: true}
			if !slices.Equal(logits(chunk, o), logits(chunk, Options{KType: kvpage.F16, VType: kvpage.F16})) {
				t.Errorf("%v, window %d: a chunk reads itself otherwise than in f16", e, window)
			}
			if slices.Equal(logits(2*chunk, o), logits(2*chunk, Options{KType: kvpage.F16, VType: kvpage.F16})) {
				t.Errorf("%v, window %d: a second chunk reads the first as if nothing were quantised", e, window)
			}
		}
	}
}
