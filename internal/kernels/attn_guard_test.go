//go:build unix

package kernels

import (
	"math/rand/v2"
	"testing"
)

// TestAttentionKernelsStayInside: pages, scores and panels may end or begin at unreadable memory.
func TestAttentionKernelsStayInside(t *testing.T) {
	eachGuard(t, func(t *testing.T, head bool) {
		rnd := rand.New(rand.NewPCG(4, 1))
		get := func(n int) []float32 { return floatsOf(guarded(t, 4*n, head)) }
		getBytes := func(n int) []byte { return guarded(t, n, head) }
		for _, dim := range []int{8, 24, 64, 72} {
			if !turned(rnd, KVF16, dim, getBytes) || !turned(rnd, KVF32, dim, getBytes) {
				t.Fatalf("dim %d: turned tile differs", dim)
			}
		}
		for _, e := range []CodeElem{Codes8, Codes4} {
			for _, rows := range []int{1, 3, 4} {
				if err := codeKernel(rnd, e, rows, 40, 3, get, getBytes); err != nil {
					t.Fatal(err)
				}
			}
		}
		for e := KVF32; e <= KVI4; e++ {
			for _, dim := range []int{64, 96} {
				for _, heads := range []int{3, MostHeads(e)} {
					if err := decodeKernels(rnd, newTiles(rnd, e, 3, dim, getBytes), heads, dim, get); err != nil {
						t.Fatal(err)
					}
				}
				for _, rows := range []int{1, 7} {
					if err := blockKernels(rnd, e, dim, rows, get, getBytes); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	})
}
