package engine

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestKVComposeNeedsRoom: a second pass takes room for the prompt twice, no words.
func TestKVComposeNeedsRoom(t *testing.T) {
	t.Parallel()
	m := openFile(t, filepath.Join("testdata", "kvpress", "model"))
	ids := make([]int, 60)
	for i := range ids {
		ids[i] = (37*i + 5) % 221
	}
	for context, fits := range map[int]bool{119: false, 120: true} {
		e := openOn(t, m, Options{Exact: true, Threads: 1, Context: context, ChunkTokens: 16, Policy: "kvcompose:budget=25%"})
		s, err := e.NewSession(e.Policy())
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		switch err := s.Prefill(t.Context(), ids, PrefillHooks{}); {
		case fits && err != nil:
			t.Errorf("%d tokens: %v", context, err)
		case !fits && (!errors.Is(err, ErrContext) || !strings.Contains(err.Error(), "twice")):
			t.Errorf("%d tokens: %v", context, err)
		}
		if use := s.repeats; fits && use.Tokens != len(ids) {
			t.Errorf("the second pass read %d tokens, want %d", use.Tokens, len(ids))
		}
	}
}

// TestKVComposeAcrossPrompts: heads of a layer hold equally many tokens after a second prompt too, and the budget is that of the whole text.
func TestKVComposeAcrossPrompts(t *testing.T) {
	t.Parallel()
	m := openFile(t, filepath.Join("testdata", "kvpress", "model"))
	e := openOn(t, m, Options{Exact: true, Threads: 1, Policy: "kvcompose:budget=50%"})
	s, err := e.NewSession(e.Policy())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ids := make([]int, 100)
	for i := range ids {
		ids[i] = (37*i + 5) % 221
	}
	for _, prompt := range [][]int{ids[:60], ids[60:]} {
		before := slices.Clone(s.Positions(0, 0))
		if err := s.Prefill(t.Context(), prompt, PrefillHooks{}); err != nil {
			t.Fatal(err)
		}
		all := 0
		for layer := range m.Layers {
			if a, b := len(s.Positions(layer, 0)), len(s.Positions(layer, 1)); a != b {
				t.Errorf("layer %d: heads hold %d and %d tokens", layer, a, b)
			}
			all += len(s.Positions(layer, 0))
		}
		if want := m.Layers * s.Tokens() / 2; all != want || slices.Equal(before, s.Positions(0, 0)) {
			t.Errorf("%d tokens: layers hold %d together, want %d; the first %v", s.Tokens(), all, want, s.Positions(0, 0))
		}
	}
}
