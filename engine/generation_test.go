package engine

import (
	"slices"
	"strings"
	"testing"

	"terrace/engine/fakes"
	"terrace/model"
)

// TestGenerationSteps: requests that are driven by hand, all of them decoded together a step at a time, give the ids, the text
// in its pieces and the end that Session.Generate gives each alone.
func TestGenerationSteps(t *testing.T) {
	t.Parallel()
	e := small(t, Options{Threads: 2, Context: 150})
	plain := func(n int, seed uint64) Request {
		return Request{IDs: fakes.IDs(n, seed), MaxTokens: 40, Text: letters{}, Sampler: model.SamplerOptions{Temperature: 0.8, Seed: seed}}
	}
	alone := func(r Request) (*Result, []string) {
		t.Helper()
		var pieces []string
		r.OnText = func(piece string) error { pieces = append(pieces, piece); return nil }
		s, err := e.NewSession(nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		res, err := s.Generate(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		return res, pieces
	}
	long := [3]*Result{}
	for i := range long {
		long[i], _ = alone(plain(30+i, uint64(i)))
	}
	length := plain(30, 0)
	stops := plain(31, 1)
	stops.Stops = []string{"no such text", long[1].Text[20:24]}
	if at := strings.Index(long[1].Text, stops.Stops[1]); at < 5 {
		t.Fatalf("the stop string comes after %d letters: take another seed", at)
	}
	ends := plain(32, 2)
	end := long[2].IDs[25]
	ends.IsEnd = func(id int) bool { return id == end }
	full := plain(120, 3)
	full.MaxTokens, full.Sampler.Temperature = -1, 0
	requests := []Request{length, stops, ends, full}

	type run struct {
		s      *Session
		g      *Generation
		pieces []string
	}
	var runs, live []*run
	for _, r := range requests {
		x := &run{}
		r.OnText = func(piece string) error { x.pieces = append(x.pieces, piece); return nil }
		g, err := NewGeneration(r)
		if err != nil {
			t.Fatal(err)
		}
		x.g, x.s = g, opened(t, e, "full", r.IDs)
		runs = append(runs, x)
	}
	sizes := map[int]bool{}
	for live = slices.Clone(runs); len(live) > 0; {
		var sessions []*Session
		var ids []int
		var going []*run
		for _, x := range live {
			id, more, err := x.g.Step(x.s)
			if err != nil {
				t.Fatal(err)
			}
			if more && x.s.Tokens()+1 == e.Options().Context {
				x.g.End("context")
				more = false
			}
			if more {
				sessions, ids, going = append(sessions, x.s), append(ids, id), append(going, x)
			}
		}
		if live = going; len(live) > 0 {
			sizes[len(live)] = true
			if err := e.DecodeBatch(sessions, ids); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i, finish := range []string{"length", "stop", "stop", "context"} {
		want, pieces := alone(requests[i])
		got := runs[i].g.Result()
		if got.Text != want.Text || got.Finish != want.Finish || !slices.Equal(got.IDs, want.IDs) || got.PromptTokens != want.PromptTokens || !slices.Equal(runs[i].pieces, pieces) {
			t.Errorf("request %d: %q (%s, %v), alone %q (%s, %v)", i, got.Text, got.Finish, got.IDs, want.Text, want.Finish, want.IDs)
		}
		if got.Finish != finish || len(got.IDs) < 5 {
			t.Errorf("request %d ends with %s after %d tokens, want %s", i, got.Finish, len(got.IDs), finish)
		}
		if again := runs[i].g.Result(); again.Text != got.Text || len(runs[i].pieces) != len(pieces) {
			t.Errorf("request %d: Result hands text out twice", i)
		}
	}
	if !sizes[4] || len(sizes) < 3 {
		t.Errorf("batches of %v sessions: the requests did not end one after the other", sizes)
	}
}
