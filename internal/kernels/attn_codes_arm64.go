//go:build arm64 && !purego

package kernels

import (
	"terrace/internal/kernels/arm64/dotprod"
	"terrace/internal/kernels/arm64/neon"
)

func init() {
	onSelect(func(path isa) {
		switch {
		case path >= isaDotProd:
			codeKernels = codeOps{dot: [2][GroupHeads]dotCodesFunc{
				{dotprod.DotCodes8x1, dotprod.DotCodes8x2, dotprod.DotCodes8x3, dotprod.DotCodes8x4},
				{dotprod.DotCodes4x1, dotprod.DotCodes4x2, dotprod.DotCodes4x3, dotprod.DotCodes4x4}}}
		case path == isaNEON:
			codeKernels = codeOps{dot: [2][GroupHeads]dotCodesFunc{
				{neon.DotCodes8x1, neon.DotCodes8x2, neon.DotCodes8x3, neon.DotCodes8x4},
				{neon.DotCodes4x1, neon.DotCodes4x2, neon.DotCodes4x3, neon.DotCodes4x4}}}
		default:
			codeKernels = codeOps{}
		}
	})
}
