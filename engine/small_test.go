package engine

import (
	"context"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"os"

	"terrace/internal/kernels/quant"
	"terrace/weights/convert"
)

// smallModel is a random llama of 3 layers, 4 heads over 2 KV heads of 32: made once a run.
var smallModel = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "terrace-engine-*")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "small.gguf")
	return path, convert.Synthesize(context.Background(), path, convert.Spec{Arch: "llama", Layers: 3, Hidden: 128, Heads: 4, KVHeads: 2, HeadDim: 32,
		FFN: 192, Vocab: 300, Context: 2048, Seed: 5}, convert.Options{Type: quant.Q8_0})
})

func small(t testing.TB, o Options) *Engine {
	t.Helper()
	path, err := smallModel()
	if err != nil {
		t.Fatal(err)
	}
	return openModel(t, path, o)
}

func TestMain(m *testing.M) {
	code := m.Run()
	for _, made := range []func() (string, error){smallModel, windowModel} {
		if path, err := made(); err == nil {
			os.RemoveAll(filepath.Dir(path))
		}
	}
	os.Exit(code)
}

func someIDs(n int, seed uint64) []int {
	rng := rand.New(rand.NewPCG(seed, 9))
	ids := make([]int, n)
	for i := range ids {
		ids[i] = rng.IntN(256)
	}
	return ids
}

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

// worst is the largest difference of two lists of logits.
func worst(a, b [][]float32) (d float32) {
	for i := range a {
		for j, x := range a[i] {
			d = max(d, x-b[i][j], b[i][j]-x)
		}
	}
	return d
}

// windowModel is a random gemma3 of 7 layers, the sixth global, the others with a window of 512.
var windowModel = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "terrace-engine-*")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "window.gguf")
	return path, convert.Synthesize(context.Background(), path, convert.Spec{Arch: "gemma3", Layers: 7, Hidden: 64, Heads: 2, KVHeads: 1, HeadDim: 32,
		FFN: 96, Vocab: 300, Context: 2048, Seed: 6}, convert.Options{Type: quant.Q8_0})
})

func windowed(t testing.TB, o Options) *Engine {
	t.Helper()
	path, err := windowModel()
	if err != nil {
		t.Fatal(err)
	}
	return openModel(t, path, o)
}
