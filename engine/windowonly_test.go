package engine

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"terrace/engine/fakes"
	"terrace/engine/tier"
	"terrace/internal/golden"
	"terrace/internal/kvpage"
	"terrace/policy"
)

// TestWindowOnly: sessions that keep of layers with a sliding window only what later rows read compute the same logits to the
// bit, in less memory, in floats and quantized, in host memory and on a tier; forks go on, and Rewind reads again.
func TestWindowOnly(t *testing.T) {
	t.Parallel()
	prompt, next := fakes.IDs(1500, 1), fakes.IDs(40, 2)
	for name, o := range map[string]Options{"f16": {}, "int8": {KVTypeSet: true, KType: kvpage.I8, VType: kvpage.I8, KVWindow: 64},
		"int3": {KVTypeSet: true, KType: kvpage.I3, VType: kvpage.I3, KVWindow: 64},
		"own":  {KVTypeSet: true, KType: kvpage.I4, VType: kvpage.I4, KVWindow: 64, KVOwn: []kvpage.Own{{Sliding: true, Elem: kvpage.I8}}},
		"ssd":  {Tiers: []tier.Tier{{Kind: tier.Host, CapacityBytes: 600 * 4096}, {Kind: tier.SSD, Place: t.TempDir(), CapacityBytes: 16 << 20}}}} {
		if name == "int3" && !golden.Thorough() {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o.Threads, o.ChunkTokens, o.Context = 2, 100, 2048
			all := windowed(t, o)
			want := forced(t, all, prompt, next)
			full := all.KV().PeakBytes
			if len(o.Tiers) > 0 {
				o.Tiers[1].Place = t.TempDir()
			}
			o.WindowOnly = true
			e := windowed(t, o)
			if got := forced(t, e, prompt, next); !slices.EqualFunc(got, want, slices.Equal[[]float32]) {
				t.Errorf("logits differ by %v", fakes.Worst(got, want))
			}
			if n := e.KV().PeakBytes; len(o.Tiers) == 0 && name != "int3" && n > full*6/10 { // a layer of 1,540 tokens and six of 612 and a page
				t.Errorf("%d bytes at most, %d without", n, full)
			}
			if n, most := e.KV().PeakBytes, KVBytes(e.Model(), e.Options(), len(prompt)+len(next)); name != "ssd" && (n > most || n < most*8/10) {
				t.Errorf("%d bytes at most, reckoned were %d", n, most)
			}
			if name == "f16" && (KVBytes(all.Model(), all.Options(), len(prompt)+len(next)) != full) {
				t.Errorf("%d bytes of everything, reckoned were %d", full, KVBytes(all.Model(), all.Options(), len(prompt)+len(next)))
			}
			s, err := e.NewSession(e.Policy())
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if err := s.Prefill(t.Context(), prompt, PrefillHooks{}); err != nil {
				t.Fatal(err)
			}
			f, err := s.Fork(s.Policy())
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			for i, id := range next {
				if err := errors.Join(s.Decode(id), f.Decode(id)); err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(s.Logits(), want[i+1]) || !slices.Equal(f.Logits(), want[i+1]) {
					t.Fatalf("step %d: a session or its fork differs", i)
				}
			}
			for _, n := range []int{1539, 1500, 700, 3} { // what is read again is read in chunks that may begin elsewhere
				if err := s.Rewind(n); err != nil {
					t.Fatal(fmt.Errorf("back to %d: %w", n, err))
				}
				if got := len(s.tokens); got != n {
					t.Errorf("back to %d: %d tokens", n, got)
				}
				again := slices.Concat(prompt, next)[n : 1500+len(next)]
				if err := s.Prefill(t.Context(), again, PrefillHooks{}); err != nil {
					t.Fatal(err)
				}
				if name == "f16" && n == 700 && !slices.Equal(s.Logits(), reference(t, all, slices.Concat(prompt, next), n)) {
					t.Errorf("back to %d: logits differ from those of a text that was cut there", n)
				}
			}
			if spec, err := policy.Parse("snapkv:budget=200"); err != nil {
				t.Fatal(err)
			} else if _, err := s.Fork(spec); !errors.Is(err, ErrOption) {
				t.Errorf("fork under a policy: %v", err)
			}
		})
	}
}

// reference is the logits after a text of which the first n tokens were read before the rest.
func reference(t *testing.T, e *Engine, ids []int, n int) []float32 {
	t.Helper()
	s, err := e.NewSession(e.Policy())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := errors.Join(s.Prefill(t.Context(), ids[:n], PrefillHooks{}), s.Prefill(t.Context(), ids[n:], PrefillHooks{})); err != nil {
		t.Fatal(err)
	}
	return s.Logits()
}
