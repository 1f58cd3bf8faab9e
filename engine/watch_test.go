package engine

import (
	"slices"
	"testing"

	"terrace/engine/fakes"
	"terrace/policy"
)

// TestWatch: a policy that sums up all of the prompt's queries gives the same logits where another session read the beginning
// of the prompt for it and let it watch, bit for bit; without that they are others. One fork takes what one call began.
func TestWatch(t *testing.T) {
	t.Parallel()
	prompt, next := fakes.IDs(200, 1), fakes.IDs(5, 2)
	o := Options{Threads: 2, ChunkTokens: 48, Calibration: fakes.IDs(100, 3)}
	spec, err := policy.Parse("infinigen:budget=20,alpha=1,partial=0.25,dense_layers=0")
	if err != nil {
		t.Fatal(err)
	}
	alone := o
	alone.Policy = spec.String()
	want := forced(t, small(t, alone), prompt, next)
	e := small(t, o)
	if rows, ok := e.OwnRows(spec); !ok {
		t.Fatalf("%d rows of its own, %v", rows, ok)
	}
	s, err := e.NewSession(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Watch(spec); err != nil {
		t.Fatal(err)
	}
	if err := s.Prefill(t.Context(), prompt[:150], PrefillHooks{}); err != nil {
		t.Fatal(err)
	}
	if err := s.Watch(spec); err == nil {
		t.Error("a policy watches a session of 150 tokens")
	}
	for i, same := range []bool{true, false} { // the second fork has seen the last 50 rows alone
		f, err := s.Fork(spec)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Prefill(t.Context(), prompt[150:], PrefillHooks{}); err != nil {
			t.Fatal(err)
		}
		equal := slices.Equal(f.Logits(), want[0])
		for k, id := range next {
			if err := f.Decode(id); err != nil {
				t.Fatal(err)
			}
			equal = equal && slices.Equal(f.Logits(), want[k+1])
		}
		f.Close()
		if equal != same {
			t.Errorf("fork %d: equal logits %v, want %v", i, equal, same)
		}
	}
}
