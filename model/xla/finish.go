package xla

import (
	"fmt"

	"github.com/gomlx/gomlx/core/graph"
	"gorgonia.org/tensor"

	"terrace/model"
)

// Finish implements model.Backend. attended is nil in no layer that this backend computes.
func (b *backend) Finish(_ *model.Pass, layer int, hidden, attended *tensor.Dense) (*tensor.Dense, error) {
	m, f, l := b.m, &b.m.Layer[layer], &b.m.Params.Layers[layer]
	c := b.call(layer, hidden.Shape()[0])
	c.rows(hidden)
	c.rows(attended)
	if f.Gate != model.NoGate {
		c.norm(l.AttnNorm)
		c.linear(l.OutGate)
	}
	c.linear(l.O)
	c.norm(l.PostAttnNorm)
	c.norm(l.AttnNorm)
	c.norm(l.FFNNorm)
	if l.Beside != nil {
		c.beside(l)
	}
	if f.MoE {
		c.mixture(l)
	} else {
		c.network(l.Gate, l.Up, l.Down)
	}
	c.norm(l.PostFFNNorm)
	var ids []int32
	if m.PerLayer > 0 {
		var err error
		if ids, err = b.tokens(hidden); err != nil {
			return nil, err
		}
		c.perLayer(ids)
	}
	c.vector(l.OutScale)
	out, err := c.lateOne(fmt.Sprintf("finish moe=%v gate=%d beside=%v", f.MoE, f.Gate, l.Beside != nil), func(in *params) []node {
		return []node{b.finish(in, f, l.Beside != nil)}
	}, hidden.Shape()[1], &b.hidden)
	if err == nil {
		b.hidden.h.ids = ids
	}
	return out, err
}

// finish is the program of Finish.
func (b *backend) finish(p *params, f *model.LayerConfig, beside bool) node {
	m := &b.m.Config
	row, attended := p.next(), p.next()
	x := b.residual(row)
	if f.Gate != model.NoGate {
		attended = p.gated(m, f.Gate, x, attended)
	}
	out := p.optionalNorm(m, p.linear(attended))
	x = graph.Add(x, factor(out, m.ResidualScale))
	x = p.norm(m, x, !m.PostNorm) // the attention's norm, which Project has applied unless it stands after the sum
	ffnNorm := &params{nodes: []node{p.next(), p.next()}}
	h := x
	if !m.PostNorm {
		h = ffnNorm.norm(m, x, false)
	}
	switch {
	case beside:
		out = p.beside(m, x, h)
	case f.MoE:
		out = p.mixture(m, h, h, h)
	default:
		out = p.feedForward(m, h)
	}
	x = graph.Add(x, factor(p.optionalNorm(m, out), m.ResidualScale))
	if m.PostNorm {
		x = ffnNorm.norm(m, x, false)
	}
	if m.PerLayer > 0 {
		x = graph.Add(x, p.perLayer(m, x))
	}
	if scale := p.next(); scale != nil {
		x = graph.Mul(x, graph.ExpandLeftToRank(scale, 2))
	}
	if m.PerLayer > 0 {
		x = graph.Concatenate([]node{x, graph.Slice(row, graph.AxisRange(), graph.AxisRange(m.Hidden))}, 1)
	}
	return x
}

// gated multiplies the mixer's output y [n, H·dv] by its gate, a number for each or one for each head, of the rows x that went into the layer.
func (p *params) gated(m *model.Config, kind model.GateKind, x, y node) node {
	gate := p.linear(p.norm(m, x, m.PostNorm))
	if kind == model.SoftplusGate {
		gate = softplus(gate)
	} else {
		gate = graph.Logistic(gate)
	}
	n, width, gates := y.Shape().Dim(0), y.Shape().Dim(1), gate.Shape().Dim(1)
	return graph.Reshape(graph.Mul(graph.Reshape(y, n, gates, width/gates), graph.ExpandAxes(gate, 2)), n, width)
}

// network adds the weights of a feed-forward network.
func (c *call) network(gate, up, down *model.Linear) {
	for _, w := range []*model.Linear{gate, up, down} {
		c.linear(w)
	}
}

// feedForward is down(act(gate(h), up(h))), or down(act(up(h))) without a gate.
func (p *params) feedForward(m *model.Config, h node) node {
	if p.nodes[p.at] == nil {
		_, _ = p.next(), p.next()
		return p.linear(activate(m.Act, p.linear(h)))
	}
	gate := p.linear(h)
	return p.linear(gatedBy(m, gate, p.linear(h)))
}

// gatedBy is what a gate leaves of up.
func gatedBy(m *model.Config, gate, up node) node {
	if m.Act != model.ClampedSwiGLU {
		return graph.Mul(activate(m.Act, gate), up)
	}
	limit := float64(m.Clamp.Limit)
	gate, up = graph.MinScalar(gate, limit), graph.ClipScalar(up, -limit, limit)
	return graph.Mul(graph.Mul(gate, graph.Logistic(graph.MulScalar(gate, m.Clamp.Alpha))), graph.AddScalar(up, 1))
}
