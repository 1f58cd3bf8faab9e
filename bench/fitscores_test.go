package bench

import (
	"context"
	"errors"
	"math"
	"path/filepath"
	"testing"

	"terrace/engine"
	"terrace/engine/scorefit"
	"terrace/internal/kernels/quant"
	"terrace/model"
	"terrace/weights"
	"terrace/weights/convert"
)

// fitEngine is a small model of an architecture under the words of a second pass.
func fitEngine(t *testing.T, arch string) *engine.Engine {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.gguf")
	spec := convert.Spec{Arch: arch, Layers: 6, Hidden: 32, Heads: 4, KVHeads: 2, HeadDim: 8, FFN: 48, Vocab: 300, Context: 512, Seed: 9}
	spec.SetDefaults()
	if err := convert.Synthesize(t.Context(), path, spec, convert.Options{Type: quant.F32}); err != nil {
		t.Fatal(err)
	}
	f, err := weights.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.Open(f)
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.Open(m, engine.Options{Threads: 1, Exact: true, Repeat: &engine.RepeatText{First: []int{5, 6}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close(); f.Close() })
	return e
}

// TestFitScores: maps of all layers that policies act on foretell held tokens better than their mean, are the same whatever the threads,
// and the others' are zeros of the model's width.
func TestFitScores(t *testing.T) {
	ids := make([]int, 1300)
	for i := range ids {
		ids[i] = 10 + (i*i/7+i)%40 // few words, so that rows tell them apart
	}
	for arch, acting := range map[string]int{"llama": 6, "gemma3": 1} {
		e := fitEngine(t, arch)
		var maps [2]*Fitted
		for i := range maps {
			o := FitOptions{Chunk: 64, Sample: 40, Threads: 1 + 2*i, Train: scorefit.Options{Seed: 3}}
			steps := 0
			o.Done = func(chunks, of, layers int) { steps++ }
			f, err := FitScores(t.Context(), e, ids, o)
			if err != nil {
				t.Fatal(err)
			}
			if f.Tokens != 19*40 || f.Held != 40 || steps != 20+acting {
				t.Errorf("%s: %d tokens, %d held, %d steps", arch, f.Tokens, f.Held, steps)
			}
			maps[i] = f
		}
		have, mean := 0, 0.0
		for layer := range maps[0].Map.Layers {
			a, b := &maps[0].Map.Layers[layer], &maps[1].Map.Layers[layer]
			if a.In != 32 || a.Heads != 2 || a.Out[5] != b.Out[5] {
				t.Errorf("%s, layer %d: %d to %d, %g and %g", arch, layer, a.In, a.Heads, a.Out[5], b.Out[5])
			}
			if math.IsNaN(maps[0].R2[layer]) {
				if a.Out[5] != 0 {
					t.Errorf("%s: layer %d, which no policy acts on, has a map", arch, layer)
				}
				continue
			}
			have++
			mean += maps[0].R2[layer] / float64(acting)
		}
		if !(mean > 0.05) { // random weights leave little to foretell
			t.Errorf("%s: mean R² %.3f of %.3f", arch, mean, maps[0].R2)
		}
		if have != acting {
			t.Errorf("%s: %d layers have maps, want %d", arch, have, acting)
		}
	}
}

func TestFitScoresRefuses(t *testing.T) {
	e := fitEngine(t, "llama")
	if _, err := FitScores(t.Context(), e, make([]int, 99), FitOptions{Chunk: 50}); !errors.Is(err, ErrShort) {
		t.Errorf("a short text: %v", err)
	}
	if _, err := FitScores(t.Context(), e, make([]int, 1300), FitOptions{Chunk: 300}); !errors.Is(err, engine.ErrContext) {
		t.Errorf("chunks that do not fit twice: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := FitScores(ctx, e, make([]int, 200), FitOptions{Chunk: 50}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestFitCenters: chunks' sums are joined, and what is said of them is of the least concentrated head; windows have none.
func TestFitCenters(t *testing.T) {
	ids := make([]int, 200)
	for i := range ids {
		ids[i] = 10 + (i*i/7+i)%40
	}
	for arch, acting := range map[string]int{"llama": 6, "gemma3": 1} {
		e := fitEngine(t, arch)
		f, err := FitCenters(t.Context(), e, ids, FitOptions{Chunk: 64, Chunks: 2})
		if err != nil {
			t.Fatal(err)
		}
		seen, heads, sum, least := 0, 0, 0.0, 2.0
		for i, c := range f.Layers {
			if c == nil {
				continue
			}
			seen++
			want, err := e.Centers(t.Context(), ids[:64])
			if err != nil {
				t.Fatal(err)
			}
			more, err := e.Centers(t.Context(), ids[64:128])
			if err != nil {
				t.Fatal(err)
			}
			for j := range c.Real {
				if c.Real[j] != want[i].Real[j]+more[i].Real[j] || c.Length[j] != want[i].Length[j]+more[i].Length[j] {
					t.Fatalf("%s, layer %d: sums of two chunks are not joined", arch, i)
				}
			}
			for h := range c.Heads {
				heads, sum, least = heads+1, sum+c.Concentration(h), min(least, c.Concentration(h))
			}
		}
		if seen != acting || f.Tokens != 128 || f.Least != least || math.Abs(f.Mean-sum/float64(heads)) > 1e-12 {
			t.Errorf("%s: %d layers, %d tokens, %g and %g", arch, seen, f.Tokens, f.Mean, f.Least)
		}
		if _, err := FitCenters(t.Context(), e, ids[:20], FitOptions{Chunk: 64}); !errors.Is(err, ErrShort) {
			t.Errorf("a short text: %v", err)
		}
	}
}
