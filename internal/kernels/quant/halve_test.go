package quant

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestHalve: blocks of each type that divides, by powers of two, are the divided values; what would be rounded is said.
func TestHalve(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, kind := range Types() {
		values := make([]float32, 2*superBlock)
		zeros := make([]byte, kind.RowBytes(len(values)))
		Dequantize(kind, values, zeros)
		if slices.ContainsFunc(values, func(x float32) bool { return x != 0 }) {
			t.Errorf("%s: bytes of zero are not values of zero", kind)
		}
		if !kind.Writable() {
			continue
		}
		for i := range values {
			values[i] = float32(100 * rng.NormFloat64())
		}
		blocks := make([]byte, len(zeros))
		if err := Quantize(kind, blocks, values); err != nil {
			t.Fatal(err)
		}
		Dequantize(kind, values, blocks)
		for _, times := range []int{0, 1, 4} {
			if !Halves(kind, blocks, times) {
				t.Fatalf("%s: does not divide by 2^%d", kind, times)
			}
			less, got := slices.Clone(blocks), make([]float32, len(values))
			Halve(kind, less, times)
			Dequantize(kind, got, less)
			for i, x := range values {
				if want := float32(math.Ldexp(float64(x), -times)); got[i] != want {
					t.Fatalf("%s by 2^%d: value %d is %g, want %g", kind, times, i, got[i], want)
				}
			}
		}
		if exact := Halves(kind, blocks, 30); exact != (kind == F32 || kind == BF16) {
			t.Errorf("%s by 2^30: without rounding is %v", kind, exact)
		}
	}
	if Halves(MXFP4, make([]byte, 17), 1) {
		t.Error("MXFP4 is said to divide")
	}
}
