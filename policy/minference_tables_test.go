package policy

import (
	"errors"
	"math"
	"slices"
	"testing"

	"terrace/internal/cacheshape"
)

// TestMInferenceTables: the shipped tables have the counts of algorithms.md 5.7.
func TestMInferenceTables(t *testing.T) {
	want := map[string]map[lineSizes]int{
		"llama-3.1-8b": {{100, 800}: 297, {1000, 6096}: 279, {30, 800}: 175, {3500, 100}: 149, {500, 700}: 120, {100, 750}: 4},
		"qwen-2.5-7b":  {{1000, 6096}: 411, {3500, 100}: 202, {30, 800}: 91, {500, 700}: 50, {100, 800}: 24, {100, 750}: 6},
	}
	for _, table := range minferenceTables() {
		got := map[lineSizes]int{}
		for _, row := range table.sizes {
			if len(row) != len(table.sizes[0]) {
				t.Errorf("%s: rows of %d and %d heads", table.name, len(table.sizes[0]), len(row))
			}
			for _, s := range row {
				got[s]++
			}
		}
		for s, n := range want[table.name] {
			if got[s] != n {
				t.Errorf("%s: %d heads of %v, want %d", table.name, got[s], s, n)
			}
			delete(got, s)
		}
		if len(got) != 0 {
			t.Errorf("%s: other heads too: %v", table.name, got)
		}
		delete(want, table.name)
	}
	if len(want) != 0 {
		t.Errorf("missing tables: %v", want)
	}
}

// TestMInferencePattern: which sizes a head gets, and what is refused.
func TestMInferencePattern(t *testing.T) {
	llama := Model{Layers: cacheshape.Equal(32, 32, cacheshape.KV{Heads: 8, KeyDim: 128, ValueDim: 128}), Hidden: 4096}
	other := Model{Layers: cacheshape.Equal(32, 32, cacheshape.KV{Heads: 4, KeyDim: 64, ValueDim: 64}), Hidden: 2048}
	for _, c := range []struct {
		spec       string
		m          Model
		vertical   int // of layer 0, head 31: 3500/100 in the table
		fits, good bool
	}{
		{"minference", llama, 3500, true, true},
		{"minference", other, 1000, true, true},
		{"minference:pattern=llama-3.1-8b", other, 3500, true, true},
		{"minference:vertical=700", llama, 700, true, true},
		{"minference:pattern=fixed", llama, 1000, true, true},
		{"minference:pattern=qwen-2.5-7b", llama, 0, false, true},
		{"minference:pattern=llama-3.1-8b,slash=100", llama, 0, false, false},
	} {
		spec, err := Parse(c.spec)
		if (err == nil) != c.good {
			t.Fatalf("%s: %v", c.spec, err)
		}
		if err != nil {
			continue
		}
		set, err := spec.New(c.m)
		if c.fits != (err == nil) || err != nil && !errors.Is(err, ErrModel) {
			t.Fatalf("%s: %v", c.spec, err)
		}
		if err != nil {
			continue
		}
		const n = 8 << 10
		l := &Layer{Layers: len(c.m.Layers), Heads: 32, KVHeads: c.m.Layers[0].KV.Heads, KeyDim: c.m.Layers[0].KV.KeyDim, N: n, Prompt: n, Rows: n, WeightRows: 1,
			Weights: func(_ int, dst []float32) {
				for i := range dst {
					dst[i] = float32(math.Mod(float64(i)*0.618, 1))
				}
			}}
		var m Mask
		set.Masker.MaskPrompt(l, &m)
		if got := len(m.Heads[31].Vertical); got != c.vertical/4 || !slices.IsSorted(m.Heads[31].Vertical) {
			t.Errorf("%s: %d columns, want %d", c.spec, got, c.vertical/4)
		}
	}
}
