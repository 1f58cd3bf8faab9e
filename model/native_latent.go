package model

import (
	"gorgonia.org/tensor"

	"terrace/internal/kernels"
)

// projectLatent is Project of a layer with latent keys: q [n, H·StoredKey], each head's first numbers taken through the keys'
// projection, and k [n, StoredKey], the normed latent, the rotated key, and the index key where there is one. Values are nil: they are the keys.
func (b *native) projectLatent(p *Pass, layer int, x []float32, n int, norm NormParams) (q, k, v *tensor.Dense, err error) {
	a, l := &b.m.Layer[layer].Attention, &b.m.Params.Layers[layer]
	stored := a.StoredKey()
	q = b.ws.dense(&b.ws.q, n, a.Heads*stored)
	if err := b.latentQuery(p, layer, x, n, norm, floats(q)); err != nil || a.Owner != layer {
		return q, nil, nil, err
	}
	k = b.ws.dense(&b.ws.k, n, stored)
	keys := floats(k)
	if a.Index != nil { // keys lie closer as they are made
		keys = b.ws.floats(&b.ws.wideK, n*a.KeyDim)
	}
	if err := b.matmulNormed(p.arithmetic(), x, n, norm, product{w: l.KeyDown, dst: keys}); err != nil {
		return nil, nil, nil, err
	}
	w, err := l.KeyNorm.W.Values()
	if err != nil {
		return nil, nil, nil, err
	}
	rank := a.Latent.Rank
	for r := range n {
		row := keys[r*a.KeyDim : (r+1)*a.KeyDim]
		kernels.RMSNorm(row[:rank], row[:rank], w, b.m.latentEps())
		b.rotate(p, layer, r, row[rank:])
		if a.Index != nil {
			copy(floats(k)[r*stored:], row)
		}
	}
	if a.Index != nil {
		return q, k, nil, b.index(p, layer, x, n, norm, floats(k))
	}
	return q, k, nil, nil
}

// latentEps is the epsilon of the norms of latents, whatever that of the others is.
func (c *Config) latentEps() float32 {
	if c.LatentEps != 0 {
		return c.LatentEps
	}
	return 1e-6
}

// latentQuery writes the queries of a layer with latent keys to dst [n, H·StoredKey].
func (b *native) latentQuery(p *Pass, layer int, x []float32, n int, norm NormParams, dst []float32) error {
	a, l := &b.m.Layer[layer].Attention, &b.m.Params.Layers[layer]
	if !l.QueryDown.Absent() {
		rank := l.QueryDown.Rows
		low := b.ws.floats(&b.ws.latent, n*rank)
		if err := b.matmulNormed(p.arithmetic(), x, n, norm, product{w: l.QueryDown, dst: low}); err != nil {
			return err
		}
		w, err := l.QueryNorm.W.Values()
		if err != nil {
			return err
		}
		for r := range n {
			row := low[r*rank : (r+1)*rank]
			kernels.RMSNorm(row, row, w, b.m.latentEps())
		}
		x, norm = low, NormParams{}
	}
	nope, rope, rank, stored := a.Latent.Nope, a.Latent.Rope, a.Latent.Rank, a.StoredKey()
	width := a.Heads * (nope + rope)
	q := b.ws.floats(&b.ws.queries, n*width)
	if err := b.matmulNormed(p.arithmetic(), x, n, norm, product{w: l.Q, dst: q}); err != nil {
		return err
	}
	in, out := b.ws.floats(&b.ws.heads, n*max(nope, stored)), b.ws.floats(&b.ws.keyLatent, n*rank)
	for h := range a.Heads {
		for r := range n {
			copy(in[r*nope:(r+1)*nope], q[r*width+h*(nope+rope):])
		}
		if err := b.matmul(p.arithmetic(), in[:n*nope], n, product{w: l.KeyUp[h], dst: out}); err != nil {
			return err
		}
		for r := range n {
			to := dst[(r*a.Heads+h)*stored:][:stored]
			copy(to, out[r*rank:(r+1)*rank])
			copy(to[rank:], q[r*width+h*(nope+rope)+nope:][:rope])
			clear(to[rank+rope:])
			b.rotate(p, layer, r, to[rank:rank+rope])
			if t := &a.Temperature; t.Scale != 0 {
				kernels.Scale(to, t.at(int(p.Pos[r])))
			}
		}
	}
	return nil
}

// latentValues takes a layer's attention over latents y [n, H·StoredValue] through the values' projection: [n, H·Value].
func (b *native) latentValues(p *Pass, layer int, y []float32, n int) ([]float32, error) {
	a, l := &b.m.Layer[layer].Attention, &b.m.Params.Layers[layer]
	rank, value, stored := a.Latent.Rank, a.Latent.Value, a.StoredKey()
	in, one := b.ws.floats(&b.ws.heads, n*max(rank, stored)), b.ws.floats(&b.ws.keyLatent, n*max(rank, value))
	out := b.ws.floats(&b.ws.queries, n*a.Heads*value)
	for h := range a.Heads {
		for r := range n {
			copy(in[r*rank:(r+1)*rank], y[(r*a.Heads+h)*stored:])
		}
		if err := b.matmul(p.arithmetic(), in[:n*rank], n, product{w: l.ValueUp[h], dst: one}); err != nil {
			return nil, err
		}
		for r := range n {
			copy(out[(r*a.Heads+h)*value:], one[r*value:(r+1)*value])
		}
	}
	return out, nil
}

// rotate turns one vector of a layer to the position of a row of the pass.
func (b *native) rotate(p *Pass, layer, row int, x []float32) {
	index := b.m.Layer[layer].Rope
	if index < 0 || len(b.m.Ropes) == 0 || len(x) == 0 {
		return
	}
	rope := &b.m.Ropes[index]
	cos, sin := b.table(index, p, row).row(int(p.Pos[row]))
	if rope.Interlaced {
		kernels.RopeNorm(x, 1, len(x), rope.Dim, cos, sin)
	} else {
		kernels.RopeNeox(x, 1, len(x), rope.Dim, cos, sin)
	}
}
