package model

import (
	"fmt"

	"gorgonia.org/tensor"
)

// KeyProjector is the optional capability of projecting keys and values alone, of rows whose queries nobody wants any more.
type KeyProjector interface {
	// ProjectKeys returns the k [n, G·dk] (rotated) and v [n, G·dv] that Project returns for the same rows, bit for bit. ErrUnsupported where
	// the layer keeps none of its own, latent ones or an indexer's beside them.
	ProjectKeys(p *Pass, layer int, hidden *tensor.Dense) (k, v *tensor.Dense, err error)
}

// ProjectKeys implements KeyProjector.
func (b *native) ProjectKeys(p *Pass, layer int, hidden *tensor.Dense) (k, v *tensor.Dense, err error) {
	a, l := &b.m.Layer[layer].Attention, &b.m.Params.Layers[layer]
	if a.Heads == 0 || a.Owner != layer || a.Latent != nil || a.Index != nil {
		return nil, nil, fmt.Errorf("model: layer %d has no plain keys and values of its own to project alone: %w", layer, ErrUnsupported)
	}
	x, n, norm, err := b.blockRows(p, layer, hidden, b.inputNorm(l), &l.AttnHyper)
	if err != nil {
		return nil, nil, err
	}
	return b.keysValues(p, layer, x, n, norm, nil)
}

// keysValues projects k and v of x [n, D], and q into q if that is not nil.
func (b *native) keysValues(p *Pass, layer int, x []float32, n int, norm NormParams, q []float32) (k, v *tensor.Dense, err error) {
	a, l := &b.m.Layer[layer].Attention, &b.m.Params.Layers[layer]
	k = b.ws.dense(&b.ws.k, n, a.KVHeads*a.KeyDim)
	v = b.ws.dense(&b.ws.v, n, a.KVHeads*a.ValDim)
	products := []product{{w: l.Q, dst: q}, {w: l.K, dst: floats(k)}, {w: l.V, dst: floats(v)}}
	if l.V == nil {
		products = products[:2]
	}
	if q == nil {
		products = products[1:]
	}
	if err := b.matmulNormed(p.arithmetic(), x, n, norm, products...); err != nil {
		return nil, nil, err
	}
	if l.V == nil {
		copy(floats(v), floats(k))
	}
	if !l.VNorm.W.Absent() {
		if err := b.norm(floats(v), floats(v), n*a.KVHeads, a.ValDim, l.VNorm); err != nil {
			return nil, nil, err
		}
	}
	return k, v, b.turn(p, layer, q, l.QNorm, floats(k), l.KNorm)
}
