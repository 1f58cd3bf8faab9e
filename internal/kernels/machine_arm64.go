//go:build arm64 && !purego

package kernels

import (
	"terrace/internal/kernels/arm64/dotprod"
	"terrace/internal/kernels/arm64/i8mm"
	"terrace/internal/kernels/arm64/neon"
	"terrace/internal/kernels/quant"
)

func init() {
	onSelect(func(path isa) {
		switch {
		case path == isaI8MM:
			simd = &i8mmMachine
		case path == isaDotProd:
			simd = &dotProdMachine
		case path == isaNEON:
			simd = &neonMachine
		default:
			simd = nil
		}
	})
}

var panelsNEON = [64][]panelKernel{
	quant.F32:  {{4, neon.PanelF32x4}, {2, neon.PanelF32x2}, {1, neon.PanelF32x1}},
	quant.F16:  {{4, neon.PanelF16x4}, {2, neon.PanelF16x2}, {1, neon.PanelF16x1}},
	quant.BF16: {{4, neon.PanelBF16x4}, {2, neon.PanelBF16x2}, {1, neon.PanelBF16x1}},
}

// i8mmMachine's group of one row is laid out as without pairs, and is SDOT's.
var i8mmMachine = machine{
	quantize: i8mm.Quantize,
	panels:   panelsNEON,
	tiles: [64]tileKernels{
		quant.Q4_0:   {[]dotKernel{{4, i8mm.DotQ4_0x4}, {2, i8mm.DotQ4_0x2}, {1, dotprod.DotQ4_0x1}}, neon.UnpackQ4_0, manyKernels{i8mm.SpreadQ4_0, i8mm.ManyQ8_0}},
		quant.Q4_1:   {[]dotKernel{{4, i8mm.DotQ4_1x4}, {2, i8mm.DotQ4_1x2}, {1, dotprod.DotQ4_1x1}}, neon.UnpackQ4_1, manyKernels{i8mm.SpreadQ4_1, i8mm.ManyQ4_1}},
		quant.Q5_0:   {[]dotKernel{{4, i8mm.DotQ5_0x4}, {2, i8mm.DotQ5_0x2}, {1, dotprod.DotQ5_0x1}}, neon.UnpackQ5_0, manyKernels{i8mm.SpreadQ5_0, i8mm.ManyQ8_0}},
		quant.Q5_1:   {[]dotKernel{{4, i8mm.DotQ5_1x4}, {2, i8mm.DotQ5_1x2}, {1, dotprod.DotQ5_1x1}}, neon.UnpackQ5_1, manyKernels{i8mm.SpreadQ5_1, i8mm.ManyQ4_1}},
		quant.Q8_0:   {[]dotKernel{{4, i8mm.DotQ8_0x4}, {2, i8mm.DotQ8_0x2}, {1, dotprod.DotQ8_0x1}}, neon.UnpackQ8_0, manyKernels{i8mm.SpreadQ8_0, i8mm.ManyQ8_0}},
		quant.Q2_K:   {[]dotKernel{{4, i8mm.DotQ2_Kx4}, {2, i8mm.DotQ2_Kx2}, {1, dotprod.DotQ2_Kx1}}, neon.UnpackQ2_K, manyKernels{i8mm.SpreadQ2_K, i8mm.ManyQ2_K}},
		quant.Q3_K:   {[]dotKernel{{4, i8mm.DotQ3_Kx4}, {2, i8mm.DotQ3_Kx2}, {1, dotprod.DotQ3_Kx1}}, neon.UnpackQ3_K, manyKernels{i8mm.SpreadQ3_K, i8mm.ManyQ3_K}},
		quant.Q4_K:   {[]dotKernel{{4, i8mm.DotQ4_Kx4}, {2, i8mm.DotQ4_Kx2}, {1, dotprod.DotQ4_Kx1}}, neon.UnpackQ4_K, manyKernels{i8mm.SpreadQ4_K, i8mm.ManyQ4_1}},
		quant.Q5_K:   {[]dotKernel{{4, i8mm.DotQ5_Kx4}, {2, i8mm.DotQ5_Kx2}, {1, dotprod.DotQ5_Kx1}}, neon.UnpackQ5_K, manyKernels{i8mm.SpreadQ5_K, i8mm.ManyQ4_1}},
		quant.Q6_K:   {[]dotKernel{{4, i8mm.DotQ6_Kx4}, {2, i8mm.DotQ6_Kx2}, {1, dotprod.DotQ6_Kx1}}, neon.UnpackQ6_K, manyKernels{i8mm.SpreadQ6_K, i8mm.ManyQ3_K}},
		quant.IQ4_NL: {[]dotKernel{{4, i8mm.DotIQ4_NLx4}, {2, i8mm.DotIQ4_NLx2}, {1, dotprod.DotIQ4_NLx1}}, neon.UnpackIQ4_NL, manyKernels{i8mm.SpreadIQ4_NL, i8mm.ManyQ8_0}},
		quant.IQ4_XS: {[]dotKernel{{4, i8mm.DotIQ4_XSx4}, {2, i8mm.DotIQ4_XSx2}, {1, dotprod.DotIQ4_XSx1}}, neon.UnpackIQ4_XS, manyKernels{i8mm.SpreadIQ4_XS, i8mm.ManyQ8_0}},
		quant.MXFP4:  {[]dotKernel{{4, i8mm.DotMXFP4x4}, {2, i8mm.DotMXFP4x2}, {1, dotprod.DotMXFP4x1}}, neon.UnpackMXFP4, manyKernels{i8mm.SpreadMXFP4, i8mm.ManyQ8_0}},
	},
}

var dotProdMachine = machine{
	quantize: neon.Quantize,
	panels:   panelsNEON,
	tiles: [64]tileKernels{
		quant.Q4_0:   {[]dotKernel{{4, dotprod.DotQ4_0x4}, {2, dotprod.DotQ4_0x2}, {1, dotprod.DotQ4_0x1}}, neon.UnpackQ4_0, manyKernels{}},
		quant.Q4_1:   {[]dotKernel{{4, dotprod.DotQ4_1x4}, {2, dotprod.DotQ4_1x2}, {1, dotprod.DotQ4_1x1}}, neon.UnpackQ4_1, manyKernels{}},
		quant.Q5_0:   {[]dotKernel{{4, dotprod.DotQ5_0x4}, {2, dotprod.DotQ5_0x2}, {1, dotprod.DotQ5_0x1}}, neon.UnpackQ5_0, manyKernels{}},
		quant.Q5_1:   {[]dotKernel{{4, dotprod.DotQ5_1x4}, {2, dotprod.DotQ5_1x2}, {1, dotprod.DotQ5_1x1}}, neon.UnpackQ5_1, manyKernels{}},
		quant.Q8_0:   {[]dotKernel{{4, dotprod.DotQ8_0x4}, {2, dotprod.DotQ8_0x2}, {1, dotprod.DotQ8_0x1}}, neon.UnpackQ8_0, manyKernels{}},
		quant.Q2_K:   {[]dotKernel{{4, dotprod.DotQ2_Kx4}, {2, dotprod.DotQ2_Kx2}, {1, dotprod.DotQ2_Kx1}}, neon.UnpackQ2_K, manyKernels{}},
		quant.Q3_K:   {[]dotKernel{{4, dotprod.DotQ3_Kx4}, {2, dotprod.DotQ3_Kx2}, {1, dotprod.DotQ3_Kx1}}, neon.UnpackQ3_K, manyKernels{}},
		quant.Q4_K:   {[]dotKernel{{4, dotprod.DotQ4_Kx4}, {2, dotprod.DotQ4_Kx2}, {1, dotprod.DotQ4_Kx1}}, neon.UnpackQ4_K, manyKernels{}},
		quant.Q5_K:   {[]dotKernel{{4, dotprod.DotQ5_Kx4}, {2, dotprod.DotQ5_Kx2}, {1, dotprod.DotQ5_Kx1}}, neon.UnpackQ5_K, manyKernels{}},
		quant.Q6_K:   {[]dotKernel{{4, dotprod.DotQ6_Kx4}, {2, dotprod.DotQ6_Kx2}, {1, dotprod.DotQ6_Kx1}}, neon.UnpackQ6_K, manyKernels{}},
		quant.IQ4_NL: {[]dotKernel{{4, dotprod.DotIQ4_NLx4}, {2, dotprod.DotIQ4_NLx2}, {1, dotprod.DotIQ4_NLx1}}, neon.UnpackIQ4_NL, manyKernels{}},
		quant.IQ4_XS: {[]dotKernel{{4, dotprod.DotIQ4_XSx4}, {2, dotprod.DotIQ4_XSx2}, {1, dotprod.DotIQ4_XSx1}}, neon.UnpackIQ4_XS, manyKernels{}},
		quant.MXFP4:  {[]dotKernel{{4, dotprod.DotMXFP4x4}, {2, dotprod.DotMXFP4x2}, {1, dotprod.DotMXFP4x1}}, neon.UnpackMXFP4, manyKernels{}},
	},
}

var neonMachine = machine{
	quantize: neon.Quantize,
	panels:   panelsNEON,
	tiles: [64]tileKernels{
		quant.Q4_0:   {[]dotKernel{{2, neon.DotQ4_0x2}, {1, neon.DotQ4_0x1}}, neon.UnpackQ4_0, manyKernels{}},
		quant.Q4_1:   {[]dotKernel{{2, neon.DotQ4_1x2}, {1, neon.DotQ4_1x1}}, neon.UnpackQ4_1, manyKernels{}},
		quant.Q5_0:   {[]dotKernel{{2, neon.DotQ5_0x2}, {1, neon.DotQ5_0x1}}, neon.UnpackQ5_0, manyKernels{}},
		quant.Q5_1:   {[]dotKernel{{2, neon.DotQ5_1x2}, {1, neon.DotQ5_1x1}}, neon.UnpackQ5_1, manyKernels{}},
		quant.Q8_0:   {[]dotKernel{{2, neon.DotQ8_0x2}, {1, neon.DotQ8_0x1}}, neon.UnpackQ8_0, manyKernels{}},
		quant.Q2_K:   {[]dotKernel{{2, neon.DotQ2_Kx2}, {1, neon.DotQ2_Kx1}}, neon.UnpackQ2_K, manyKernels{}},
		quant.Q3_K:   {[]dotKernel{{2, neon.DotQ3_Kx2}, {1, neon.DotQ3_Kx1}}, neon.UnpackQ3_K, manyKernels{}},
		quant.Q4_K:   {[]dotKernel{{2, neon.DotQ4_Kx2}, {1, neon.DotQ4_Kx1}}, neon.UnpackQ4_K, manyKernels{}},
		quant.Q5_K:   {[]dotKernel{{2, neon.DotQ5_Kx2}, {1, neon.DotQ5_Kx1}}, neon.UnpackQ5_K, manyKernels{}},
		quant.Q6_K:   {[]dotKernel{{2, neon.DotQ6_Kx2}, {1, neon.DotQ6_Kx1}}, neon.UnpackQ6_K, manyKernels{}},
		quant.IQ4_NL: {[]dotKernel{{2, neon.DotIQ4_NLx2}, {1, neon.DotIQ4_NLx1}}, neon.UnpackIQ4_NL, manyKernels{}},
		quant.IQ4_XS: {[]dotKernel{{2, neon.DotIQ4_XSx2}, {1, neon.DotIQ4_XSx1}}, neon.UnpackIQ4_XS, manyKernels{}},
		quant.MXFP4:  {[]dotKernel{{2, neon.DotMXFP4x2}, {1, neon.DotMXFP4x1}}, neon.UnpackMXFP4, manyKernels{}},
	},
}
