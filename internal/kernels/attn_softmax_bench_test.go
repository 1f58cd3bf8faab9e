package kernels

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// BenchmarkSoftmaxBlock takes blocks of which all, half and one of 16 tokens are seen, as a causal prompt has them.
func BenchmarkSoftmaxBlock(b *testing.B) {
	const rows = 64
	inf := float32(math.Inf(-1))
	for _, seen := range []int{BlockTokens, BlockTokens / 2, BlockTokens / 16} {
		for _, half := range []bool{false, true} {
			if half && !HasBF16() {
				continue
			}
			b.Run(fmt.Sprintf("seen=%d/bf16=%v", seen, half), func(b *testing.B) {
				r := rand.New(rand.NewPCG(1, 2))
				source, s, p := make([]float32, rows*BlockTokens), make([]float32, rows*BlockTokens), make([]uint16, rows*BlockTokens)
				for i := range source {
					if source[i] = inf; i%BlockTokens < seen {
						source[i] = 4 * float32(r.NormFloat64())
					}
				}
				m, l, corr := make([]float32, rows), make([]float32, rows*TileTokens), make([]float32, rows)
				for b.Loop() {
					copy(s, source)
					if half {
						SoftmaxBlockBF16(s, p, m, l, corr)
					} else {
						SoftmaxBlock(false, s, m, l, corr)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/rows/BlockTokens, "ns/score")
			})
		}
	}
}
