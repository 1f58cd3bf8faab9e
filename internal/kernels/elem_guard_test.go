//go:build unix

package kernels

import (
	"math/rand/v2"
	"testing"
)

// TestElementwiseStaysInside: no kernel touches a byte outside its operands.
func TestElementwiseStaysInside(t *testing.T) {
	for _, k := range elemKernels {
		t.Run(k.name, func(t *testing.T) {
			eachGuard(t, func(t *testing.T, head bool) {
				for _, n := range []int{2, 14, 16, 18, 30, 32, 34, 64, 66} {
					in := elemInputs(rand.New(rand.NewPCG(1, 2)), n)
					for i := range in {
						b := floatsOf(guarded(t, 4*n, head))
						copy(b, in[i])
						in[i] = b
					}
					k.run(in)
				}
			})
		})
	}
}
