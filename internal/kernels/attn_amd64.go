//go:build amd64 && !purego

package kernels

import (
	"github.com/klauspost/cpuid/v2"

	"terrace/internal/kernels/amd64/avx2"
	"terrace/internal/kernels/amd64/avx512"
)

func init() {
	onSelect(func(path isa) {
		switch {
		case path >= isaAVX512:
			attn = attnAVX512
			if cpuid.CPU.Supports(cpuid.AVX512BF16) {
				attn.bf16 = &bf16AVX512
			}
			if path == isaAMX {
				attn.bf16 = &bf16AMX
			}
		case path == isaAVX2:
			attn = attnAVX2
		default:
			attn = plainAttn
		}
	})
}

var attnAVX512 = attnASM{
	score: [7][mostHeads]scoreFunc{
		{avx512.ScoreF32x1, avx512.ScoreF32x2, avx512.ScoreF32x3, avx512.ScoreF32x4},
		{avx512.ScoreF16x1, avx512.ScoreF16x2, avx512.ScoreF16x3, avx512.ScoreF16x4},
		{avx512.ScoreBF16x1, avx512.ScoreBF16x2, avx512.ScoreBF16x3, avx512.ScoreBF16x4},
		{avx512.ScoreI8x1, avx512.ScoreI8x2, avx512.ScoreI8x3, avx512.ScoreI8x4},
		{avx512.ScoreI4x1, avx512.ScoreI4x2, avx512.ScoreI4x3, avx512.ScoreI4x4}},
	weigh: [7][mostHeads]weighFunc{
		{avx512.WeighF32x1, avx512.WeighF32x2, avx512.WeighF32x3, avx512.WeighF32x4},
		{avx512.WeighF16x1, avx512.WeighF16x2, avx512.WeighF16x3, avx512.WeighF16x4},
		{avx512.WeighBF16x1, avx512.WeighBF16x2, avx512.WeighBF16x3, avx512.WeighBF16x4},
		{avx512.WeighI8x1, avx512.WeighI8x2, avx512.WeighI8x3, avx512.WeighI8x4},
		{avx512.WeighI4x1, avx512.WeighI4x2, avx512.WeighI4x3, avx512.WeighI4x4}},
	integers: &integersAVX512,
	low:      &lowAVX2, expandLowKeys: expandLowKeys, expandLowValues: expandLowValues,
	packKeys:     [3]func(*float32, *byte, int){avx512.PackKeysF32, avx512.PackKeysF16, avx512.PackKeysBF16},
	packValues:   [3]func(*float32, *byte, int, int){avx512.PackValuesF32, avx512.PackValuesF16, avx512.PackValuesBF16},
	expandKeys:   [2]func(*byte, *byte, int){avx512.ExpandKeysI8, avx512.ExpandKeysI4},
	expandValues: [2]func(*byte, *byte, int){avx512.ExpandValuesI8, avx512.ExpandValuesI4},
	gemm:         avx512.GemmF32,
	softmax:      [2]func(*float32, int, *float32, *float32, *float32){avx512.SoftmaxBlockFast, avx512.SoftmaxBlockExact},
	columnSums:   avx512.ColumnSums,
	expSum:       avx512.ExpSum,
}.ops()

var attnAVX2 = attnASM{
	score: [7][mostHeads]scoreFunc{
		{avx2.ScoreF32x1, avx2.ScoreF32x2, avx2.ScoreF32x3, avx2.ScoreF32x4, avx2.ScoreF32x5, avx2.ScoreF32x6},
		{avx2.ScoreF16x1, avx2.ScoreF16x2, avx2.ScoreF16x3, avx2.ScoreF16x4, avx2.ScoreF16x5, avx2.ScoreF16x6},
		{avx2.ScoreBF16x1, avx2.ScoreBF16x2, avx2.ScoreBF16x3, avx2.ScoreBF16x4, avx2.ScoreBF16x5, avx2.ScoreBF16x6}},
	weigh: [7][mostHeads]weighFunc{
		{avx2.WeighF32x1, avx2.WeighF32x2, avx2.WeighF32x3, avx2.WeighF32x4, avx2.WeighF32x5, avx2.WeighF32x6},
		{avx2.WeighF16x1, avx2.WeighF16x2, avx2.WeighF16x3, avx2.WeighF16x4, avx2.WeighF16x5, avx2.WeighF16x6},
		{avx2.WeighBF16x1, avx2.WeighBF16x2, avx2.WeighBF16x3, avx2.WeighBF16x4, avx2.WeighBF16x5, avx2.WeighBF16x6}},
	integers: &integersAVX2,
	low:      &lowAVX2, expandLowKeys: expandLowKeys, expandLowValues: expandLowValues,
	packKeys:     [3]func(*float32, *byte, int){avx2.PackKeysF32, avx2.PackKeysF16, avx2.PackKeysBF16},
	packValues:   [3]func(*float32, *byte, int, int){avx2.PackValuesF32, avx2.PackValuesF16, avx2.PackValuesBF16},
	expandKeys:   [2]func(*byte, *byte, int){avx2.ExpandKeysI8, avx2.ExpandKeysI4},
	expandValues: [2]func(*byte, *byte, int){avx2.ExpandValuesI8, avx2.ExpandValuesI4},
	gemm:         avx2.GemmF32,
	softmax:      [2]func(*float32, int, *float32, *float32, *float32){avx2.SoftmaxBlockFast, avx2.SoftmaxBlockExact},
	columnSums:   avx2.ColumnSums,
	expSum:       avx2.ExpSum,
}.ops()
