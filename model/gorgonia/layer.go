package gorgonia

import (
	"math"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"terrace/model"
)

// attentionInput is the layer's hidden rows as its projections see them.
func (s *sheet) attentionInput(hidden node, l *model.LayerParams) node {
	if s.b.m.PostNorm {
		return hidden
	}
	return s.norm(hidden, l.AttnNorm)
}

// addBlock adds a block's output to the residual stream, after its own norm where the model has one.
func (s *sheet) addBlock(x, out node, post model.NormParams) node {
	if !post.W.Absent() {
		out = s.norm(out, post)
	}
	return s.add(x, s.scale(out, s.b.m.ResidualScale))
}

// norm is the model's normalisation of each row.
func (s *sheet) norm(x node, p model.NormParams) node {
	if s.b.m.Norm == model.LayerNorm {
		x = s.byColumn(gorgonia.BroadcastSub, x, s.mean(x))
	}
	x = unitRows(s, x)
	if w := s.vector(p.W); w != nil {
		x = s.byRow(gorgonia.BroadcastHadamardProd, x, w)
	}
	if b := s.vector(p.B); b != nil {
		x = s.byRow(gorgonia.BroadcastAdd, x, b)
	}
	return x
}

// unitRows divides each row by the root of its mean square.
func unitRows(s *sheet, x node) node {
	square := s.mean(s.unary(gorgonia.Square, x))
	inverse := s.unary(gorgonia.InverseSqrt, s.add(square, s.constant(s.b.m.NormEps)))
	return s.byColumn(gorgonia.BroadcastHadamardProd, x, inverse)
}

// softcap is cap·tanh(x/cap); 0 = no cap.
func (s *sheet) softcap(x node, limit float32) node {
	if limit <= 0 {
		return x
	}
	return s.times(s.unary(gorgonia.Tanh, s.times(x, s.constant(1/limit))), s.constant(limit))
}

// turn applies the per-head norm, the rotation and, for queries of a model that has it, the growth with the position.
func (s *sheet) turn(p *model.Pass, layer int, x node, heads int, norm model.NormParams, query bool) node {
	m, n, dim := s.b.m, len(p.Pos), s.b.m.Layer[layer].KeyDim
	width := heads * dim
	if w := s.vector(norm.W); w != nil {
		whole := w.Shape()[1] == width && heads > 1
		if !whole {
			x = s.reshape(x, n*heads, dim)
		}
		x = s.byRow(gorgonia.BroadcastHadamardProd, unitRows(s, x), w)
		if !whole {
			x = s.reshape(x, n, width)
		}
	}
	rope := s.b.rotary.Layer(layer)
	growth := query && m.LogN
	if rope == nil && !growth {
		return x
	}
	cos, sin := s.b.angles(p, layer, heads, growth)
	x = s.reshape(x, n*heads, dim)
	turned := s.times(x, s.in(cos))
	if rope != nil {
		turned = s.add(turned, s.times(s.matmul(x, s.in(quarterTurn(rope, dim))), s.in(sin)))
	}
	return s.reshape(turned, n, width)
}

// angles are the factors of x and of its quarter turn, [n·heads, dk] each; dimensions that do not turn have 1 and 0.
func (b *backend) angles(p *model.Pass, layer, heads int, growth bool) (cos, sin *tensor.Dense) {
	dim, rope := b.m.Layer[layer].KeyDim, b.rotary.Layer(layer)
	c, s := make([]float32, len(p.Pos)*heads*dim), make([]float32, len(p.Pos)*heads*dim)
	row := make([]float32, 2*dim)
	for r, pos := range p.Pos {
		factor := float32(1)
		if growth && int(pos)+1 > b.m.LogNAt {
			factor = float32(math.Log(float64(pos)+1) / math.Log(float64(b.m.LogNAt)))
		}
		for d := range dim {
			row[d], row[dim+d] = factor, 0
		}
		if rope != nil {
			rc, rs := b.rotary.Row(p, layer, r)
			for i := range rc {
				x, y := pair(rope, i)
				row[x], row[y] = rc[i]*factor, rc[i]*factor
				row[dim+x], row[dim+y] = rs[i]*factor, rs[i]*factor
			}
		}
		for h := range heads {
			copy(c[(r*heads+h)*dim:], row[:dim])
			copy(s[(r*heads+h)*dim:], row[dim:2*dim])
		}
	}
	return matrix(len(p.Pos)*heads, dim, c), matrix(len(p.Pos)*heads, dim, s)
}

// pair are the dimensions that turn together.
func pair(rope *model.Rope, i int) (x, y int) {
	if rope.Interlaced {
		return 2 * i, 2*i + 1
	}
	return i, i + rope.Dim/2
}

// quarterTurn is the matrix P [dk, dk] that takes each pair (x, y) of a row to (-y, x), so that a turn by an angle is
// x·cos + (x·P)·sin.
func quarterTurn(rope *model.Rope, dim int) *tensor.Dense {
	p := make([]float32, dim*dim)
	for i := range rope.Dim / 2 {
		x, y := pair(rope, i)
		p[y*dim+x], p[x*dim+y] = -1, 1
	}
	return matrix(dim, dim, p)
}
