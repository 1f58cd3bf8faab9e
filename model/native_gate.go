package model

import (
	"math"

	"terrace/internal/kernels"
)

// gateOutput multiplies the rows of y [n, H·dv], a layer's attention, by its gate, a number for each of a row or one for each head, and
// returns them in scratch. x [n, D] are the rows that went into the layer.
func (b *native) gateOutput(p *Pass, layer int, x, y []float32, n int) ([]float32, error) {
	a, l := &b.m.Layer[layer].Attention, &b.m.Params.Layers[layer]
	gates := b.ws.floats(&b.ws.outGate, n*l.OutGate.Rows)
	if err := b.matmulNormed(p.arithmetic(), x, n, b.inputNorm(l), product{w: l.OutGate, dst: gates}); err != nil {
		return nil, err
	}
	width := len(y) / n
	each := width / l.OutGate.Rows // numbers that share a gate
	out := b.ws.floats(&b.ws.values, n*width)
	of := sigmoid
	if a.Gate == SoftplusGate {
		of = softplus
	}
	b.pool.Run(n, func(_, r int) {
		dst, g := out[r*width:(r+1)*width], gates[r*l.OutGate.Rows:(r+1)*l.OutGate.Rows]
		from := y[r*width : (r+1)*width]
		if each == 1 && a.Gate != SoftplusGate {
			kernels.SigmoidMul(dst, g, from)
			return
		}
		copy(dst, from)
		for i, x := range g {
			kernels.Scale(dst[i*each:(i+1)*each], of(x))
		}
	})
	return out, nil
}

func sigmoid(x float32) float32 { return float32(1 / (1 + math.Exp(-float64(x)))) }

// softplus is ln(1 + e^x).
func softplus(x float32) float32 {
	if x > 20 {
		return x
	}
	return float32(math.Log1p(math.Exp(float64(x))))
}
