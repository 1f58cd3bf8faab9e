package kernels

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"terrace/internal/kernels/ref"
)

// TestQuantise compares codes, on every path and at all lengths, with the rule in words: divided in float32, cut to the largest code,
// halves to even; 0 where the scale is not above 0. Those of numbers that are none are compared with ref's.
func TestQuantise(t *testing.T) {
	rnd := rand.New(rand.NewPCG(2, 2))
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	odd := []float32{0, float32(math.Copysign(0, -1)), 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 126.5, -126.5, 127.5, 6.5, 7.5, -7.5, 1e30, -1e30, inf, -inf, 1e-40, 128, 8, nan, -nan}
	scales := []float32{1, 0.37, 3, 0, -1, 1e-38, 1e38, nan}
	eachPath(t, func(t *testing.T) {
		for _, n := range append(upTo(66), 576, 1000) {
			x, each := make([]float32, n), make([]float32, n)
			for i := range x {
				if x[i], each[i] = float32(rnd.NormFloat64()*40), scales[rnd.IntN(len(scales))]; i%3 == 0 {
					x[i] = odd[rnd.IntN(len(odd))]
				}
			}
			for _, most := range []float32{127, 7} {
				for s := range len(scales) + 1 {
					scale := each
					if s < len(scales) {
						scale = scales[s : s+1]
					} else if n == 1 {
						continue // a scale each of one number is one scale
					}
					got, plain := make([]int8, n+1), make([]int8, n+1)
					got[n], plain[n] = 99, 99
					if n > 0 || len(scale) > 0 {
						Quantise(got[:n:n], x, scale, most)
						ref.Quantise(plain, x, scale, most)
					}
					if !slices.Equal(got, plain) {
						t.Fatalf("%d numbers, most %v, scales %v: codes %v, want ref's %v", n, most, scale, got, plain)
					}
					for i, v := range x {
						by, want := scale[min(i, len(scale)-1)], 0.0
						if by > 0 {
							if want = math.RoundToEven(max(-float64(most), min(float64(most), float64(v/by)))); want != want {
								continue
							}
						}
						if float64(got[i]) != want {
							t.Fatalf("most %v: %v divided by %v is %d, want %v", most, v, by, got[i], want)
						}
					}
				}
			}
		}
	})
}

// BenchmarkQuantise makes the codes of a head's 128 numbers.
func BenchmarkQuantise(b *testing.B) {
	x, codes := make([]float32, 128), make([]int8, 128)
	for i := range x {
		x[i] = float32(i - 60)
	}
	b.SetBytes(128)
	for b.Loop() {
		Quantise(codes, x, []float32{0.5}, 127)
	}
}
