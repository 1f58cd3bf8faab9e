//go:build amd64 && !purego

package kernels

import (
	"unsafe"

	"github.com/klauspost/cpuid/v2"

	"terrace/internal/kernels/amd64/amx"
	"terrace/internal/kernels/amd64/avx2"
	"terrace/internal/kernels/amd64/avx512"
	"terrace/internal/kernels/quant"
)

// pairedBF16 says that tiles of BF16 have pairs of columns.
const pairedBF16 = true

func init() {
	if cpuid.CPU.Supports(cpuid.AVX512BF16) {
		avx512Machine.matrix = &pairsUnit
	}
	onSelect(func(path isa) {
		switch {
		case path == isaAMX:
			simd = &amxMachine
		case path == isaAVX512:
			simd = &avx512Machine
		case path == isaAVX2:
			simd = &avx2Machine
		default:
			simd = nil
		}
	})
}

// Products get a copy of their arguments on the stack, since assembly moves pointers past what they point to: in the heap the collector
// refuses such pointers.

// pairsUnit does the work of the matrix unit with VDPBF16PS, 32 multiply-adds an instruction: faster than float32 for
// types of 16 bits, slower than VPDPBUSD (64) for the quantised ones.
var pairsUnit = matrixUnit{
	round:    amx.Round,
	multiply: func(_ *byte, args *tileArgs) { own := *args; avx512.Pairs((*byte)(unsafe.Pointer(&own))) },
	unpack:   [64]func(panel, tile *byte, records int){quant.F16: amx.UnpackF16},
}

var avx512Machine = machine{
	quantize: avx512.Quantize,
	group:    avx512.Quantize16,
	tiles: [64]tileKernels{
		quant.Q4_0:      {[]dotKernel{{16, avx512.DotQ4_0x16}, {8, avx512.DotQ4_0x8}, {4, avx512.DotQ4_0x4}, {2, avx512.DotQ4_0x2}, {1, avx512.DotQ4_0x1}}, avx512.UnpackQ4_0, manyKernels{}},
		quant.Q4_1:      {[]dotKernel{{16, avx512.DotQ4_1x16}, {8, avx512.DotQ4_1x8}, {4, avx512.DotQ4_1x4}, {2, avx512.DotQ4_1x2}, {1, avx512.DotQ4_1x1}}, avx512.UnpackQ4_1, manyKernels{}},
		quant.Q5_0:      {[]dotKernel{{16, avx512.DotQ5_0x16}, {8, avx512.DotQ5_0x8}, {4, avx512.DotQ5_0x4}, {2, avx512.DotQ5_0x2}, {1, avx512.DotQ5_0x1}}, avx512.UnpackQ5_0, manyKernels{}},
		quant.Q5_1:      {[]dotKernel{{16, avx512.DotQ5_1x16}, {8, avx512.DotQ5_1x8}, {4, avx512.DotQ5_1x4}, {2, avx512.DotQ5_1x2}, {1, avx512.DotQ5_1x1}}, avx512.UnpackQ5_1, manyKernels{}},
		quant.Q8_0:      {[]dotKernel{{16, avx512.DotQ8_0x16}, {8, avx512.DotQ8_0x8}, {4, avx512.DotQ8_0x4}, {2, avx512.DotQ8_0x2}, {1, avx512.DotQ8_0x1}}, avx512.UnpackQ8_0, manyKernels{}},
		quant.Q2_K:      {[]dotKernel{{16, avx512.DotQ2_Kx16}, {8, avx512.DotQ2_Kx8}, {4, avx512.DotQ2_Kx4}, {2, avx512.DotQ2_Kx2}, {1, avx512.DotQ2_Kx1}}, avx512.UnpackQ2_K, manyKernels{}},
		quant.Q3_K:      {[]dotKernel{{16, avx512.DotQ3_Kx16}, {8, avx512.DotQ3_Kx8}, {4, avx512.DotQ3_Kx4}, {2, avx512.DotQ3_Kx2}, {1, avx512.DotQ3_Kx1}}, avx512.UnpackQ3_K, manyKernels{}},
		quant.Q4_K:      {[]dotKernel{{16, avx512.DotQ4_Kx16}, {8, avx512.DotQ4_Kx8}, {4, avx512.DotQ4_Kx4}, {2, avx512.DotQ4_Kx2}, {1, avx512.DotQ4_Kx1}}, avx512.UnpackQ4_K, manyKernels{}},
		quant.Q5_K:      {[]dotKernel{{16, avx512.DotQ5_Kx16}, {8, avx512.DotQ5_Kx8}, {4, avx512.DotQ5_Kx4}, {2, avx512.DotQ5_Kx2}, {1, avx512.DotQ5_Kx1}}, avx512.UnpackQ5_K, manyKernels{}},
		quant.Q6_K:      {[]dotKernel{{16, avx512.DotQ6_Kx16}, {8, avx512.DotQ6_Kx8}, {4, avx512.DotQ6_Kx4}, {2, avx512.DotQ6_Kx2}, {1, avx512.DotQ6_Kx1}}, avx512.UnpackQ6_K, manyKernels{}},
		quant.IQ4_NL:    {[]dotKernel{{16, avx512.DotIQ4_NLx16}, {8, avx512.DotIQ4_NLx8}, {4, avx512.DotIQ4_NLx4}, {2, avx512.DotIQ4_NLx2}, {1, avx512.DotIQ4_NLx1}}, avx512.UnpackIQ4_NL, manyKernels{}},
		quant.IQ4_XS:    {[]dotKernel{{16, avx512.DotIQ4_XSx16}, {8, avx512.DotIQ4_XSx8}, {4, avx512.DotIQ4_XSx4}, {2, avx512.DotIQ4_XSx2}, {1, avx512.DotIQ4_XSx1}}, avx512.UnpackIQ4_XS, manyKernels{}},
		quant.MXFP4:     {[]dotKernel{{16, avx512.DotMXFP4x16}, {8, avx512.DotMXFP4x8}, {4, avx512.DotMXFP4x4}, {2, avx512.DotMXFP4x2}, {1, avx512.DotMXFP4x1}}, avx512.UnpackMXFP4, manyKernels{}},
		quant.NVFP4:     {[]dotKernel{{16, avx512.DotNVFP4x16}, {8, avx512.DotNVFP4x8}, {4, avx512.DotNVFP4x4}, {2, avx512.DotNVFP4x2}, {1, avx512.DotNVFP4x1}}, avx512.UnpackNVFP4, manyKernels{}},
		quant.NVFP4_F32: {[]dotKernel{{16, avx512.DotNVFP4_F32x16}, {8, avx512.DotNVFP4_F32x8}, {4, avx512.DotNVFP4_F32x4}, {2, avx512.DotNVFP4_F32x2}, {1, avx512.DotNVFP4_F32x1}}, avx512.UnpackNVFP4_F32, manyKernels{}},
		quant.F8_E4M3:   {nil, avx512.UnpackF8_E4M3, manyKernels{}},
		quant.IQ1_S:     {[]dotKernel{{16, avx512.DotIQ1_Mx16}, {8, avx512.DotIQ1_Mx8}, {4, avx512.DotIQ1_Mx4}, {2, avx512.DotIQ1_Mx2}, {1, avx512.DotIQ1_Mx1}}, avx512.UnpackIQ1_M, manyKernels{}},
		quant.IQ1_M:     {[]dotKernel{{16, avx512.DotIQ1_Mx16}, {8, avx512.DotIQ1_Mx8}, {4, avx512.DotIQ1_Mx4}, {2, avx512.DotIQ1_Mx2}, {1, avx512.DotIQ1_Mx1}}, avx512.UnpackIQ1_M, manyKernels{}},
		quant.IQ2_XXS:   {[]dotKernel{{16, avx512.DotIQ2_XXSx16}, {8, avx512.DotIQ2_XXSx8}, {4, avx512.DotIQ2_XXSx4}, {2, avx512.DotIQ2_XXSx2}, {1, avx512.DotIQ2_XXSx1}}, avx512.UnpackIQ2_XXS, manyKernels{}},
		quant.IQ2_XS:    {[]dotKernel{{16, avx512.DotIQ2_Sx16}, {8, avx512.DotIQ2_Sx8}, {4, avx512.DotIQ2_Sx4}, {2, avx512.DotIQ2_Sx2}, {1, avx512.DotIQ2_Sx1}}, avx512.UnpackIQ2_S, manyKernels{}},
		quant.IQ2_S:     {[]dotKernel{{16, avx512.DotIQ2_Sx16}, {8, avx512.DotIQ2_Sx8}, {4, avx512.DotIQ2_Sx4}, {2, avx512.DotIQ2_Sx2}, {1, avx512.DotIQ2_Sx1}}, avx512.UnpackIQ2_S, manyKernels{}},
		quant.IQ3_XXS:   {[]dotKernel{{16, avx512.DotIQ3_XXSx16}, {8, avx512.DotIQ3_XXSx8}, {4, avx512.DotIQ3_XXSx4}, {2, avx512.DotIQ3_XXSx2}, {1, avx512.DotIQ3_XXSx1}}, avx512.UnpackIQ3_XXS, manyKernels{}},
		quant.IQ3_S:     {[]dotKernel{{16, avx512.DotIQ3_Sx16}, {8, avx512.DotIQ3_Sx8}, {4, avx512.DotIQ3_Sx4}, {2, avx512.DotIQ3_Sx2}, {1, avx512.DotIQ3_Sx1}}, avx512.UnpackIQ3_S, manyKernels{}},
		quant.TQ1_0:     {[]dotKernel{{16, avx512.DotTQ2_0x16}, {8, avx512.DotTQ2_0x8}, {4, avx512.DotTQ2_0x4}, {2, avx512.DotTQ2_0x2}, {1, avx512.DotTQ2_0x1}}, avx512.UnpackTQ2_0, manyKernels{}},
		quant.TQ2_0:     {[]dotKernel{{16, avx512.DotTQ2_0x16}, {8, avx512.DotTQ2_0x8}, {4, avx512.DotTQ2_0x4}, {2, avx512.DotTQ2_0x2}, {1, avx512.DotTQ2_0x1}}, avx512.UnpackTQ2_0, manyKernels{}},
	},
	panels: [64][]panelKernel{
		quant.F32:  {{8, avx512.PanelF32x8}, {4, avx512.PanelF32x4}, {2, avx512.PanelF32x2}, {1, avx512.PanelF32x1}},
		quant.F16:  {{8, avx512.PanelF16x8}, {4, avx512.PanelF16x4}, {2, avx512.PanelF16x2}, {1, avx512.PanelF16x1}},
		quant.BF16: {{8, avx512.PanelBF16x8}, {4, avx512.PanelBF16x4}, {2, avx512.PanelBF16x2}, {1, avx512.PanelBF16x1}},
	},
	pack: [64]packKernel{
		quant.Q4_0: avx512.PackQ4_0, quant.Q4_1: avx512.PackQ4_1, quant.Q5_0: avx512.PackQ5_0, quant.Q5_1: avx512.PackQ5_1,
		quant.Q8_0: avx512.PackQ8_0, quant.Q4_K: avx512.PackQ4_K, quant.Q5_K: avx512.PackQ5_K, quant.Q6_K: avx512.PackQ6_K,
		quant.IQ4_NL: avx512.PackQ4_0, quant.F16: avx512.PackHalves, quant.BF16: avx512.PackWords, quant.F32: avx512.PackWords,
	},
}

var avx2Machine = machine{
	quantize: avx2.Quantize,
	tiles: [64]tileKernels{
		quant.Q4_0:      {[]dotKernel{{4, avx2.DotQ4_0x4}, {2, avx2.DotQ4_0x2}, {1, avx2.DotQ4_0x1}}, avx2.UnpackQ4_0, manyKernels{avx2.SpreadQ4_0, avx2.ManyQ4_0}},
		quant.Q4_1:      {[]dotKernel{{4, avx2.DotQ4_1x4}, {2, avx2.DotQ4_1x2}, {1, avx2.DotQ4_1x1}}, avx2.UnpackQ4_1, manyKernels{avx2.SpreadQ4_1, avx2.ManyQ4_1}},
		quant.Q5_0:      {[]dotKernel{{4, avx2.DotQ5_0x4}, {2, avx2.DotQ5_0x2}, {1, avx2.DotQ5_0x1}}, avx2.UnpackQ5_0, manyKernels{avx2.SpreadQ5_0, avx2.ManyQ5_0}},
		quant.Q5_1:      {[]dotKernel{{4, avx2.DotQ5_1x4}, {2, avx2.DotQ5_1x2}, {1, avx2.DotQ5_1x1}}, avx2.UnpackQ5_1, manyKernels{avx2.SpreadQ5_1, avx2.ManyQ5_1}},
		quant.Q8_0:      {[]dotKernel{{4, avx2.DotQ8_0x4}, {2, avx2.DotQ8_0x2}, {1, avx2.DotQ8_0x1}}, avx2.UnpackQ8_0, manyKernels{avx2.SpreadQ8_0, avx2.ManyQ8_0}},
		quant.Q2_K:      {[]dotKernel{{4, avx2.DotQ2_Kx4}, {2, avx2.DotQ2_Kx2}, {1, avx2.DotQ2_Kx1}}, avx2.UnpackQ2_K, manyKernels{avx2.SpreadQ2_K, avx2.ManyQ2_K}},
		quant.Q3_K:      {[]dotKernel{{4, avx2.DotQ3_Kx4}, {2, avx2.DotQ3_Kx2}, {1, avx2.DotQ3_Kx1}}, avx2.UnpackQ3_K, manyKernels{avx2.SpreadQ3_K, avx2.ManyQ3_K}},
		quant.Q4_K:      {[]dotKernel{{4, avx2.DotQ4_Kx4}, {2, avx2.DotQ4_Kx2}, {1, avx2.DotQ4_Kx1}}, avx2.UnpackQ4_K, manyKernels{avx2.SpreadQ4_K, avx2.ManyQ4_1}},
		quant.Q5_K:      {[]dotKernel{{4, avx2.DotQ5_Kx4}, {2, avx2.DotQ5_Kx2}, {1, avx2.DotQ5_Kx1}}, avx2.UnpackQ5_K, manyKernels{avx2.SpreadQ5_K, avx2.ManyQ5_1}},
		quant.Q6_K:      {[]dotKernel{{4, avx2.DotQ6_Kx4}, {2, avx2.DotQ6_Kx2}, {1, avx2.DotQ6_Kx1}}, avx2.UnpackQ6_K, manyKernels{avx2.SpreadQ6_K, avx2.ManyQ6_K}},
		quant.IQ4_NL:    {[]dotKernel{{4, avx2.DotIQ4_NLx4}, {2, avx2.DotIQ4_NLx2}, {1, avx2.DotIQ4_NLx1}}, avx2.UnpackIQ4_NL, manyKernels{avx2.SpreadIQ4_NL, avx2.ManyQ8_0}},
		quant.IQ4_XS:    {[]dotKernel{{4, avx2.DotIQ4_XSx4}, {2, avx2.DotIQ4_XSx2}, {1, avx2.DotIQ4_XSx1}}, avx2.UnpackIQ4_XS, manyKernels{avx2.SpreadIQ4_XS, avx2.ManyQ8_0}},
		quant.MXFP4:     {[]dotKernel{{4, avx2.DotMXFP4x4}, {2, avx2.DotMXFP4x2}, {1, avx2.DotMXFP4x1}}, avx2.UnpackMXFP4, manyKernels{avx2.SpreadMXFP4, avx2.ManyQ8_0}},
		quant.NVFP4:     {[]dotKernel{{4, avx2.DotNVFP4x4}, {2, avx2.DotNVFP4x2}, {1, avx2.DotNVFP4x1}}, avx2.UnpackNVFP4, manyKernels{avx2.SpreadNVFP4, avx2.ManyNVFP4}},
		quant.NVFP4_F32: {[]dotKernel{{4, avx2.DotNVFP4_F32x4}, {2, avx2.DotNVFP4_F32x2}, {1, avx2.DotNVFP4_F32x1}}, avx2.UnpackNVFP4_F32, manyKernels{avx2.SpreadNVFP4_F32, avx2.ManyNVFP4}},
		quant.F8_E4M3:   {nil, avx2.UnpackF8_E4M3, manyKernels{}},
		quant.IQ1_S:     {[]dotKernel{{4, avx2.DotIQ1_Mx4}, {2, avx2.DotIQ1_Mx2}, {1, avx2.DotIQ1_Mx1}}, avx2.UnpackIQ1_M, manyKernels{avx2.SpreadIQ1_M, avx2.ManyNVFP4}},
		quant.IQ1_M:     {[]dotKernel{{4, avx2.DotIQ1_Mx4}, {2, avx2.DotIQ1_Mx2}, {1, avx2.DotIQ1_Mx1}}, avx2.UnpackIQ1_M, manyKernels{avx2.SpreadIQ1_M, avx2.ManyNVFP4}},
		quant.IQ2_XXS:   {[]dotKernel{{4, avx2.DotIQ2_XXSx4}, {2, avx2.DotIQ2_XXSx2}, {1, avx2.DotIQ2_XXSx1}}, avx2.UnpackIQ2_XXS, manyKernels{avx2.SpreadIQ2_XXS, avx2.ManyQ8_0}},
		quant.IQ2_XS:    {[]dotKernel{{4, avx2.DotIQ2_Sx4}, {2, avx2.DotIQ2_Sx2}, {1, avx2.DotIQ2_Sx1}}, avx2.UnpackIQ2_S, manyKernels{avx2.SpreadIQ2_S, avx2.ManyNVFP4}},
		quant.IQ2_S:     {[]dotKernel{{4, avx2.DotIQ2_Sx4}, {2, avx2.DotIQ2_Sx2}, {1, avx2.DotIQ2_Sx1}}, avx2.UnpackIQ2_S, manyKernels{avx2.SpreadIQ2_S, avx2.ManyNVFP4}},
		quant.IQ3_XXS:   {[]dotKernel{{4, avx2.DotIQ3_XXSx4}, {2, avx2.DotIQ3_XXSx2}, {1, avx2.DotIQ3_XXSx1}}, avx2.UnpackIQ3_XXS, manyKernels{avx2.SpreadIQ3_XXS, avx2.ManyQ8_0}},
		quant.IQ3_S:     {[]dotKernel{{4, avx2.DotIQ3_Sx4}, {2, avx2.DotIQ3_Sx2}, {1, avx2.DotIQ3_Sx1}}, avx2.UnpackIQ3_S, manyKernels{avx2.SpreadIQ3_S, avx2.ManyQ8_0}},
		quant.TQ1_0:     {[]dotKernel{{4, avx2.DotTQ2_0x4}, {2, avx2.DotTQ2_0x2}, {1, avx2.DotTQ2_0x1}}, avx2.UnpackTQ2_0, manyKernels{avx2.SpreadTQ2_0, avx2.ManyTQ2_0}},
		quant.TQ2_0:     {[]dotKernel{{4, avx2.DotTQ2_0x4}, {2, avx2.DotTQ2_0x2}, {1, avx2.DotTQ2_0x1}}, avx2.UnpackTQ2_0, manyKernels{avx2.SpreadTQ2_0, avx2.ManyTQ2_0}},
	},
	panels: [64][]panelKernel{
		quant.F32:  {{4, avx2.PanelF32x4}, {2, avx2.PanelF32x2}, {1, avx2.PanelF32x1}},
		quant.F16:  {{4, avx2.PanelF16x4}, {2, avx2.PanelF16x2}, {1, avx2.PanelF16x1}},
		quant.BF16: {{4, avx2.PanelBF16x4}, {2, avx2.PanelBF16x2}, {1, avx2.PanelBF16x1}},
	},
	pack: [64]packKernel{
		quant.Q4_0: avx2.PackQ4_0, quant.Q4_1: avx2.PackQ4_1, quant.Q5_0: avx2.PackQ5_0, quant.Q5_1: avx2.PackQ5_1,
		quant.Q8_0: avx2.PackQ8_0, quant.Q4_K: avx2.PackQ4_K, quant.Q5_K: avx2.PackQ5_K, quant.Q6_K: avx2.PackQ6_K,
		quant.IQ4_NL: avx2.PackQ4_0, quant.F16: avx2.PackHalves, quant.BF16: avx2.PackWords, quant.F32: avx2.PackWords,
	},
}

// amxMachine is avx512Machine with the matrix unit. F32 weights stay in float32: a model keeps them where bf16 is too
// coarse.
var amxMachine = machine{
	quantize: avx512Machine.quantize,
	group:    avx512Machine.group,
	tiles:    avx512Machine.tiles,
	panels:   avx512Machine.panels,
	pack:     avx512Machine.pack,
	matrix: &matrixUnit{
		round:    amx.Round,
		split:    amx.Split,
		multiply: func(config *byte, args *tileArgs) { own := *args; amx.Tiles(config, (*byte)(unsafe.Pointer(&own))) },
		once:     func(config *byte, args *tileArgs) { own := *args; amx.TilesOnce(config, (*byte)(unsafe.Pointer(&own))) },
		unpack: [64]func(panel, tile *byte, records int){
			quant.Q4_0:      amx.UnpackQ4_0,
			quant.Q4_1:      amx.UnpackQ4_1,
			quant.Q5_0:      amx.UnpackQ5_0,
			quant.Q5_1:      amx.UnpackQ5_1,
			quant.Q8_0:      amx.UnpackQ8_0,
			quant.Q2_K:      amx.UnpackQ2_K,
			quant.Q3_K:      amx.UnpackQ3_K,
			quant.Q4_K:      amx.UnpackQ4_K,
			quant.Q5_K:      amx.UnpackQ5_K,
			quant.Q6_K:      amx.UnpackQ6_K,
			quant.IQ4_NL:    amx.UnpackIQ4_NL,
			quant.IQ4_XS:    amx.UnpackIQ4_XS,
			quant.MXFP4:     amx.UnpackMXFP4,
			quant.NVFP4:     amx.UnpackNVFP4,
			quant.NVFP4_F32: amx.UnpackNVFP4_F32,
			quant.F8_E4M3:   amx.UnpackF8_E4M3,
			quant.IQ1_S:     amx.UnpackIQ1_M,
			quant.IQ1_M:     amx.UnpackIQ1_M,
			quant.IQ2_XXS:   amx.UnpackIQ2_XXS,
			quant.IQ2_XS:    amx.UnpackIQ2_S,
			quant.IQ2_S:     amx.UnpackIQ2_S,
			quant.IQ3_XXS:   amx.UnpackIQ3_XXS,
			quant.IQ3_S:     amx.UnpackIQ3_S,
			quant.TQ1_0:     amx.UnpackTQ2_0,
			quant.TQ2_0:     amx.UnpackTQ2_0,
			quant.F16:       amx.UnpackF16,
		},
	},
}
