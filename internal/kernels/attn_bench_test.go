package kernels

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// BenchmarkDecodeKernels multiplies 32 cached tiles of 64 dimensions with 3 heads, and with as many as go at once: what a core computes when memory is no
// limit. Bytes are those of the pages.
func BenchmarkDecodeKernels(b *testing.B) {
	const dim, n = 64, 32
	rnd := rand.New(rand.NewPCG(1, 1))
	for e := KVF32; e <= KVI2; e++ {
		t := newTiles(rnd, e, n, dim, heapBytes)
		for i := range t.masks {
			t.masks[i] = 0xffff
		}
		for _, heads := range []int{3, MostHeads(e)} {
			q, s, out := normals(rnd, heap(heads*dim)), normals(rnd, heap(heads*TileTokens*n)), heap(heads*dim)
			b.Run(fmt.Sprintf("score/%d/heads=%d", e, heads), func(b *testing.B) {
				b.SetBytes(int64(n * e.KeyTileBytes(dim)))
				b.ReportAllocs()
				for b.Loop() {
					ScoreTiles(e, s, q, t.keys, t.masks, heads, dim)
				}
			})
			clear(s)
			b.Run(fmt.Sprintf("weigh/%d/heads=%d", e, heads), func(b *testing.B) {
				b.SetBytes(int64(n * TileTokens * e.ValueRowBytes(dim)))
				b.ReportAllocs()
				for b.Loop() {
					WeighTiles(e, out, s, t.values, t.masks, heads, dim)
				}
			})
		}
	}
}

// BenchmarkGemm is the product of 24 rows with one panel at the shapes of q·k and p·v.
func BenchmarkGemm(b *testing.B) {
	const rows = 24
	for _, k := range []int{64, 128, 256} {
		a, p, c, scale := heap(rows*k), heap(k*PanelCols), heap(rows*PanelCols), heap(rows)
		flops := float64(2 * rows * PanelCols * k)
		b.Run(fmt.Sprintf("f32/%d", k), func(b *testing.B) {
			for b.Loop() {
				Gemm(c, PanelCols, a, k, p, k, rows, scale)
			}
			b.ReportMetric(flops*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOPS")
		})
		if !HasBF16() {
			continue
		}
		a16, p16 := make([]uint16, 32*k), make([]uint16, k*PanelCols)
		c = heap(32 * PanelCols)
		b.Run(fmt.Sprintf("bf16/%d", k), func(b *testing.B) {
			for b.Loop() {
				GemmBF16(c, PanelCols, a16, k, p16, k, rows, scale)
			}
			b.ReportMetric(flops*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOPS")
		})
	}
}
