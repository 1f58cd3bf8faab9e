//go:build unix

package kernels

import (
	"math/rand/v2"
	"testing"
	"unsafe"
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
		for e := KVF32; e <= KVBF16; e++ {
			for _, dim := range []int{16, 20, 80} {
				PutKeys(e, getBytes(e.KeyTileBytes(dim)), get(16*dim), dim, dim)
				PutKey(e, getBytes(e.KeyTileBytes(dim)), 15, get(dim), dim)
				PutValue(e, getBytes(e.ValueRowBytes(dim)), get(dim), dim)
			}
		}
		for _, e := range []KVElem{KVI8, KVI4} {
			for _, dim := range []int{8, 64, 128} {
				if PutKeys(e, getBytes(e.KeyTileBytes(dim)), get(16*dim), dim, dim) && dim >= 64 {
					PutValue(e, getBytes(e.ValueRowBytes(dim)), get(dim), dim)
				}
			}
		}
		for _, n := range []int{16, 20, 64} {
			codes := getBytes(n)
			for _, scales := range []int{1, n} {
				Quantise(unsafe.Slice((*int8)(unsafe.Pointer(&codes[0])), n), get(n), ones(get(scales)), 127)
			}
		}
		for _, e := range []CodeElem{Codes8, Codes4} {
			for _, rows := range []int{1, 3, 4} {
				if err := codeKernel(rnd, e, rows, 40, 3, get, getBytes); err != nil {
					t.Fatal(err)
				}
			}
		}
		for e := KVF32; e <= KVI2; e++ {
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

func ones(x []float32) []float32 {
	for i := range x {
		x[i] = 1
	}
	return x
}
