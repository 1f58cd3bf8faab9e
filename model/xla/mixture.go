package xla

import (
	"math"

	"github.com/gomlx/gomlx/core/graph"

	"terrace/model"
)

// mixture adds the weights of a layer's router, of its experts and of the network that every token uses beside them.
func (c *call) mixture(l *model.LayerParams) {
	c.matrix(l.Router, true)
	c.vector(l.RouterBias)
	c.vector(l.ExpertScale)
	for _, list := range [][]*model.Linear{l.ExpertGate, l.ExpertUp, l.ExpertDown} {
		w, bias, err := c.b.weights.stack(list)
		c.add(w, err)
		c.add(bias, nil)
	}
	c.network(l.SharedGate, l.SharedUp, l.SharedDown)
	c.linear(l.SharedRouter)
}

// mixture is the weighted sum of experts, and the network beside them: h is what that network reads, routed what the router and given what the
// experts do. Every expert computes every row, and the weights of those that a row is not routed to are zero: the shapes do not depend on the
// routing, at experts/topK times the work.
func (p *params) mixture(m *model.Config, h, routed, given node) node {
	share := p.route(m, p.linear(routed))
	if each := p.next(); each != nil {
		share = graph.Mul(share, graph.ExpandAxes(each, 0))
	}
	out := p.experts(m, given, share)
	shared := &params{nodes: p.nodes[p.at : p.at+6]}
	p.at += 6
	router := &params{nodes: []node{p.next(), p.next()}}
	if shared.nodes[2] == nil {
		return out
	}
	beside := shared.feedForward(m, h)
	if router.nodes[0] != nil {
		beside = graph.Mul(beside, graph.Logistic(router.linear(h)))
	}
	return graph.Add(out, beside)
}

// beside adds the weights of a network that stands beside experts, and the norms of both (model.BesideParams).
func (c *call) beside(l *model.LayerParams) {
	c.network(l.Gate, l.Up, l.Down)
	for _, n := range []model.NormParams{l.Beside.DensePost, l.Beside.RouterNorm, l.Beside.ExpertNorm} {
		c.norm(n)
	}
	c.norm(l.Beside.ExpertPost)
}

// beside is the sum of both, each normed: the network reads h, the norm of x; router and experts read norms of x of their own.
func (p *params) beside(m *model.Config, x, h node) node {
	out := p.norm(m, p.feedForward(m, h), false)
	routed, given := p.norm(m, x, false), p.norm(m, x, false)
	post := &params{nodes: []node{p.next(), p.next()}}
	return graph.Add(out, post.norm(m, p.mixture(m, h, routed, given), false))
}

// experts is the sum of all experts by their shares [n, experts].
func (p *params) experts(m *model.Config, h, share node) node {
	each := func() node { // of the next weights [experts, width, cols] and biases [experts, width]
		y, bias := product(h, []int{1}, nil, p.next(), []int{2}, nil), p.next()
		if bias == nil {
			return y
		}
		return graph.Add(y, graph.ExpandAxes(bias, 0))
	}
	a := graph.Mul(gatedBy(m, each(), each()), graph.ExpandAxes(share, 2)) // [n, experts, width]
	out := product(a, []int{1, 2}, nil, p.next(), []int{0, 2}, nil)
	if bias := p.next(); bias != nil {
		out = graph.Add(out, graph.DotGeneral(share, []int{1}, nil, bias, []int{0}, nil))
	}
	return out
}

// route makes shares [n, experts] of a router's logits and the bias that follows: those of the topK experts with the best scores (the first
// of equals), normalised and scaled as the model says; the others' are zero. An expert is used if fewer than topK come before it.
func (p *params) route(m *model.Config, logits node) node {
	r, bias := &m.Router, p.next()
	logits = softcap(logits, r.Softcap)
	share, score := graph.Softmax(logits, 1), logits
	if r.Score == model.SigmoidRouter {
		share = graph.Logistic(logits)
	}
	if bias != nil {
		score = graph.Add(share, graph.ExpandAxes(bias, 0))
	}
	share = graph.Mul(share, best(score, m.TopK))
	if m.NormTopK {
		sum := graph.ExpandAxes(graph.ReduceSum(share, 1), 1)
		share = graph.Div(share, graph.MaxScalar(sum, math.Max(float64(r.Least), 1e-37)))
	}
	return factor(share, r.Scale)
}

// best is 1 for the k largest scores of each row [n, experts], 0 for the others.
func best(score node, k int) node {
	n, experts := score.Shape().Dim(0), score.Shape().Dim(1)
	mine := graph.BroadcastToDims(graph.ExpandAxes(score, 2), n, experts, experts)
	other := graph.BroadcastToDims(graph.ExpandAxes(score, 1), n, experts, experts)
	// 1 where the other expert has the lower number, and where it is another one: a device may compute the two copies of a score in
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
		return graph.Mul(asFloat(condition), graph.ExpandLeftToRank(graph.Const(score.Graph(), pairs), 3))
	}
	before := graph.ReduceSum(graph.Add(where(graph.GreaterThan(other, mine), others), where(graph.Equal(other, mine), first)), 2)
	return asFloat(graph.LessThan(before, graph.Scalar(score.Graph(), before.DType(), k)))
}
