package gorgonia

import (
	"fmt"
	"math"
	"slices"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"terrace/model"
)

// feedForward is down(act(gate(in))·up(in)), or down(act(up(in))) without a gate.
func (s *sheet) feedForward(in node, gate, up, down *model.Linear) node {
	y := s.linear(in, up)
	if gate == nil {
		return s.linear(s.activate(y), down)
	}
	return s.linear(s.times(s.activate(s.linear(in, gate)), y), down)
}

// activate is the model's nonlinearity.
func (s *sheet) activate(x node) node {
	switch s.b.m.Act {
	case model.SiLU:
		return s.times(x, s.unary(gorgonia.Sigmoid, x))
	case model.GELUTanh:
		cube := s.times(s.times(x, s.times(x, x)), s.constant(0.044715))
		inner := s.times(s.add(x, cube), s.constant(float32(math.Sqrt(2/math.Pi))))
		return half(s, x, s.unary(gorgonia.Tanh, inner))
	case model.GELU:
		scaled := s.times(x, s.constant(float32(1/math.Sqrt2)))
		return half(s, x, s.unary(func(x node) (node, error) { return gorgonia.ApplyOp(erf{}, x) }, scaled))
	case model.ReLU:
		return s.unary(gorgonia.Rectify, x)
	}
	return s.op(nil, fmt.Errorf("gorgonia: activation %d: %w", s.b.m.Act, model.ErrUnsupported))
}

// half is x/2·(1 + y).
func half(s *sheet, x, y node) node {
	return s.times(s.times(x, s.constant(0.5)), s.add(y, s.constant(1)))
}

// mixture adds for each row of in [n, D] the outputs of the experts it is routed to, weighted. share [n, experts] is the
// router's softmax. Rows of one expert go through its graph together.
func (b *backend) mixture(l *model.LayerParams, in, share *tensor.Dense) (*tensor.Dense, error) {
	m, n := b.m, in.Shape()[0]
	rows, weights := route(floats(share), n, m.Experts, m.TopK, m.NormTopK)
	sum := make([]float32, n*m.Hidden)
	for e, list := range rows {
		if len(list) == 0 {
			continue
		}
		x := make([]float32, 0, len(list)*m.Hidden)
		for _, r := range list {
			x = append(x, floats(in)[r*m.Hidden:(r+1)*m.Hidden]...)
		}
		s := b.sheet()
		out := s.feedForward(s.in(matrix(len(list), m.Hidden, x)), l.ExpertGate[e], l.ExpertUp[e], l.ExpertDown[e])
		y, err := s.run1(s.byColumn(gorgonia.BroadcastHadamardProd, out, s.in(matrix(len(list), 1, weights[e]))))
		if err != nil {
			return nil, fmt.Errorf("expert %d: %w", e, err)
		}
		for i, r := range list {
			for d, v := range floats(y)[i*m.Hidden : (i+1)*m.Hidden] {
				sum[r*m.Hidden+d] += v
			}
		}
	}
	return matrix(n, m.Hidden, sum), nil
}

// route lists the rows of each expert and their weights: the topK largest shares of a row (the first of equals), normalised
// to sum 1 where asked.
func route(share []float32, n, experts, topK int, normalise bool) (rows [][]int, weights [][]float32) {
	rows, weights = make([][]int, experts), make([][]float32, experts)
	for r := range n {
		row := share[r*experts : (r+1)*experts]
		order := make([]int, experts)
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(a, b int) int {
			switch {
			case row[a] > row[b]:
				return -1
			case row[a] < row[b]:
				return 1
			}
			return 0
		})
		total := float32(1)
		if normalise {
			total = 0
			for _, e := range order[:topK] {
				total += row[e]
			}
		}
		for _, e := range order[:topK] {
			rows[e], weights[e] = append(rows[e], r), append(weights[e], row[e]/total)
		}
	}
	return rows, weights
}
