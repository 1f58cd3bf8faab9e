package quant

import (
	"math/rand/v2"
	"testing"
)

func normals(n int) []float32 {
	rng := rand.New(rand.NewPCG(1, 2))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	return x
}

const benchValues = 1 << 20

func BenchmarkCheckFinite(b *testing.B) {
	for _, t := range []Type{F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q4_K, Q6_K} {
		data := make([]byte, t.RowBytes(benchValues))
		if err := Quantize(t, data, normals(benchValues)); err != nil {
			b.Fatal(err)
		}
		b.Run(t.String(), func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				if CheckFinite(t, data) >= 0 {
					b.Fatal("not finite")
				}
			}
		})
	}
}

func BenchmarkQuantize(b *testing.B) {
	src := normals(benchValues)
	for _, t := range []Type{F16, BF16, Q8_0, Q4_0, Q4_1, Q5_1, Q4_K, Q6_K} {
		dst := make([]byte, t.RowBytes(benchValues))
		b.Run(t.String(), func(b *testing.B) {
			b.SetBytes(4 * benchValues)
			for b.Loop() {
				if err := Quantize(t, dst, src); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkDequantize(b *testing.B) {
	dst := make([]float32, benchValues)
	for _, t := range Types() {
		src := make([]byte, t.RowBytes(benchValues))
		b.Run(t.String(), func(b *testing.B) {
			b.SetBytes(4 * benchValues)
			for b.Loop() {
				Dequantize(t, dst, src)
			}
		})
	}
}
