package policy

import (
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"
)

// TestBest compares the radix select with sorting: ties, NaN, infinities, signed zeros, all the same.
func TestBest(t *testing.T) {
	special := []float32{0, float32(math.Copysign(0, -1)), 1, 1, -1, infinity, -infinity, float32(math.NaN()), 1e-40, -1e-40, 3e38}
	r := rand.New(rand.NewPCG(1, 1))
	var p picker
	for round := range 3000 {
		scores := make([]float32, 1+r.IntN(120))
		if round%50 == 0 {
			scores = make([]float32, 2048+r.IntN(3000))
		}
		for i := range scores {
			switch round % 4 {
			case 0:
				scores[i] = float32(r.NormFloat64())
			case 1:
				scores[i] = float32(r.IntN(4))
			case 2:
				scores[i] = special[r.IntN(len(special))]
			default:
				scores[i] = math.Float32frombits(r.Uint32())
			}
		}
		k := r.IntN(len(scores) + 2)
		if round%100 == 0 {
			k /= 10
		}
		want := span(nil, 0, len(scores))
		less := func(a, b float32) bool { return a < b || a != a && b == b }
		sort.SliceStable(want, func(i, j int) bool { return less(scores[want[j]], scores[want[i]]) })
		want = slices.Clone(want[:min(k, len(want))])
		slices.Sort(want)
		for i := range want {
			want[i] += 7
		}
		if got := p.best(nil, scores, k, 7); !slices.Equal(got, want) {
			t.Fatalf("round %d, best %d of %d: %v, want %v", round, k, len(scores), got, want)
		}
	}
}

// TestMergerOrder gives the same scores in any order and blocking.
func TestMergerOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 1))
	for range 300 {
		n, k := 1+r.IntN(200), 1+r.IntN(40)
		scores := make([]float32, n)
		for i := range scores {
			scores[i] = float32(r.IntN(30))
		}
		var p picker
		want := p.best(nil, scores, k, 0)
		var m Merger
		m.Reset(k)
		for _, i := range r.Perm(n) {
			m.Add([]int32{int32(i)}, scores[i:i+1])
		}
		if got := m.Best(nil); !slices.Equal(got, want) {
			t.Fatalf("best %d of %v: %v, want %v", k, scores, got, want)
		}
	}
}

func BenchmarkBest(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	scores := make([]float32, 8000)
	for i := range scores {
		scores[i] = float32(r.NormFloat64())
	}
	var p picker
	var dst []int32
	for b.Loop() {
		dst = p.best(dst[:0], scores, 1024, 0)
	}
}
