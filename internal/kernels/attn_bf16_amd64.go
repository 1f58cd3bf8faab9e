//go:build amd64 && !purego

package kernels

import (
	"terrace/internal/kernels/amd64/amx"
	"terrace/internal/kernels/amd64/avx512"
)

var (
	packKeysBF16   = [3]func(*uint16, *byte, int){avx512.PackKeysBF16FromF32, avx512.PackKeysBF16FromF16, avx512.PackKeysBF16FromBF16}
	packValuesBF16 = [3]func(*uint16, *byte, int, int){avx512.PackValuesBF16FromF32, avx512.PackValuesBF16FromF16, avx512.PackValuesBF16FromBF16}
)

var bf16AVX512 = bf16Ops{
	rowBlock: 1,
	packKeys: func(e KVElem, dst []uint16, keys []byte, dim int) {
		packKeysBF16[e](&dst[0], &keys[0], dim)
	},
	packValues: func(e KVElem, dst []uint16, values []byte, dim, panelLen int) {
		packValuesBF16[e](&dst[0], &values[0], dim, 2*panelLen)
	},
	packRows: func(dst []uint16, src []float32, scale float32) {
		if len(src) > 0 {
			avx512.PackRowsBF16(&dst[0], &src[0], len(src), scale)
		}
	},
	gemm: func(c []float32, cStride int, a []uint16, aStride int, b []uint16, k, rows int, scale []float32) {
		avx512.GemmBF16(&c[0], 4*cStride, &a[0], 2*aStride, &b[0], k/2, rows, first(scale))
	},
	softmaxBlock: func(s []float32, p []uint16, m, l, corr []float32) {
		avx512.SoftmaxBlockBF16(&s[0], &p[0], len(m), &m[0], &l[0], &corr[0])
	},
	columnSums: func(p []uint16, w []float32, stride int, sums []float32) {
		avx512.ColumnSumsBF16(&p[0], &w[0], stride, (len(w)+stride-1)/stride, &sums[0])
	},
}

// bf16AMX multiplies on tiles where k fills whole ones.
var bf16AMX = tiledBF16(func(c *float32, cBytes int, a *uint16, aBytes int, b *uint16, steps, rows int, scale *float32) {
	amx.GemmTiles(&tileConfig[0], c, cBytes, a, aBytes, b, steps, rows, scale)
})

// tiledBF16 is bf16AVX512 with another product for k a multiple of 32.
func tiledBF16(tiles func(c *float32, cBytes int, a *uint16, aBytes int, b *uint16, steps, rows int, scale *float32)) bf16Ops {
	o := bf16AVX512
	o.rowBlock = groupRows
	o.gemm = func(c []float32, cStride int, a []uint16, aStride int, b []uint16, k, rows int, scale []float32) {
		if k%recordCols != 0 {
			bf16AVX512.gemm(c, cStride, a, aStride, b, k, rows, scale)
			return
		}
		tiles(&c[0], 4*cStride, &a[0], 2*aStride, &b[0], k/recordCols, rows, first(scale))
	}
	return o
}
