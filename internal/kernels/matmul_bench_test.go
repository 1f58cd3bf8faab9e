//go:build unix

package kernels

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"terrace/internal/cputime"
	"terrace/internal/kernels/quant"
)

// benchShape is a weight matrix of a model that we run.
type benchShape struct {
	name       string
	rows, cols int
}

var benchShapes = []benchShape{
	{"smollm2-qkv", 960, 576}, {"smollm2-gate-up", 3072, 576}, {"smollm2-down", 576, 1536}, {"smollm2-head", 49152, 576},
	{"gemma3-qkv", 1536, 640}, {"gemma3-gate-up", 4096, 640}, {"gemma3-down", 640, 2048}, {"gemma3-head", 262144, 640},
}

// spread makes copies of a matrix until they exceed the caches, so that a decode benchmark reads memory as a model does.
func spread(b *testing.B, typ quant.Type, rows, cols int, bytes int) []*Matrix {
	w := randomWeights(rand.New(rand.NewPCG(7, 7)), typ, rows, cols)
	var list []*Matrix
	for total := 0; total < bytes || len(list) == 0; total += len(w) {
		list = append(list, newMatrix(b, typ, rows, cols, w))
	}
	return list
}

// BenchmarkDecode reads packed weights from memory: GB/s beside BenchmarkRead's is the figure to look at.
func BenchmarkDecode(b *testing.B) {
	for _, typ := range quant.Types() {
		for _, n := range []int{1, 8} {
			for _, threads := range []int{1, 2} {
				b.Run(fmt.Sprintf("%v/n=%d/threads=%d", typ, n, threads), func(b *testing.B) {
					benchMatMul(b, Decode, typ, 2048, 1024, n, threads, 256<<20)
				})
			}
		}
	}
}

// BenchmarkDecodeCached is BenchmarkDecode on weights that stay in the second-level cache: the arithmetic's own limit.
func BenchmarkDecodeCached(b *testing.B) {
	for _, typ := range quant.Types() {
		for _, n := range []int{1, 2, 4, 8} {
			b.Run(fmt.Sprintf("%v/n=%d", typ, n), func(b *testing.B) {
				benchMatMul(b, Decode, typ, 256, 1024, n, 1, 0)
			})
		}
	}
}

// BenchmarkPrefill keeps the weights in cache: GOPS (two operations a multiply-add) is the figure to look at.
func BenchmarkPrefill(b *testing.B) {
	for _, typ := range quant.Types() {
		for _, threads := range []int{1, 2} {
			b.Run(fmt.Sprintf("%v/threads=%d", typ, threads), func(b *testing.B) {
				benchMatMul(b, Prefill, typ, 1536, 768, 512, threads, 0)
			})
		}
	}
}

func BenchmarkExact(b *testing.B) {
	for _, typ := range []quant.Type{quant.Q4_1, quant.Q8_0, quant.F16} {
		for _, n := range []int{1, 512} {
			b.Run(fmt.Sprintf("%v/n=%d", typ, n), func(b *testing.B) { benchMatMul(b, Exact, typ, 1536, 768, n, 2, 0) })
		}
	}
}

// BenchmarkShapes runs the matrices of the two models that we measure, in their usual types.
func BenchmarkShapes(b *testing.B) {
	for _, s := range benchShapes {
		typ := quant.Q4_1
		switch {
		case s.rows > 10000:
			typ = quant.Q8_0
		case s.cols == 640:
			typ = quant.Q5_0
		case s.cols == 2048:
			typ = quant.Q4_K
		}
		b.Run(fmt.Sprintf("%s/%v/decode", s.name, typ), func(b *testing.B) {
			benchMatMul(b, Decode, typ, s.rows, s.cols, 1, 2, 128<<20)
		})
		b.Run(fmt.Sprintf("%s/%v/prefill", s.name, typ), func(b *testing.B) {
			benchMatMul(b, Prefill, typ, s.rows, s.cols, 512, 2, 0)
		})
	}
}

func benchMatMul(b *testing.B, ph Phase, typ quant.Type, rows, cols, n, threads, spreadBytes int) {
	pool := NewPool(threads)
	defer pool.Close()
	list := spread(b, typ, rows, cols, spreadBytes)
	x, dst := randomRows(rand.New(rand.NewPCG(8, 8)), n, cols), make([]float32, n*rows)
	for _, m := range list {
		pool.MatMul(ph, x, n, Product{W: m, Dst: dst})
	}
	b.ReportAllocs()
	b.SetBytes(int64(list[0].packedBytes()))
	i, start := 0, cputime.Used()
	for b.Loop() {
		pool.MatMul(ph, x, n, Product{W: list[i%len(list)], Dst: dst})
		i++
	}
	if threads == 1 { // a disturbed machine stretches wall time, not the time on the core
		b.ReportMetric(2*float64(rows)*float64(cols)*float64(n)*float64(b.N)/(cputime.Used()-start).Seconds()/1e9, "GOPS/core")
	}
	b.ReportMetric(2*float64(rows)*float64(cols)*float64(n)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GOPS")
}

// BenchmarkRead is the machine's limit: the sum of a buffer far larger than the caches.
func BenchmarkRead(b *testing.B) {
	if simd == nil {
		b.Skip("needs a SIMD path")
	}
	for _, threads := range []int{1, 2} {
		b.Run(fmt.Sprintf("threads=%d", threads), func(b *testing.B) {
			pool := NewPool(threads)
			defer pool.Close()
			m := newMatrix(b, quant.F32, 4096, 16384, make([]byte, 4096*16384*4))
			pool.mu.Lock()
			pool.ensurePacked(m)
			pool.mu.Unlock()
			var sums [16]float32
			one := make([]float32, 16384)
			run := simd.panels[quant.F32]
			k := run[len(run)-1].run
			fn := func(_, i int) {
				var local [16]float32
				k(&local[0], m.tileAt(i), &one[0], 0, 16384)
				_ = sums
			}
			b.SetBytes(4096 * 16384 * 4)
			for b.Loop() {
				pool.Run(tilesOf(4096), fn)
			}
		})
	}
}

// BenchmarkPack is what the first token pays: bytes of the ggml form a second on one core.
func BenchmarkPack(b *testing.B) {
	for _, typ := range quant.Types() {
		b.Run(typ.String(), func(b *testing.B) {
			const rows, cols = 512, 1536
			m := newMatrix(b, typ, rows, cols, randomWeights(rand.New(rand.NewPCG(9, 9)), typ, rows, cols))
			dst := make([]byte, m.packedBytes())
			b.SetBytes(int64(len(m.data)))
			start := cputime.Used()
			for b.Loop() {
				for i := range tilesOf(rows) {
					m.packTile(dst[i*m.tile:(i+1)*m.tile], i*tileRows)
				}
			}
			b.ReportMetric(float64(len(m.data))*float64(b.N)/(cputime.Used()-start).Seconds()/1e9, "GB/s/core")
		})
	}
}
