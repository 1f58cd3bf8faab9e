package model

import (
	"math"

	"terrace/internal/kernels"
)

// Clamp are the figures of ClampedSwiGLU.
type Clamp struct{ Alpha, Limit float32 }

func (c Clamp) finite() bool {
	return c.Limit > 0 && !math.IsInf(float64(c.Limit), 0) && !math.IsNaN(float64(c.Alpha)) && !math.IsInf(float64(c.Alpha), 0)
}

// Curve are the figures of xIELU (arXiv 2411.13010), as they act: P·x² + Beta·x above 0, N·(e^min(x,Eps) − 1 − x) + Beta·x below.
type Curve struct{ P, N, Beta, Eps float32 }

func (c Curve) finite() bool {
	for _, f := range []float32{c.P, c.N, c.Beta, c.Eps} {
		if math.IsNaN(float64(f)) || math.IsInf(float64(f), 0) {
			return false
		}
	}
	return true
}

func (c Curve) at(x float32) float32 {
	if x > 0 {
		return c.P*x*x + c.Beta*x
	}
	return c.N*(float32(math.Expm1(float64(min(x, c.Eps))))-x) + c.Beta*x
}

// activate writes act(gate)·up (gated) or act(up) (dst is up) to dst in [lo, hi) of the flat arrays.
func (t *rowTask) activate(lo, hi int) {
	dst, up := t.dst[lo:hi], t.up[lo:hi]
	if t.gate == nil {
		switch t.act {
		case GELUTanh:
			kernels.Gelu(dst)
		case GELU:
			kernels.GeluErf(dst)
		case ReLU:
			kernels.ReLU(dst)
		case SquaredReLU:
			for i, x := range dst {
				x = max(x, 0)
				dst[i] = x * x
			}
		case XIELU:
			for i, x := range dst {
				dst[i] = t.curve.at(x)
			}
		}
		return
	}
	g := t.gate[lo:hi]
	switch t.act {
	case SiLU:
		kernels.SiluMul(dst, g, up)
	case GELUTanh:
		kernels.GeluMul(dst, g, up)
	case GELU:
		kernels.GeluErfMul(dst, g, up)
	case ReLU:
		kernels.ReLU(g)
		kernels.Mul(dst, g)
	case ClampedSwiGLU:
		kernels.ClampedMul(dst, g, up, t.clamp.Alpha, t.clamp.Limit)
	case XIELU:
		for i, x := range g {
			dst[i] = t.curve.at(x) * up[i]
		}
	}
}
