package engine

import (
	"os"
	"slices"
	"testing"

	"terrace/engine/fakes"
)

func small(t testing.TB, o Options) *Engine {
	t.Helper()
	return openModel(t, fakes.Small(t), o)
}

func TestMain(m *testing.M) { os.Exit(fakes.Main(m)) }

// forced reads a prompt, then the given ids one a step, and returns the logits after the prompt and after each.
func forced(t testing.TB, e *Engine, prompt, next []int) [][]float32 {
	t.Helper()
	s, err := e.NewSession(e.Policy())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Prefill(t.Context(), prompt, PrefillHooks{}); err != nil {
		t.Fatal(err)
	}
	out := [][]float32{slices.Clone(s.Logits())}
	for _, id := range next {
		if err := s.Decode(id); err != nil {
			t.Fatal(err)
		}
		out = append(out, slices.Clone(s.Logits()))
	}
	return out
}

func windowed(t testing.TB, o Options) *Engine {
	t.Helper()
	return openModel(t, fakes.Windowed(t), o)
}
