package model

import (
	"math"

	"terrace/internal/kernels"
)

// besideExperts is a feed-forward network beside experts, of the rows of in [n, D] (BesideParams).
func (b *native) besideExperts(ph arithmetic, layer int, out product, in []float32, n int, norm NormParams) error {
	d, l := b.m.Hidden, &b.m.Params.Layers[layer]
	y := b.ws.floats(&b.ws.beside, n*d)
	if err := b.dense(ph, l.Gate, l.Up, product{w: l.Down, dst: y}, in, n, norm); err != nil {
		return err
	}
	if err := b.norm(y, y, n, d, l.Beside.DensePost); err != nil {
		return err
	}
	logits := b.ws.floats(&b.ws.router, n*b.m.Experts)
	if err := b.matmulNormed(ph, in, n, l.Beside.RouterNorm, product{w: l.Router, dst: logits}); err != nil {
		return err
	}
	z, sum := b.ws.floats(&b.ws.normed, n*d), b.ws.floats(&b.ws.shared, n*d)
	if err := b.norm(z, in, n, d, l.Beside.ExpertNorm); err != nil {
		return err
	}
	if err := b.routed(ph, layer, product{dst: sum}, z, logits, n); err != nil {
		return err
	}
	if err := b.norm(sum, sum, n, d, l.Beside.ExpertPost); err != nil {
		return err
	}
	kernels.Add(y, sum)
	if out.add {
		kernels.Add(out.dst[:n*d], y)
	} else {
		copy(out.dst, y)
	}
	return nil
}

// sparsify leaves of each row of gates g [n, width] what lies above its mean by so many standard deviations, less that: the rest is 0.
func (b *native) sparsify(g []float32, n, width int, deviations float64) {
	b.pool.Run(n, func(_, r int) {
		row := g[r*width : (r+1)*width]
		mean, square := 0.0, 0.0
		for _, x := range row {
			mean += float64(x)
		}
		mean /= float64(width)
		for _, x := range row {
			square += (float64(x) - mean) * (float64(x) - mean)
		}
		cut := float32(mean + deviations*math.Sqrt(square/float64(width)))
		for i, x := range row {
			row[i] = max(x-cut, 0)
		}
	})
}
