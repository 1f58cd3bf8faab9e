package model

import (
	"gorgonia.org/tensor"

	"terrace/internal/kernels"
)

// blockRows are the rows [n, D] that a block of a layer works on, and the norm that is still to come: what layerRows gives, or where the residual
// has several copies what a hyper-connection reads of them, in scratch that holds until the next block.
func (b *native) blockRows(p *Pass, layer int, hidden *tensor.Dense, norm NormParams, h *HyperParams) (x []float32, n int, after NormParams, err error) {
	n = hidden.Shape()[0]
	if b.m.Copies < 2 {
		x, err = b.layerRows(p, layer, hidden, false)
		return x, n, norm, err
	}
	x, err = b.mixCopies(p.arithmetic(), floats(hidden), n, h)
	return x, n, NormParams{}, err
}

// normCopies norms each copy of the rows x [n, RowWidth] by itself: [n, Copies·D].
func (b *native) normCopies(x []float32, n int, norm NormParams, dst []float32) error {
	w, err := norm.W.Values()
	if err != nil {
		return err
	}
	d, wide, row := b.m.Hidden, b.m.Copies*b.m.Hidden, b.m.RowWidth()
	b.pool.Run(n, func(_, r int) {
		for at := 0; at < wide; at += d {
			kernels.RMSNorm(dst[r*wide+at:][:d], x[r*row+at:][:d], w[at:at+d], b.m.NormEps)
		}
	})
	return nil
}

// mixCopies is what a hyper-connection reads of the rows: [n, D].
func (b *native) mixCopies(ph arithmetic, x []float32, n int, h *HyperParams) ([]float32, error) {
	d, copies := b.m.Hidden, b.m.Copies
	wide := copies * d
	z := b.ws.floats(&b.ws.copies, n*wide)
	if err := b.normCopies(x, n, h.Norm, z); err != nil {
		return nil, err
	}
	low, gates, out := b.ws.floats(&b.ws.copyLow, n*h.Down.Rows), b.ws.floats(&b.ws.copyGates, n*wide), b.ws.floats(&b.ws.copyIn, n*d)
	if err := b.matmul(ph, z, n, product{w: h.Down, dst: low}); err != nil {
		return nil, err
	}
	for i, v := range low[:n*h.Down.Rows] {
		v /= float32(copies)
		low[i] = v * sigmoid(v)
	}
	if err := b.matmul(ph, low, n, product{w: h.Up, dst: gates}); err != nil {
		return nil, err
	}
	b.pool.Run(n, func(_, r int) {
		row := out[r*d : (r+1)*d]
		clear(row)
		for at := r * wide; at < (r+1)*wide; at += d {
			for j := range row {
				row[j] += sigmoid(gates[at+j]) * z[at+j]
			}
		}
		kernels.Scale(row, 1/float32(copies))
	})
	return out, nil
}

// addToCopies adds what a block gave, [n, D], to the copies of the rows x.
func (b *native) addToCopies(ph arithmetic, x, block []float32, n int, h *HyperParams) error {
	d, copies, row := b.m.Hidden, b.m.Copies, b.m.RowWidth()
	z := b.ws.floats(&b.ws.copies, n*copies*d)
	if err := b.normCopies(x, n, h.Norm, z); err != nil {
		return err
	}
	shares := b.ws.floats(&b.ws.copyLow, n*copies)
	if err := b.matmul(ph, z, n, product{w: h.Inject, dst: shares}); err != nil {
		return err
	}
	b.pool.Run(n, func(_, r int) {
		for s := range copies {
			kernels.Axpy(x[r*row+s*d:][:d], 2*sigmoid(shares[r*copies+s]/float32(copies)), block[r*d:(r+1)*d])
		}
	})
	return nil
}

// finishCopies is Finish of a layer on several copies of the residual.
func (b *native) finishCopies(p *Pass, layer int, hidden, mixed *tensor.Dense) (*tensor.Dense, error) {
	a, l := &b.m.Layer[layer].Attention, &b.m.Params.Layers[layer]
	n, x := hidden.Shape()[0], floats(hidden)
	block := b.ws.floats(&b.ws.block, n*b.m.Hidden)
	if mixed != nil {
		y := floats(mixed)
		var err error
		if a.Latent != nil {
			y, err = b.latentValues(p, layer, y, n)
		}
		if err == nil && a.Gate != NoGate {
			var in []float32
			if in, err = b.mixCopies(p.arithmetic(), x, n, &l.AttnHyper); err == nil {
				y, err = b.gateOutput(p, layer, in, y, n)
			}
		}
		if err != nil {
			return nil, err
		}
		if err := b.matmul(p.arithmetic(), y, n, product{w: l.O, dst: block}); err != nil {
			return nil, err
		}
		if err := b.addToCopies(p.arithmetic(), x, block, n, &l.AttnHyper); err != nil {
			return nil, err
		}
	}
	if b.m.Layer[layer].NoFFN {
		return hidden, nil
	}
	in, err := b.mixCopies(p.arithmetic(), x, n, &l.FFNHyper)
	if err != nil {
		return nil, err
	}
	if err := b.feedForward(p.arithmetic(), l, layer, product{dst: block}, in, n, NormParams{}); err != nil {
		return nil, err
	}
	return hidden, b.addToCopies(p.arithmetic(), x, block, n, &l.FFNHyper)
}

// embedCopies makes rows of several copies of each embedding row of hidden [n, D], with its token behind them where layers want it.
func (b *native) embedCopies(hidden *tensor.Dense, ids []int32) *tensor.Dense {
	d, width, n := b.m.Hidden, b.m.RowWidth(), len(ids)
	out := b.ws.dense(&b.ws.copyRows, n, width)
	x, y := floats(hidden), floats(out)
	for i, id := range ids {
		row := y[i*width : (i+1)*width]
		for s := range b.m.Copies {
			copy(row[s*d:], x[i*d:(i+1)*d])
		}
		if width > b.m.Copies*d {
			row[width-1] = float32(id) // ids are below 2^24 (maxVocab): exact
		}
	}
	return out
}
