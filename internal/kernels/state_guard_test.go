//go:build unix

package kernels

import (
	"math/rand/v2"
	"testing"
)

// TestStateStaysInside: no kernel touches a byte outside its operands.
func TestStateStaysInside(t *testing.T) {
	for _, k := range stripKernels {
		t.Run(k.name, func(t *testing.T) {
			eachGuard(t, func(t *testing.T, head bool) {
				for _, n := range []int{4, 12, 128} {
					k.run(newStrip(n, StateLanes()+16, StateLanes(), func(n int) []float32 { return floatsOf(guarded(t, 4*n, head)) }, rand.New(rand.NewPCG(1, 2))))
				}
			})
		})
	}
}

// TestConvolveStaysInside: nor does a convolution.
func TestConvolveStaysInside(t *testing.T) {
	eachGuard(t, func(t *testing.T, head bool) {
		for _, n := range []int{16, 30, 64} {
			row := func(n int) []float32 { return floatsOf(guarded(t, 4*n, head)) }
			taps := [][]float32{row(n), row(n), row(n)}
			Convolve(taps[2], taps, row(2*(n+3)+n), n+3, row(n))
		}
	})
}
