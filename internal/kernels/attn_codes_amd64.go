//go:build amd64 && !purego

package kernels

import (
	"terrace/internal/kernels/amd64/avx2"
	"terrace/internal/kernels/amd64/avx512"
)

func init() {
	onSelect(func(path isa) {
		switch {
		case path >= isaAVX512:
			codeKernels = codeOps{offset: 128, dot: [2][GroupHeads]dotCodesFunc{
				{avx512.DotCodes8x1, avx512.DotCodes8x2, avx512.DotCodes8x3, avx512.DotCodes8x4},
				{avx512.DotCodes4x1, avx512.DotCodes4x2, avx512.DotCodes4x3, avx512.DotCodes4x4}}}
		case path == isaAVX2:
			codeKernels = codeOps{dot: [2][GroupHeads]dotCodesFunc{
				{avx2.DotCodes8x1, avx2.DotCodes8x2, avx2.DotCodes8x3, avx2.DotCodes8x4},
				{avx2.DotCodes4x1, avx2.DotCodes4x2, avx2.DotCodes4x3, avx2.DotCodes4x4}}}
		default:
			codeKernels = codeOps{}
		}
	})
}
