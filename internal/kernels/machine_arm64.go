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
		quant.Q4_0:      {[]dotKernel{{4, i8mm.DotQ4_0x4}, {2, i8mm.DotQ4_0x2}, {1, dotprod.DotQ4_0x1}}, neon.UnpackQ4_0, manyKernels{i8mm.SpreadQ4_0, i8mm.ManyQ8_0}},
		quant.Q4_1:      {[]dotKernel{{4, i8mm.DotQ4_1x4}, {2, i8mm.DotQ4_1x2}, {1, dotprod.DotQ4_1x1}}, neon.UnpackQ4_1, manyKernels{i8mm.SpreadQ4_1, i8mm.ManyQ4_1}},
		quant.Q5_0:      {[]dotKernel{{4, i8mm.DotQ5_0x4}, {2, i8mm.DotQ5_0x2}, {1, dotprod.DotQ5_0x1}}, neon.UnpackQ5_0, manyKernels{i8mm.SpreadQ5_0, i8mm.ManyQ8_0}},
		quant.Q5_1:      {[]dotKernel{{4, i8mm.DotQ5_1x4}, {2, i8mm.DotQ5_1x2}, {1, dotprod.DotQ5_1x1}}, neon.UnpackQ5_1, manyKernels{i8mm.SpreadQ5_1, i8mm.ManyQ4_1}},
		quant.Q8_0:      {[]dotKernel{{4, i8mm.DotQ8_0x4}, {2, i8mm.DotQ8_0x2}, {1, dotprod.DotQ8_0x1}}, neon.UnpackQ8_0, manyKernels{i8mm.SpreadQ8_0, i8mm.ManyQ8_0}},
		quant.Q2_K:      {[]dotKernel{{4, i8mm.DotQ2_Kx4}, {2, i8mm.DotQ2_Kx2}, {1, dotprod.DotQ2_Kx1}}, neon.UnpackQ2_K, manyKernels{i8mm.SpreadQ2_K, i8mm.ManyQ2_K}},
		quant.Q3_K:      {[]dotKernel{{4, i8mm.DotQ3_Kx4}, {2, i8mm.DotQ3_Kx2}, {1, dotprod.DotQ3_Kx1}}, neon.UnpackQ3_K, manyKernels{i8mm.SpreadQ3_K, i8mm.ManyQ3_K}},
		quant.Q4_K:      {[]dotKernel{{4, i8mm.DotQ4_Kx4}, {2, i8mm.DotQ4_Kx2}, {1, dotprod.DotQ4_Kx1}}, neon.UnpackQ4_K, manyKernels{i8mm.SpreadQ4_K, i8mm.ManyQ4_1}},
		quant.Q5_K:      {[]dotKernel{{4, i8mm.DotQ5_Kx4}, {2, i8mm.DotQ5_Kx2}, {1, dotprod.DotQ5_Kx1}}, neon.UnpackQ5_K, manyKernels{i8mm.SpreadQ5_K, i8mm.ManyQ4_1}},
		quant.Q6_K:      {[]dotKernel{{4, i8mm.DotQ6_Kx4}, {2, i8mm.DotQ6_Kx2}, {1, dotprod.DotQ6_Kx1}}, neon.UnpackQ6_K, manyKernels{i8mm.SpreadQ6_K, i8mm.ManyQ3_K}},
		quant.IQ4_NL:    {[]dotKernel{{4, i8mm.DotIQ4_NLx4}, {2, i8mm.DotIQ4_NLx2}, {1, dotprod.DotIQ4_NLx1}}, neon.UnpackIQ4_NL, manyKernels{i8mm.SpreadIQ4_NL, i8mm.ManyQ8_0}},
		quant.IQ4_XS:    {[]dotKernel{{4, i8mm.DotIQ4_XSx4}, {2, i8mm.DotIQ4_XSx2}, {1, dotprod.DotIQ4_XSx1}}, neon.UnpackIQ4_XS, manyKernels{i8mm.SpreadIQ4_XS, i8mm.ManyQ8_0}},
		quant.MXFP4:     {[]dotKernel{{4, i8mm.DotMXFP4x4}, {2, i8mm.DotMXFP4x2}, {1, dotprod.DotMXFP4x1}}, neon.UnpackMXFP4, manyKernels{i8mm.SpreadMXFP4, i8mm.ManyQ8_0}},
		quant.NVFP4:     {[]dotKernel{{4, i8mm.DotNVFP4x4}, {2, i8mm.DotNVFP4x2}, {1, dotprod.DotNVFP4x1}}, neon.UnpackNVFP4, manyKernels{i8mm.SpreadNVFP4, i8mm.ManyQ3_K}},
		quant.NVFP4_F32: {[]dotKernel{{4, i8mm.DotNVFP4_F32x4}, {2, i8mm.DotNVFP4_F32x2}, {1, dotprod.DotNVFP4_F32x1}}, neon.UnpackNVFP4_F32, manyKernels{i8mm.SpreadNVFP4_F32, i8mm.ManyQ3_K}},
		quant.F8_E4M3:   {nil, neon.UnpackF8_E4M3, manyKernels{}},
		quant.IQ1_S:     {[]dotKernel{{4, i8mm.DotIQ1_Mx4}, {2, i8mm.DotIQ1_Mx2}, {1, dotprod.DotIQ1_Mx1}}, neon.UnpackIQ1_M, manyKernels{i8mm.SpreadIQ1_M, i8mm.ManyQ3_K}},
		quant.IQ1_M:     {[]dotKernel{{4, i8mm.DotIQ1_Mx4}, {2, i8mm.DotIQ1_Mx2}, {1, dotprod.DotIQ1_Mx1}}, neon.UnpackIQ1_M, manyKernels{i8mm.SpreadIQ1_M, i8mm.ManyQ3_K}},
		quant.IQ2_XXS:   {[]dotKernel{{4, i8mm.DotIQ2_XXSx4}, {2, i8mm.DotIQ2_XXSx2}, {1, dotprod.DotIQ2_XXSx1}}, neon.UnpackIQ2_XXS, manyKernels{i8mm.SpreadIQ2_XXS, i8mm.ManyQ8_0}},
		quant.IQ2_XS:    {[]dotKernel{{4, i8mm.DotIQ2_Sx4}, {2, i8mm.DotIQ2_Sx2}, {1, dotprod.DotIQ2_Sx1}}, neon.UnpackIQ2_S, manyKernels{i8mm.SpreadIQ2_S, i8mm.ManyQ3_K}},
		quant.IQ2_S:     {[]dotKernel{{4, i8mm.DotIQ2_Sx4}, {2, i8mm.DotIQ2_Sx2}, {1, dotprod.DotIQ2_Sx1}}, neon.UnpackIQ2_S, manyKernels{i8mm.SpreadIQ2_S, i8mm.ManyQ3_K}},
		quant.IQ3_XXS:   {[]dotKernel{{4, i8mm.DotIQ3_XXSx4}, {2, i8mm.DotIQ3_XXSx2}, {1, dotprod.DotIQ3_XXSx1}}, neon.UnpackIQ3_XXS, manyKernels{i8mm.SpreadIQ3_XXS, i8mm.ManyQ8_0}},
		quant.IQ3_S:     {[]dotKernel{{4, i8mm.DotIQ3_Sx4}, {2, i8mm.DotIQ3_Sx2}, {1, dotprod.DotIQ3_Sx1}}, neon.UnpackIQ3_S, manyKernels{i8mm.SpreadIQ3_S, i8mm.ManyQ8_0}},
		quant.TQ1_0:     {[]dotKernel{{4, i8mm.DotTQ2_0x4}, {2, i8mm.DotTQ2_0x2}, {1, dotprod.DotTQ2_0x1}}, neon.UnpackTQ2_0, manyKernels{i8mm.SpreadTQ2_0, i8mm.ManyQ8_0}},
		quant.TQ2_0:     {[]dotKernel{{4, i8mm.DotTQ2_0x4}, {2, i8mm.DotTQ2_0x2}, {1, dotprod.DotTQ2_0x1}}, neon.UnpackTQ2_0, manyKernels{i8mm.SpreadTQ2_0, i8mm.ManyQ8_0}},
	},
}

var dotProdMachine = machine{
	quantize: neon.Quantize,
	panels:   panelsNEON,
	tiles: [64]tileKernels{
		quant.Q4_0:      {[]dotKernel{{4, dotprod.DotQ4_0x4}, {2, dotprod.DotQ4_0x2}, {1, dotprod.DotQ4_0x1}}, neon.UnpackQ4_0, manyKernels{}},
		quant.Q4_1:      {[]dotKernel{{4, dotprod.DotQ4_1x4}, {2, dotprod.DotQ4_1x2}, {1, dotprod.DotQ4_1x1}}, neon.UnpackQ4_1, manyKernels{}},
		quant.Q5_0:      {[]dotKernel{{4, dotprod.DotQ5_0x4}, {2, dotprod.DotQ5_0x2}, {1, dotprod.DotQ5_0x1}}, neon.UnpackQ5_0, manyKernels{}},
		quant.Q5_1:      {[]dotKernel{{4, dotprod.DotQ5_1x4}, {2, dotprod.DotQ5_1x2}, {1, dotprod.DotQ5_1x1}}, neon.UnpackQ5_1, manyKernels{}},
		quant.Q8_0:      {[]dotKernel{{4, dotprod.DotQ8_0x4}, {2, dotprod.DotQ8_0x2}, {1, dotprod.DotQ8_0x1}}, neon.UnpackQ8_0, manyKernels{}},
		quant.Q2_K:      {[]dotKernel{{4, dotprod.DotQ2_Kx4}, {2, dotprod.DotQ2_Kx2}, {1, dotprod.DotQ2_Kx1}}, neon.UnpackQ2_K, manyKernels{}},
		quant.Q3_K:      {[]dotKernel{{4, dotprod.DotQ3_Kx4}, {2, dotprod.DotQ3_Kx2}, {1, dotprod.DotQ3_Kx1}}, neon.UnpackQ3_K, manyKernels{}},
		quant.Q4_K:      {[]dotKernel{{4, dotprod.DotQ4_Kx4}, {2, dotprod.DotQ4_Kx2}, {1, dotprod.DotQ4_Kx1}}, neon.UnpackQ4_K, manyKernels{}},
		quant.Q5_K:      {[]dotKernel{{4, dotprod.DotQ5_Kx4}, {2, dotprod.DotQ5_Kx2}, {1, dotprod.DotQ5_Kx1}}, neon.UnpackQ5_K, manyKernels{}},
		quant.Q6_K:      {[]dotKernel{{4, dotprod.DotQ6_Kx4}, {2, dotprod.DotQ6_Kx2}, {1, dotprod.DotQ6_Kx1}}, neon.UnpackQ6_K, manyKernels{}},
		quant.IQ4_NL:    {[]dotKernel{{4, dotprod.DotIQ4_NLx4}, {2, dotprod.DotIQ4_NLx2}, {1, dotprod.DotIQ4_NLx1}}, neon.UnpackIQ4_NL, manyKernels{}},
		quant.IQ4_XS:    {[]dotKernel{{4, dotprod.DotIQ4_XSx4}, {2, dotprod.DotIQ4_XSx2}, {1, dotprod.DotIQ4_XSx1}}, neon.UnpackIQ4_XS, manyKernels{}},
		quant.MXFP4:     {[]dotKernel{{4, dotprod.DotMXFP4x4}, {2, dotprod.DotMXFP4x2}, {1, dotprod.DotMXFP4x1}}, neon.UnpackMXFP4, manyKernels{}},
		quant.NVFP4:     {[]dotKernel{{4, dotprod.DotNVFP4x4}, {2, dotprod.DotNVFP4x2}, {1, dotprod.DotNVFP4x1}}, neon.UnpackNVFP4, manyKernels{}},
		quant.NVFP4_F32: {[]dotKernel{{4, dotprod.DotNVFP4_F32x4}, {2, dotprod.DotNVFP4_F32x2}, {1, dotprod.DotNVFP4_F32x1}}, neon.UnpackNVFP4_F32, manyKernels{}},
		quant.F8_E4M3:   {nil, neon.UnpackF8_E4M3, manyKernels{}},
		quant.IQ1_S:     {[]dotKernel{{4, dotprod.DotIQ1_Mx4}, {2, dotprod.DotIQ1_Mx2}, {1, dotprod.DotIQ1_Mx1}}, neon.UnpackIQ1_M, manyKernels{}},
		quant.IQ1_M:     {[]dotKernel{{4, dotprod.DotIQ1_Mx4}, {2, dotprod.DotIQ1_Mx2}, {1, dotprod.DotIQ1_Mx1}}, neon.UnpackIQ1_M, manyKernels{}},
		quant.IQ2_XXS:   {[]dotKernel{{4, dotprod.DotIQ2_XXSx4}, {2, dotprod.DotIQ2_XXSx2}, {1, dotprod.DotIQ2_XXSx1}}, neon.UnpackIQ2_XXS, manyKernels{}},
		quant.IQ2_XS:    {[]dotKernel{{4, dotprod.DotIQ2_Sx4}, {2, dotprod.DotIQ2_Sx2}, {1, dotprod.DotIQ2_Sx1}}, neon.UnpackIQ2_S, manyKernels{}},
		quant.IQ2_S:     {[]dotKernel{{4, dotprod.DotIQ2_Sx4}, {2, dotprod.DotIQ2_Sx2}, {1, dotprod.DotIQ2_Sx1}}, neon.UnpackIQ2_S, manyKernels{}},
		quant.IQ3_XXS:   {[]dotKernel{{4, dotprod.DotIQ3_XXSx4}, {2, dotprod.DotIQ3_XXSx2}, {1, dotprod.DotIQ3_XXSx1}}, neon.UnpackIQ3_XXS, manyKernels{}},
		quant.IQ3_S:     {[]dotKernel{{4, dotprod.DotIQ3_Sx4}, {2, dotprod.DotIQ3_Sx2}, {1, dotprod.DotIQ3_Sx1}}, neon.UnpackIQ3_S, manyKernels{}},
		quant.TQ1_0:     {[]dotKernel{{4, dotprod.DotTQ2_0x4}, {2, dotprod.DotTQ2_0x2}, {1, dotprod.DotTQ2_0x1}}, neon.UnpackTQ2_0, manyKernels{}},
		quant.TQ2_0:     {[]dotKernel{{4, dotprod.DotTQ2_0x4}, {2, dotprod.DotTQ2_0x2}, {1, dotprod.DotTQ2_0x1}}, neon.UnpackTQ2_0, manyKernels{}},
	},
}

var neonMachine = machine{
	quantize: neon.Quantize,
	panels:   panelsNEON,
	tiles: [64]tileKernels{
		quant.Q4_0:      {[]dotKernel{{2, neon.DotQ4_0x2}, {1, neon.DotQ4_0x1}}, neon.UnpackQ4_0, manyKernels{}},
		quant.Q4_1:      {[]dotKernel{{2, neon.DotQ4_1x2}, {1, neon.DotQ4_1x1}}, neon.UnpackQ4_1, manyKernels{}},
		quant.Q5_0:      {[]dotKernel{{2, neon.DotQ5_0x2}, {1, neon.DotQ5_0x1}}, neon.UnpackQ5_0, manyKernels{}},
		quant.Q5_1:      {[]dotKernel{{2, neon.DotQ5_1x2}, {1, neon.DotQ5_1x1}}, neon.UnpackQ5_1, manyKernels{}},
		quant.Q8_0:      {[]dotKernel{{2, neon.DotQ8_0x2}, {1, neon.DotQ8_0x1}}, neon.UnpackQ8_0, manyKernels{}},
		quant.Q2_K:      {[]dotKernel{{2, neon.DotQ2_Kx2}, {1, neon.DotQ2_Kx1}}, neon.UnpackQ2_K, manyKernels{}},
		quant.Q3_K:      {[]dotKernel{{2, neon.DotQ3_Kx2}, {1, neon.DotQ3_Kx1}}, neon.UnpackQ3_K, manyKernels{}},
		quant.Q4_K:      {[]dotKernel{{2, neon.DotQ4_Kx2}, {1, neon.DotQ4_Kx1}}, neon.UnpackQ4_K, manyKernels{}},
		quant.Q5_K:      {[]dotKernel{{2, neon.DotQ5_Kx2}, {1, neon.DotQ5_Kx1}}, neon.UnpackQ5_K, manyKernels{}},
		quant.Q6_K:      {[]dotKernel{{2, neon.DotQ6_Kx2}, {1, neon.DotQ6_Kx1}}, neon.UnpackQ6_K, manyKernels{}},
		quant.IQ4_NL:    {[]dotKernel{{2, neon.DotIQ4_NLx2}, {1, neon.DotIQ4_NLx1}}, neon.UnpackIQ4_NL, manyKernels{}},
		quant.IQ4_XS:    {[]dotKernel{{2, neon.DotIQ4_XSx2}, {1, neon.DotIQ4_XSx1}}, neon.UnpackIQ4_XS, manyKernels{}},
		quant.MXFP4:     {[]dotKernel{{2, neon.DotMXFP4x2}, {1, neon.DotMXFP4x1}}, neon.UnpackMXFP4, manyKernels{}},
		quant.NVFP4:     {[]dotKernel{{2, neon.DotNVFP4x2}, {1, neon.DotNVFP4x1}}, neon.UnpackNVFP4, manyKernels{}},
		quant.NVFP4_F32: {[]dotKernel{{2, neon.DotNVFP4_F32x2}, {1, neon.DotNVFP4_F32x1}}, neon.UnpackNVFP4_F32, manyKernels{}},
		quant.F8_E4M3:   {nil, neon.UnpackF8_E4M3, manyKernels{}},
		quant.IQ1_S:     {[]dotKernel{{2, neon.DotIQ1_Mx2}, {1, neon.DotIQ1_Mx1}}, neon.UnpackIQ1_M, manyKernels{}},
		quant.IQ1_M:     {[]dotKernel{{2, neon.DotIQ1_Mx2}, {1, neon.DotIQ1_Mx1}}, neon.UnpackIQ1_M, manyKernels{}},
		quant.IQ2_XXS:   {[]dotKernel{{2, neon.DotIQ2_XXSx2}, {1, neon.DotIQ2_XXSx1}}, neon.UnpackIQ2_XXS, manyKernels{}},
		quant.IQ2_XS:    {[]dotKernel{{2, neon.DotIQ2_Sx2}, {1, neon.DotIQ2_Sx1}}, neon.UnpackIQ2_S, manyKernels{}},
		quant.IQ2_S:     {[]dotKernel{{2, neon.DotIQ2_Sx2}, {1, neon.DotIQ2_Sx1}}, neon.UnpackIQ2_S, manyKernels{}},
		quant.IQ3_XXS:   {[]dotKernel{{2, neon.DotIQ3_XXSx2}, {1, neon.DotIQ3_XXSx1}}, neon.UnpackIQ3_XXS, manyKernels{}},
		quant.IQ3_S:     {[]dotKernel{{2, neon.DotIQ3_Sx2}, {1, neon.DotIQ3_Sx1}}, neon.UnpackIQ3_S, manyKernels{}},
		quant.TQ1_0:     {[]dotKernel{{2, neon.DotTQ2_0x2}, {1, neon.DotTQ2_0x1}}, neon.UnpackTQ2_0, manyKernels{}},
		quant.TQ2_0:     {[]dotKernel{{2, neon.DotTQ2_0x2}, {1, neon.DotTQ2_0x1}}, neon.UnpackTQ2_0, manyKernels{}},
	},
}
