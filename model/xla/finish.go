package xla

import (
	"fmt"

	"github.com/gomlx/gomlx/core/graph"
	"gorgonia.org/tensor"

	"terrace/model"
)

// Finish implements model.Backend.
func (b *backend) Finish(_ *model.Pass, layer int, hidden, attended *tensor.Dense) (*tensor.Dense, error) {
	m, l := b.m, &b.m.Params.Layers[layer]
	moe := m.Layer[layer].MoE
	c := b.call(layer, hidden.Shape()[0])
	c.rows(hidden)
	c.rows(attended)
	c.linear(l.O)
	c.norm(l.PostAttnNorm)
	c.norm(l.AttnNorm)
	c.norm(l.FFNNorm)
	if moe {
		c.matrix(l.Router, true)
		for _, list := range [][]*model.Linear{l.ExpertGate, l.ExpertUp, l.ExpertDown} {
			c.add(b.weights.stack(list))
		}
	} else {
		for _, w := range []*model.Linear{l.Gate, l.Up, l.Down} {
			c.linear(w)
		}
	}
	c.norm(l.PostFFNNorm)
	return c.lateOne(fmt.Sprintf("finish moe=%v", moe), func(in *params) []node {
		return []node{b.finish(in, moe)}
	}, hidden.Shape()[1], &b.hidden)
}

// finish is the program of Finish.
func (b *backend) finish(in *params, moe bool) node {
	m := &b.m.Config
	x, attended := in.next(), in.next()
	out := in.optionalNorm(m, in.linear(attended))
	x = graph.Add(x, factor(out, m.ResidualScale))
	x = in.norm(m, x, !m.PostNorm) // the attention's norm, which Project has applied unless it stands after the sum
	ffnNorm := &params{nodes: []node{in.next(), in.next()}}
	h := x
	if !m.PostNorm {
		h = ffnNorm.norm(m, x, false)
	}
	if moe {
		out = in.mixture(m, h)
	} else {
		out = in.feedForward(m, h)
	}
	x = graph.Add(x, factor(in.optionalNorm(m, out), m.ResidualScale))
	if m.PostNorm {
		x = ffnNorm.norm(m, x, false)
	}
	return x
}

// feedForward is down(act(gate(h))·up(h)), or down(act(up(h))) without a gate.
func (p *params) feedForward(m *model.Config, h node) node {
	if p.nodes[p.at] == nil {
		_, _ = p.next(), p.next()
		return p.linear(activate(m.Act, p.linear(h)))
	}
	gate := activate(m.Act, p.linear(h))
	return p.linear(graph.Mul(gate, p.linear(h)))
}

// mixture is the weighted sum of experts. Every expert computes every row, and the weights of those that a row is not
// routed to are zero: the shapes do not depend on the routing, at experts/topK times the work.
func (p *params) mixture(m *model.Config, h node) node {
	share := route(m, graph.Softmax(p.linear(h), 1))
	gate, up, down := p.next(), p.next(), p.next()
	g := product(h, []int{1}, nil, gate, []int{2}, nil) // [n, experts, width]
	u := product(h, []int{1}, nil, up, []int{2}, nil)
	a := graph.Mul(graph.Mul(activate(m.Act, g), u), graph.ExpandAxes(share, 2))
	return product(a, []int{1, 2}, nil, down, []int{0, 2}, nil)
}

// route keeps the topK largest shares of a row [n, experts] (the first of equals), normalised to sum 1 where the model says
// so, and makes the others zero. An expert is used if fewer than topK come before it.
func route(m *model.Config, share node) node {
	n, experts := share.Shape().Dim(0), share.Shape().Dim(1)
	mine := graph.BroadcastToDims(graph.ExpandAxes(share, 2), n, experts, experts)
	other := graph.BroadcastToDims(graph.ExpandAxes(share, 1), n, experts, experts)
	// 1 where the other expert has the lower number, and where it is another one: a device may compute the two copies of a share in
	// different orders, and no expert may then be before itself.
	first, others := make([][]float32, experts), make([][]float32, experts)
	for e := range first {
		first[e], others[e] = make([]float32, experts), make([]float32, experts)
		for o := range experts {
			if o < e {
				first[e][o] = 1
			}
			if o != e {
				others[e][o] = 1
			}
		}
	}
	where := func(condition node, pairs [][]float32) node {
		return graph.Mul(asFloat(condition), graph.ExpandLeftToRank(graph.Const(share.Graph(), pairs), 3))
	}
	before := graph.ReduceSum(graph.Add(where(graph.GreaterThan(other, mine), others), where(graph.Equal(other, mine), first)), 2)
	share = graph.Mul(share, asFloat(graph.LessThan(before, graph.Scalar(share.Graph(), before.DType(), m.TopK))))
	if m.NormTopK {
		share = graph.Div(share, graph.ExpandAxes(graph.ReduceSum(share, 1), 1))
	}
	return share
}
