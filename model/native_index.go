package model

import (
	"fmt"

	"gorgonia.org/tensor"

	"terrace/internal/kernels"
)

// IndexQueries implements Indexing.
func (b *native) IndexQueries() *tensor.Dense { return b.ws.index.t }

// index makes the index queries of rows x [n, D] of a layer, and writes their index keys behind the keys k [n, G·StoredKey], which have
// room for them.
func (b *native) index(p *Pass, layer int, x []float32, n int, norm NormParams, k []float32) error {
	a, l := &b.m.Layer[layer].Attention, &b.m.Params.Layers[layer].Index
	d := a.Index
	width := d.Width()
	out := floats(b.ws.dense(&b.ws.index, n, width))
	q, keys := b.ws.floats(&b.ws.queries, n*d.Heads*d.Dim), b.ws.floats(&b.ws.indexKeys, n*d.Dim)
	source, sourceNorm := x, norm
	if d.Latent {
		source, sourceNorm = b.ws.latent.data[:n*l.Q.Cols], NormParams{}
	}
	if err := b.matmulNormed(p.arithmetic(), source, n, sourceNorm, product{w: l.Q, dst: q}); err != nil {
		return err
	}
	products := []product{{w: l.K, dst: keys}}
	var weights []float32
	if !l.Weights.Absent() {
		weights = b.ws.floats(&b.ws.indexWeights, n*d.Heads)
		products = append(products, product{w: l.Weights, dst: weights})
	}
	if err := b.matmulNormed(p.arithmetic(), x, n, norm, products...); err != nil {
		return err
	}
	for r := range n {
		row := out[r*width : (r+1)*width]
		copy(row, q[r*d.Heads*d.Dim:(r+1)*d.Heads*d.Dim])
		heads := row[:d.Heads*d.Dim]
		for at := 0; at < len(heads) && !l.QNorm.W.Absent(); at += d.Dim {
			if err := b.indexNorm(heads[at:at+d.Dim], l.QNorm); err != nil {
				return err
			}
		}
		b.turnIndex(layer, heads, d.Heads, b.indexTable(p, layer, r), int(p.Pos[r]))
		for h, w := range row[d.Heads*d.Dim:] {
			if w = 1; weights != nil {
				w = weights[r*d.Heads+h]
			}
			row[d.Heads*d.Dim+h] = w
		}
		key := keys[r*d.Dim : (r+1)*d.Dim]
		if d.Block == 1 {
			if err := b.indexNorm(key, l.KNorm); err != nil {
				return err
			}
			b.turnIndex(layer, key, 1, b.indexTable(p, layer, r), int(p.Pos[r]))
		}
		a.spreadIndex(k[r*a.KVHeads*a.StoredKey():], key)
	}
	return nil
}

// projectIndexed is Project of a layer with an indexer whose keys are not latent.
func (b *native) projectIndexed(p *Pass, layer int, x []float32, n int, norm NormParams) (q, k, v *tensor.Dense, err error) {
	a, l := &b.m.Layer[layer].Attention, &b.m.Params.Layers[layer]
	ownQ, ownK := b.ws.floats(&b.ws.q, n*a.Heads*a.KeyDim), b.ws.floats(&b.ws.k, n*a.KVHeads*a.KeyDim)
	v = b.ws.dense(&b.ws.v, n, a.KVHeads*a.ValDim)
	if err := b.matmulNormed(p.arithmetic(), x, n, norm, product{w: l.Q, dst: ownQ}, product{w: l.K, dst: ownK}, product{w: l.V, dst: floats(v)}); err != nil {
		return nil, nil, nil, err
	}
	if err := b.turn(p, layer, ownQ, l.QNorm, ownK, l.KNorm); err != nil {
		return nil, nil, nil, err
	}
	q = b.ws.spread(&b.ws.wideQ, ownQ, n, a.Heads, a.KeyDim, a.StoredKey())
	k = b.ws.spread(&b.ws.wideK, ownK, n, a.KVHeads, a.KeyDim, a.StoredKey())
	return q, k, v, b.index(p, layer, x, n, norm, floats(k))
}

// spread copies heads of so many numbers to a tensor [n, heads·stored], zeros behind each.
func (s *scratch) spread(to *slot, x []float32, n, heads, dim, stored int) *tensor.Dense {
	t := s.dense(to, n, heads*stored)
	y := floats(t)
	for i := range n * heads {
		clear(y[i*stored+copy(y[i*stored:], x[i*dim:(i+1)*dim]) : (i+1)*stored])
	}
	return t
}

// spreadIndex writes an index key behind the keys of a row's KV heads, a part behind each.
func (a *Attention) spreadIndex(row, key []float32) {
	stored, share := a.StoredKey(), a.indexShare()
	for g := range a.KVHeads {
		tail := row[g*stored+a.KeyDim : (g+1)*stored]
		clear(tail[copy(tail, key[min(g*share, len(key)):]):])
	}
}

// indexTable is the rotary table of a layer for a row; nil where it has none.
func (b *native) indexTable(p *Pass, layer, row int) *ropeTable {
	index := b.m.Layer[layer].Rope
	if index < 0 || len(b.m.Ropes) == 0 {
		return nil
	}
	return b.table(index, p, row)
}

// turnIndex rotates the first numbers of some index heads to a position, half of them apart.
func (b *native) turnIndex(layer int, x []float32, heads int, table *ropeTable, pos int) {
	d := b.m.Layer[layer].Index
	if table == nil || d.Rot == 0 {
		return
	}
	cos, sin := table.row(pos)
	kernels.RopeNeox(x, heads, d.Dim, d.Rot, cos, sin)
}

// indexNorm norms one vector of an indexer in place.
func (b *native) indexNorm(x []float32, norm NormParams) error {
	w, err := norm.W.Values()
	if err != nil || w == nil {
		return err
	}
	bias, err := norm.B.Values()
	if err != nil {
		return err
	}
	if bias != nil {
		kernels.LayerNorm(x, x, w, bias, b.m.latentEps())
		return nil
	}
	kernels.RMSNorm(x, x, w, b.m.NormEps)
	return nil
}

// IndexKey implements Indexing.
func (b *native) IndexKey(layer, position int, x []float32) error {
	d := b.m.Layer[layer].Index
	if d == nil || len(x) != d.Dim {
		return fmt.Errorf("model: an index key of %d numbers of layer %d, which has no such indexer: %w", len(x), layer, ErrConfig)
	}
	if err := b.indexNorm(x, b.m.Params.Layers[layer].Index.KNorm); err != nil {
		return err
	}
	if index := b.m.Layer[layer].Rope; index >= 0 && len(b.m.Ropes) > 0 {
		b.turnIndex(layer, x, 1, &b.rope[index], position)
	}
	return nil
}
