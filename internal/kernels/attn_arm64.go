//go:build arm64 && !purego

package kernels

import "terrace/internal/kernels/arm64/neon"

func init() {
	onSelect(func(path isa) {
		attn = plainAttn
		if path >= isaNEON {
			attn = attnNEON
		}
	})
}

var attnNEON = attnASM{
	score: [7][mostHeads]scoreFunc{
		{neon.ScoreF32x1, neon.ScoreF32x2, neon.ScoreF32x3, neon.ScoreF32x4},
		{neon.ScoreF16x1, neon.ScoreF16x2, neon.ScoreF16x3, neon.ScoreF16x4},
		{neon.ScoreBF16x1, neon.ScoreBF16x2, neon.ScoreBF16x3, neon.ScoreBF16x4}},
	weigh: [7][mostHeads]weighFunc{
		{neon.WeighF32x1, neon.WeighF32x2, neon.WeighF32x3, neon.WeighF32x4},
		{neon.WeighF16x1, neon.WeighF16x2, neon.WeighF16x3, neon.WeighF16x4},
		{neon.WeighBF16x1, neon.WeighBF16x2, neon.WeighBF16x3, neon.WeighBF16x4}},
	packKeys:     [3]func(*float32, *byte, int){neon.PackKeysF32, neon.PackKeysF16, neon.PackKeysBF16},
	packValues:   [3]func(*float32, *byte, int, int){neon.PackValuesF32, neon.PackValuesF16, neon.PackValuesBF16},
	expandKeys:   [2]func(*byte, *byte, int){neon.ExpandKeysI8, neon.ExpandKeysI4},
	expandValues: [2]func(*byte, *byte, int){neon.ExpandValuesI8, neon.ExpandValuesI4},
	gemm:         neon.GemmF32,
	softmax:      [2]func(*float32, int, *float32, *float32, *float32){neon.SoftmaxBlockFast, neon.SoftmaxBlockExact},
	columnSums:   neon.ColumnSums,
	expSum:       neon.ExpSum,
}.ops()
