package policy

import (
	"math/rand/v2"
	"strings"
	"testing"

	"terrace/internal/cacheshape"
)

// wide is a layer of SmolLM2's shape at depth 8000 whose scorer answers at once, so that only the policy is timed.
type wide struct {
	scores []float32
	key    []float32
}

func (w *wide) Listed(_ int, _ []int32, _ []float32, _ int, dst []float32) { copy(dst, w.scores) }
func (w *wide) Colliding(int, []float32, []Collisions)                     {}
func (w *wide) Clusters(int) *Clusters                                     { return new(Clusters) }

func (w *wide) Tail(_ int, _ []float32, _ int, dst []float32)                 { clear(dst) }
func (w *wide) Trained(int) bool                                              { return true }
func (w *wide) Keys(_, from, to int, dst []float32)                           { copy(dst, w.key[:(to-from)*64]) }
func (w *wide) Values(_, from, to int, dst []float32)                         { copy(dst, w.key[:(to-from)*64]) }
func (w *wide) Dot(_ int, _ []float32, _ int, dst []float32)                  { copy(dst, w.scores) }
func (w *wide) Dims(_ int, _ []int32, _ []float32, _ int, dst []float32)      { copy(dst, w.scores) }
func (w *wide) Approx(_ int, _ []float32, _ int, dst []float32)               { copy(dst, w.scores) }
func (w *wide) Bounds(_, _ int, _ []int32, _ []float32, _ int, dst []float32) { copy(dst, w.scores) }
func (w *wide) SideDims(_, _ int, _ []int32, _ []bool, _ []float32, _ int, dst []float32) {
	copy(dst, w.scores)
}
func (w *wide) KeyScales(_ int, dst []float32) { dst[0] = 1 }
func (w *wide) Products(_ int, _ []int8, dst []int32) {
	for i := range dst {
		dst[i] = int32(w.scores[i] * 1000)
	}
}

func wideLayer(tokens int) *Layer {
	r := rand.New(rand.NewPCG(1, 1))
	w := &wide{make([]float32, 3*tokens), make([]float32, 4*chunkRows*64)}
	for i := range w.scores {
		w.scores[i] = float32(r.NormFloat64() * 8)
	}
	for i := range w.key {
		w.key[i] = float32(r.NormFloat64())
	}
	l := &Layer{Index: 3, Layers: 30, Heads: 9, KVHeads: 3, KeyDim: 64, ValueDim: 64, N: tokens, Prompt: tokens, KV: w, Scores: w,
		Rope: halfRope{10000}, Queries: make([]float32, 64*9*64), Rows: 64, SumRows: 64}
	for i := range l.Queries {
		l.Queries[i] = float32(r.NormFloat64())
	}
	for range 3 {
		l.Pos = append(l.Pos, span(nil, 0, tokens))
	}
	for range 9 {
		l.ColumnSums = append(l.ColumnSums, w.scores[:tokens])
	}
	stats := NewQueryStats(9, 64)
	stats.Add(l.Queries, 64)
	l.Observed = []Observed{{QueryStatistics{From: 4}, stats}}
	return l
}

// BenchmarkSelect times one layer's decision at a decode step, scoring excluded; it must not allocate.
func BenchmarkSelect(b *testing.B) {
	l := wideLayer(8000)
	for _, spec := range []string{"quest:budget=1024", "topk:budget=1024", "topk:budget=1024,group=sum", "sparq", "hillinfer:alpha=0.1", "leoam", "oracle"} {
		b.Run(strings.ReplaceAll(spec, ":", "/"), func(b *testing.B) {
			p := benchSet(b, spec, l).Selector
			var read Selection
			p.Select(l, &read)
			b.ReportAllocs()
			for b.Loop() {
				p.Select(l, &read)
			}
		})
	}
}

// BenchmarkKeepPrompt times one layer's decision after a prompt of 8000 tokens.
func BenchmarkKeepPrompt(b *testing.B) {
	l := wideLayer(8000)
	for _, spec := range []string{"streaming_llm", "knorm", "keydiff", "snapkv", "tova", "observed_attention", "adakv", "expected_attention", "lagkv", "h2o"} {
		b.Run(spec, func(b *testing.B) {
			p := benchSet(b, with(spec, "ratio=0.75"), l).Keeper
			var keep Selection
			for b.Loop() {
				p.KeepPrompt(l, &keep)
			}
		})
	}
}

// BenchmarkQueryStats times the statistics of 64 rows of queries.
func BenchmarkQueryStats(b *testing.B) {
	l := wideLayer(8000)
	s := NewQueryStats(9, 64)
	for b.Loop() {
		s.Add(l.Queries, 64)
	}
}

func benchSet(b *testing.B, spec string, l *Layer) *Set {
	b.Helper()
	s, err := Parse(spec)
	if err != nil {
		b.Fatal(err)
	}
	set, err := s.New(Model{Layers: cacheshape.Equal(l.Layers, l.Heads, cacheshape.KV{Heads: l.KVHeads, KeyDim: l.KeyDim, ValueDim: l.ValueDim})})
	if err != nil {
		b.Fatal(err)
	}
	return set
}

// TestSelectAllocates holds selectors to no allocation in steady state.
func TestSelectAllocates(t *testing.T) {
	l := wideLayer(2000)
	for _, spec := range []string{"quest:budget=256", "topk:budget=256", "sparq", "hillinfer:alpha=0.1", "leoam", "oracle"} {
		s, err := Parse(spec)
		if err != nil {
			t.Fatal(err)
		}
		set, err := s.New(Model{Layers: cacheshape.Equal(30, 9, cacheshape.KV{Heads: 3, KeyDim: 64})})
		if err != nil {
			t.Fatal(err)
		}
		var read Selection
		set.Selector.Select(l, &read)
		if n := testing.AllocsPerRun(20, func() { set.Selector.Select(l, &read) }); n > 0 {
			t.Errorf("%s: %g allocations a decision", spec, n)
		}
	}
}
