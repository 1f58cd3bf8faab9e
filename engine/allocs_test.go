package engine

import (
	"testing"

	"terrace/engine/fakes"
)

// TestSelectionAllocatesNothing: a decode step allocates nothing, one under a selecting policy no more than a page's list now
// and then.
func TestSelectionAllocatesNothing(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates on its own")
	}
	allocs := func(spec string) float64 {
		e := small(t, Options{Threads: 2, Policy: spec, Context: 2048})
		s, err := e.NewSession(e.Policy())
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if err := s.Prefill(t.Context(), fakes.IDs(600, 30), PrefillHooks{}); err != nil {
			t.Fatal(err)
		}
		step := func() {
			if err := s.Decode(7); err != nil {
				t.Fatal(err)
			}
		}
		for range 40 {
			step()
		}
		return testing.AllocsPerRun(60, step)
	}
	full := allocs("full")
	if full != 0 {
		t.Errorf("full: %g allocations a step, want 0", full)
	}
	for _, spec := range []string{"quest:budget=64", "topk:budget=64", "topk:budget=64,score=int4", "sparq:budget=64", "leoam:budget=64", "oracle:budget=64"} {
		if n := allocs(spec); n > full+1 || n > 6 { // pages and tiles are added now and then
			t.Errorf("%s: %g allocations a step, full has %g", spec, n, full)
		} else {
			t.Logf("%s: %g allocations a step, full %g", spec, n, full)
		}
	}
}
