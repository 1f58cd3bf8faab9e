package policy

import (
	"math"

	"terrace/internal/kernels"
)

// softmaxRow turns raw products, times scale, into weights in place.
func softmaxRow(x []float32, scale float32) {
	kernels.Scale(x, scale)
	kernels.Softmax(x)
}

// weigh is softmaxRow of a query head where its layer has sinks: a sink's part of the attention goes to nobody.
func (l *Layer) weigh(x []float32, scale float32, head int) {
	if l.Sinks == nil || len(x) == 0 {
		softmaxRow(x, scale)
		return
	}
	kernels.Scale(x, scale)
	part := 1 - sunk(x, l.Sinks[head])
	kernels.Softmax(x)
	kernels.Scale(x, part)
}

// sunk is the part of a head's attention that its sink takes beside scores x.
func sunk(x []float32, sink float32) float32 {
	top, sum := max(kernels.Max(x), sink), 0.0
	for _, s := range x {
		sum += math.Exp(float64(s - top))
	}
	own := math.Exp(float64(sink - top))
	return float32(own / (own + sum))
}
