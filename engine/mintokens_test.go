package engine

import (
	"errors"
	"slices"
	"strings"
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

// TestStopIDs: ids that end a text end it where end tokens are ignored too, not before MinTokens, and stop strings wait where they are held.
func TestStopIDs(t *testing.T) {
	prompt := fakes.IDs(20, 40)
	e := small(t, Options{Threads: 1, Policy: "full"})
	run := func(r Request) *Result {
		t.Helper()
		r.IDs, r.MaxTokens, r.Text = prompt, 12, letters{}
		res, err := e.Generate(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	free := run(Request{})
	at := 3 // the first place of its id
	for slices.Contains(free.IDs[:at], free.IDs[at]) {
		at++
	}
	stop := []int{free.IDs[at]}
	for name, r := range map[string]Request{"alone": {StopIDs: stop}, "end tokens ignored": {StopIDs: stop, IgnoreEOS: true, IsEnd: func(id int) bool { return id == free.IDs[1] }}} {
		if res := run(r); !slices.Equal(res.IDs, free.IDs[:at]) || res.Finish != "stop" {
			t.Errorf("%s: %v %s, want %v", name, res.IDs, res.Finish, free.IDs[:at])
		}
	}
	for name, r := range map[string]Request{"stop ids": {StopIDs: stop, MinTokens: at + 1}, "ends too": {StopIDs: stop, MinTokens: at + 1, IsEnd: func(id int) bool { return id == free.IDs[0] }}} {
		res := run(r)
		if len(res.IDs) < at+1 || slices.Contains(res.IDs[:at+1], stop[0]) || r.IsEnd != nil && slices.Contains(res.IDs[:at+1], free.IDs[0]) || r.IsEnd == nil && !slices.Equal(res.IDs[:at], free.IDs[:at]) {
			t.Errorf("%s, at least %d tokens: %v", name, at+1, res.IDs)
		}
	}
	text := free.Text
	if res := run(Request{Stops: []string{text[2:3]}, MinTokens: 4, HoldStops: true}); !strings.HasPrefix(res.Text, text[:4]) {
		t.Errorf("%q, want the first four of %q whatever stops it", res.Text, text)
	}
	if res := run(Request{Stops: []string{text[2:5]}, MinTokens: 4, HoldStops: true}); res.Text != text[:2] {
		t.Errorf("%q, want %q: the stop string ends behind the fourth token", res.Text, text[:2])
	}
}
