package kernels

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"testing"
)

// TestRotate holds Rotate to the Sylvester matrix H[i][j] = (-1)^popcount(i&j)/√n, head by head and in blocks of the largest power
// of two of a width that is none; turning again gives the numbers back.
func TestRotate(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 6))
	for dim, block := range map[int]int{1: 1, 2: 2, 16: 16, 64: 64, 80: 16, 96: 32, 256: 256} {
		if got := RotateBlock(dim); got != block {
			t.Fatalf("heads of %d: blocks of %d, want %d", dim, got, block)
		}
		x := make([]float32, 3*dim)
		for i := range x {
			x[i] = float32(rng.NormFloat64())
		}
		y := append([]float32(nil), x...)
		Rotate(y, block)
		for i := range y {
			first, sum := i-i%block, 0.0
			for j := range block {
				sum += float64(x[first+j]) * float64(1-2*(bits.OnesCount(uint(i%block&j))&1))
			}
			if want := sum / math.Sqrt(float64(block)); math.Abs(float64(y[i])-want) > 1e-5 {
				t.Fatalf("heads of %d: number %d is %g, want %g", dim, i, y[i], want)
			}
		}
		Rotate(y, block)
		for i := range y {
			if math.Abs(float64(y[i]-x[i])) > 1e-5 {
				t.Fatalf("heads of %d: number %d comes back as %g, not %g", dim, i, y[i], x[i])
			}
		}
	}
}
