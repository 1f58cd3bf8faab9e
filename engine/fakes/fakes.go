// Package fakes is what tests of engine, and of what stands on it, share: small random models, ids and a measure of logits. It does
// not know the engine, whose own tests use it too.
package fakes

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"terrace/internal/kernels/quant"
	"terrace/weights/convert"
)

// IDs are n random ids of byte tokens.
func IDs(n int, seed uint64) []int {
	rng := rand.New(rand.NewPCG(seed, 9))
	ids := make([]int, n)
	for i := range ids {
		ids[i] = rng.IntN(256)
	}
	return ids
}

// Worst is the largest difference of two lists of logits.
func Worst(a, b [][]float32) (d float32) {
	for i := range a {
		for j, x := range a[i] {
			d = max(d, x-b[i][j], b[i][j]-x)
		}
	}
	return d
}

var (
	small    = made("small", convert.Spec{Arch: "llama", Layers: 3, Hidden: 128, Heads: 4, KVHeads: 2, HeadDim: 32, FFN: 192, Vocab: 300, Context: 2048, Seed: 5})
	windowed = made("window", convert.Spec{Arch: "gemma3", Layers: 7, Hidden: 64, Heads: 2, KVHeads: 1, HeadDim: 32, FFN: 96, Vocab: 300, Context: 2048, Seed: 6})
	experts  = made("experts", convert.Spec{Arch: "gpt-oss", Layers: 2, Hidden: 64, Heads: 2, KVHeads: 1, HeadDim: 32, FFN: 96, Vocab: 300, Context: 2048, Seed: 7, SpecExperts: convert.SpecExperts{Experts: 8, ExpertsUsed: 2, ExpertFFN: 64}})
)

// made writes a model of random weights once a run.
func made(name string, s convert.Spec) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		dir, err := os.MkdirTemp("", "terrace-engine-*")
		if err != nil {
			return "", err
		}
		path := filepath.Join(dir, name+".gguf")
		return path, convert.Synthesize(context.Background(), path, s, convert.Options{Type: quant.Q8_0})
	})
}

// Small is a file of a random llama of 3 layers, 4 heads over 2 KV heads of 32.
func Small(t testing.TB) string { return pathOf(t, small) }

// Windowed is a file of a random gemma3 of 7 layers, the sixth global, the others with a window of 512.
func Windowed(t testing.TB) string { return pathOf(t, windowed) }

// Experts is a file of a random gpt-oss of 2 layers, a token by 2 of 8 experts.
func Experts(t testing.TB) string { return pathOf(t, experts) }

func pathOf(t testing.TB, made func() (string, error)) string {
	t.Helper()
	path, err := made()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Main runs a package's tests and removes what they made.
func Main(m *testing.M) int {
	code := m.Run()
	for _, made := range []func() (string, error){small, windowed, experts} {
		if path, err := made(); err == nil {
			os.RemoveAll(filepath.Dir(path))
		}
	}
	return code
}
