package attention

import (
	"math"

	"terrace/internal/kernels"
)

// Softmax makes a row of scores of a head weights in place: those of a softmax that the head's sink joins, where the layer has sinks.
func (p *Params) Softmax(row []float32, head int) {
	if p.Sinks == nil || len(row) == 0 {
		kernels.Softmax(row)
		return
	}
	top, sum := kernels.Max(row), 0.0
	for _, x := range row {
		sum += math.Exp(float64(x - top))
	}
	kernels.Softmax(row)
	kernels.Scale(row, float32(sum/(sum+math.Exp(float64(p.Sinks[head]-top)))))
}
