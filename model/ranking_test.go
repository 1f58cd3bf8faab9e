package model

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestRankingIsTheSortedList: whatever is asked for first, places are those of the list sorted whole, ties by id.
func TestRankingIsTheSortedList(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, n := range []int{1, 2, 127, 128, 129, 600, 5000} {
		c := make([]candidate, n)
		for i := range c {
			c[i] = candidate{i, float32(rng.IntN(n/2 + 1))}
		}
		want := slices.SortedFunc(slices.Values(c), byLogit)
		r := &ranking{c: slices.Clone(c)}
		for _, i := range []int{0, n / 9, n / 3, n / 2, n - 1} {
			if have := r.at(i); have != want[i] {
				t.Fatalf("%d of %d: %v, want %v", i, n, have, want[i])
			}
		}
		for i, x := range want {
			if r.at(i) != x {
				t.Fatalf("%d of %d: %v, want %v", i, n, r.at(i), x)
			}
		}
	}
}

func BenchmarkSample(b *testing.B) {
	logits := make([]float32, 49152)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range logits {
		logits[i] = float32(2.5 * rng.NormFloat64())
	}
	for name, o := range map[string]SamplerOptions{"plain": {Temperature: 1}, "top-p": {Temperature: 1, TopP: 0.9}, "chat": {Temperature: 0.8, TopK: 40, TopP: 0.95, MinP: 0.05}} {
		b.Run(name, func(b *testing.B) {
			s := NewSampler(o)
			for b.Loop() {
				s.Next(logits, nil)
			}
		})
	}
}
