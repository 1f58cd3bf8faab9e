package engine

import (
	"context"
	"errors"
	"testing"

	"terrace/engine/fakes"
)

// TestPromptsOnTiersPassByLayer: a prompt whose rows and two layers fit host memory goes down once and comes back never, under
// policies that read everything and such that select; with room for fewer rows it comes back once a section. No bit changes.
func TestPromptsOnTiersPassByLayer(t *testing.T) {
	prompt, next := fakes.IDs(600, 1), fakes.IDs(1, 2)
	for _, name := range []string{"full", "hillinfer:alpha=0.2,guess_from=1", "h2o:budget=200"} {
		o := Options{Threads: 1, ChunkTokens: 32, Policy: name}
		want := forced(t, small(t, o), prompt, next)
		all := int64(600 * small(t, o).KVBytesPerToken())
		for sections, rows := range map[int64]int64{1: 600, 3: 256} {
			o.Store = below(t, o)
			o.KVBudgetBytes = 4 * rows * 4 * int64(small(t, o).m.Hidden) // of which rows may take a quarter
			if name != "full" && sections > 1 {
				o.KVBudgetBytes = 700 << 10 // for what lies beside
			}
			e := small(t, o)
			s, err := e.NewSession(e.Policy())
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Prefill(t.Context(), prompt, PrefillHooks{}); err != nil {
				t.Fatal(err)
			}
			if back := o.Store.Stats().ReadBytes; back > (sections-1)*all {
				t.Errorf("%s: %d bytes of %d came back, which should do so %d times at most", name, back, all, sections-1)
			}
			if d := fakes.Worst(want[:1], [][]float32{s.Logits()}); d != 0 {
				t.Errorf("%s: logits differ by %g", name, d)
			}
			if e.KV().PeakBytes > o.KVBudgetBytes {
				t.Errorf("%s: %d bytes in host memory, the budget is %d", name, e.KV().PeakBytes, o.KVBudgetBytes)
			}
			s.Close()
			if in := e.KV().InUseBytes; in != e.retrieval.StoreBytes() {
				t.Errorf("%s: %d bytes are charged after the end", name, in)
			}
			e.Close()
		}
	}
}

// TestSectionsCancelled: a prompt that is cancelled between two layers leaves the session as it was, empty or not.
func TestSectionsCancelled(t *testing.T) {
	first, rest, next := fakes.IDs(128, 1), fakes.IDs(300, 2), fakes.IDs(4, 3)
	o := Options{Threads: 1, ChunkTokens: 32}
	want := forced(t, small(t, o), append(first, rest...), next)
	o.Store, o.KVBudgetBytes = below(t, o), 400*4096
	e := small(t, o)
	defer e.Close()
	s, err := e.NewSession(e.Policy())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for i, ids := range [][]int{first, rest} {
		ctx, cancel := context.WithCancel(t.Context())
		had := s.Tokens()
		err := s.Prefill(ctx, ids, PrefillHooks{Progress: func(int, int) { cancel() }})
		if !errors.Is(err, context.Canceled) || s.Tokens() != had {
			t.Fatalf("part %d: %v, %d tokens, want %d", i, err, s.Tokens(), had)
		}
		if err := s.Prefill(t.Context(), ids, PrefillHooks{}); err != nil {
			t.Fatal(err)
		}
	}
	got := [][]float32{append([]float32(nil), s.Logits()...)}
	for _, id := range next {
		if err := s.Decode(id); err != nil {
			t.Fatal(err)
		}
		got = append(got, append([]float32(nil), s.Logits()...))
	}
	if d := fakes.Worst(want, got); d != 0 {
		t.Errorf("logits differ by %g", d)
	}
}
