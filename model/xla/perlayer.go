package xla

import (
	"fmt"
	"math"

	"github.com/gomlx/gomlx/core/graph"
	"gorgonia.org/tensor"

	"terrace/model"
)

// tokens are the ids that hidden rows carry: known where the rows lie on the device, behind the residual where the host has them.
func (b *backend) tokens(hidden *tensor.Dense) ([]int32, error) {
	n, width := hidden.Shape()[0], hidden.Shape()[1]
	if h, ok := hidden.Engine().(*held); ok && h.d == b.device && !h.wrote && len(h.ids) == n {
		return h.ids, nil
	}
	x, ids := values(hidden), make([]int32, n)
	for r := range ids {
		ids[r] = int32(x[(r+1)*width-1])
		if ids[r] < 0 || int(ids[r]) >= b.m.Vocab {
			return nil, fmt.Errorf("xla: row %d of the pass is of id %d, the vocabulary has %d: %w", r, ids[r], b.m.Vocab, model.ErrToken)
		}
	}
	return ids, nil
}

// perLayer adds what a layer is given of its rows' tokens. The table has as many numbers as the rest of the model: the host reads the rows
// that a pass needs from the model's file, and they go up.
func (c *call) perLayer(ids []int32) {
	m := c.b.m
	l, size, table := m.Params.Layers[c.layer].PerLayer, m.PerLayer, m.Params.PerLayerTable
	own := make([]float32, c.bucket*size)
	for r, id := range ids {
		row := int(id)
		if row >= table.Rows {
			row = 0 // ids behind the text's have no row of their own
		}
		if err := table.Tensor.Row(own[r*size:(r+1)*size], row, c.layer*size); err != nil {
			c.add(operand{}, err)
			return
		}
	}
	c.floats(own, c.bucket, size)
	c.ints(c.padded(ids, 0), c.bucket)
	c.linear(m.Params.Embed)
	c.linear(l.Proj)
	c.norm(m.Params.PerLayerNorm)
	c.linear(l.Gate)
	c.linear(l.Up)
	c.norm(l.Norm)
}

// perLayer is what a layer adds to rows x [n, D] of what it is given of their tokens (model.PerLayerParams).
func (p *params) perLayer(m *model.Config, x node) node {
	own, ids := p.next(), p.next()
	table, _ := p.next(), p.next() // embeddings have no bias
	scale := m.EmbedScale
	if scale == 0 {
		scale = 1
	}
	given := p.linear(graph.MulScalar(embedded(table, ids), float64(scale)/math.Sqrt(float64(m.Hidden))))
	given = p.norm(m, given, false)
	given = graph.Add(given, graph.MulScalar(own, math.Sqrt(float64(m.PerLayer))))
	given = graph.MulScalar(given, math.Sqrt(0.5))
	return p.norm(m, p.linear(graph.Mul(activate(m.Act, p.linear(x)), given)), false)
}
