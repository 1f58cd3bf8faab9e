package engine

import (
	"errors"
	"slices"
	"testing"

	"terrace/engine/fakes"
	"terrace/model"
)

// TestMinTokens: end tokens are not chosen before MinTokens; the token is the likeliest of the others.
func TestMinTokens(t *testing.T) {
	prompt := fakes.IDs(20, 40)
	for _, policy := range []string{"full", "h2o:budget=8"} {
		e := small(t, Options{Threads: 1, Policy: policy})
		free, err := e.Generate(t.Context(), Request{IDs: prompt, MaxTokens: 1})
		if err != nil {
			t.Fatal(err)
		}
		ends := []int{free.IDs[0], 3, 5}
		isEnd := func(id int) bool { return slices.Contains(ends, id) }
		s, err := e.NewSession(e.Policy())
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Prefill(t.Context(), prompt, PrefillHooks{}); err != nil {
			t.Fatal(err)
		}
		var want []int
		for len(want) < 9 {
			best := -1
			for id, v := range s.Logits() {
				if (len(want) >= 4 || !isEnd(id)) && (best < 0 || v > s.Logits()[best]) {
					best = id
				}
			}
			if isEnd(best) {
				break
			}
			want = append(want, best)
			if err := s.Decode(best); err != nil {
				t.Fatal(err)
			}
		}
		s.Close()
		for min, want := range map[int][]int{0: nil, 4: want} {
			res, err := e.Generate(t.Context(), Request{IDs: prompt, MaxTokens: 9, MinTokens: min, IsEnd: isEnd})
			if err != nil || !slices.Equal(res.IDs, want) {
				t.Errorf("%s: at least %d tokens: %v, want %v (%v)", policy, min, res.IDs, want, err)
			}
		}
		for _, temperature := range []float64{0, 1} {
			_, err = e.Generate(t.Context(), Request{IDs: prompt, MaxTokens: 9, MinTokens: 1, IsEnd: func(int) bool { return true },
				Sampler: model.SamplerOptions{Temperature: temperature, MinP: 0.1}})
			if !errors.Is(err, ErrOption) {
				t.Errorf("%s: all tokens are end tokens: %v, want ErrOption", policy, err)
			}
		}
	}
}

// TestBatchErrorsAreTheSessionsOwn: where all sessions of a step fail for reasons of their own each has its own error.
func TestBatchErrorsAreTheSessionsOwn(t *testing.T) {
	e := small(t, Options{Threads: 1, Context: 12})
	var sessions []*Session
	for range 2 {
		s, err := e.NewSession(nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if err := s.Prefill(t.Context(), fakes.IDs(12, 41), PrefillHooks{}); err != nil {
			t.Fatal(err)
		}
		sessions = append(sessions, s)
	}
	err := e.DecodeBatch(sessions, []int{7, 7})
	if batch := (*BatchError)(nil); errors.As(err, &batch) || !errors.Is(err, ErrContext) {
		t.Errorf("one reason: %v", err)
	}
	sessions[0].past.Lost, sessions[0].past.Reads[0].Mixed = true, true
	err = e.DecodeBatch(sessions, []int{7, 7})
	batch := (*BatchError)(nil)
	if !errors.As(err, &batch) || !errors.Is(batch.Errors[0], ErrTier) || errors.Is(batch.Errors[0], ErrContext) || !errors.Is(batch.Errors[1], ErrContext) {
		t.Errorf("two reasons: %v", err)
	}
}
