package policy

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// sortedNucleus is the rule by its words: order by weight falling, ties to the lower position; the shortest prefix that sums to p.
func sortedNucleus(w []float32, p float64) []bool {
	order := make([]int, len(w))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case w[a] > w[b]:
			return -1
		case w[a] < w[b]:
			return 1
		}
		return 0
	})
	in, sum := make([]bool, len(w)), 0.0
	for _, i := range order {
		in[i] = true
		if sum += float64(w[i]); sum >= p {
			break
		}
	}
	return in
}

// TestNucleus: halving finds what sorting finds, with few different weights too.
func TestNucleus(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for trial := range 300 {
		w := make([]float32, 1+r.IntN(200))
		var sum float32
		for i := range w {
			w[i] = float32(1 + r.IntN(1+trial%40))
			sum += w[i]
		}
		for i := range w {
			w[i] /= 1 << 12 // sums are exact
		}
		p := float64(sum) / (1 << 12) * float64(1+r.IntN(16)) / 16
		n := nucleus{in: make([]bool, len(w))}
		n.keep(w, p)
		if want := sortedNucleus(w, p); !slices.Equal(n.in, want) {
			t.Fatalf("weights %v, p %g: got %v, want %v", w, p, n.in, want)
		}
	}
}
