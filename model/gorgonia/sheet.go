package gorgonia

import (
	"fmt"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"terrace/model"
)

type node = *gorgonia.Node

// sheet is one expression graph while it is written: matrices of float32, and the first fault, after which every operation
// is a no-op.
type sheet struct {
	b      *backend
	g      *gorgonia.ExprGraph
	inputs int
	err    error
}

func (b *backend) sheet() *sheet { return &sheet{b: b, g: gorgonia.NewGraph()} }

// in is an input of the graph: a matrix. Nodes are told apart by name.
func (s *sheet) in(t *tensor.Dense) node {
	s.inputs++
	return gorgonia.NewMatrix(s.g, tensor.Float32, gorgonia.WithName(fmt.Sprintf("in%d", s.inputs)),
		gorgonia.WithShape(t.Shape()...), gorgonia.WithValue(t))
}

// op keeps the result of an operation, or its fault.
func (s *sheet) op(n node, err error) node {
	if s.err == nil && err != nil {
		s.err = err
	}
	return n
}

// unary applies f to x unless something failed before.
func (s *sheet) unary(f func(node) (node, error), x node) node {
	if s.err != nil {
		return nil
	}
	return s.op(f(x))
}

// binary applies f to x and y unless something failed before.
func (s *sheet) binary(f func(x, y node) (node, error), x, y node) node {
	if s.err != nil {
		return nil
	}
	return s.op(f(x, y))
}

func (s *sheet) add(x, y node) node    { return s.binary(gorgonia.Add, x, y) }
func (s *sheet) times(x, y node) node  { return s.binary(gorgonia.HadamardProd, x, y) }
func (s *sheet) matmul(x, y node) node { return s.binary(gorgonia.Mul, x, y) }
func (s *sheet) softmax(x node) node {
	return s.unary(func(x node) (node, error) { return gorgonia.ApplyOp(softmax{}, x) }, x)
}

// constant is a scalar.
func (s *sheet) constant(v float32) node { return gorgonia.NewConstant(v) }

// scale multiplies by a factor whose zero value means 1.
func (s *sheet) scale(x node, factor float32) node {
	if factor == 0 || factor == 1 {
		return x
	}
	return s.times(x, s.constant(factor))
}

// byRow combines each row of x [n, m] with y [1, m].
func (s *sheet) byRow(f broadcast, x, y node) node {
	return s.binary(func(x, y node) (node, error) { return f(x, y, nil, []byte{0}) }, x, y)
}

// byColumn combines each column of x [n, m] with y [n, 1].
func (s *sheet) byColumn(f broadcast, x, y node) node {
	return s.binary(func(x, y node) (node, error) { return f(x, y, nil, []byte{1}) }, x, y)
}

type broadcast func(x, y node, left, right []byte) (node, error)

// mean is the mean of each row of x [n, m] as [n, 1].
func (s *sheet) mean(x node) node {
	return s.unary(func(x node) (node, error) {
		mean, err := gorgonia.Mean(x, 1)
		if err != nil {
			return nil, err
		}
		return gorgonia.Reshape(mean, tensor.Shape{x.Shape()[0], 1}) // of a vector that nothing else uses
	}, x)
}

// reshape is x as [rows, cols].
func (s *sheet) reshape(x node, rows, cols int) node {
	return s.unary(func(x node) (node, error) { return gorgonia.ApplyOp(refold{rows, cols}, x) }, x)
}

// linear is x·Wᵀ + b for x [n, cols].
func (s *sheet) linear(x node, l *model.Linear) node {
	if s.err != nil {
		return nil
	}
	w, err := s.b.weights.linear(l)
	if err != nil {
		return s.op(nil, err)
	}
	y := s.matmul(x, s.in(w.w))
	if w.bias == nil {
		return y
	}
	return s.byRow(gorgonia.BroadcastAdd, y, s.in(w.bias))
}

// vector is a norm's weight as an input [1, width], nil where it is absent.
func (s *sheet) vector(v *model.Vector) node {
	if v.Absent() || s.err != nil {
		return nil
	}
	t, err := s.b.weights.vector(v)
	if err != nil {
		return s.op(nil, err)
	}
	return s.in(t)
}

// run computes the wanted nodes. Their values are the caller's: fresh matrices.
func (s *sheet) run(wanted ...node) ([]*tensor.Dense, error) {
	if s.err != nil {
		return nil, s.err
	}
	values := make([]gorgonia.Value, len(wanted))
	for i, n := range wanted {
		gorgonia.Read(n, &values[i])
	}
	machine := gorgonia.NewTapeMachine(s.g)
	defer machine.Close()
	if err := machine.RunAll(); err != nil {
		return nil, err
	}
	out := make([]*tensor.Dense, len(wanted))
	for i, v := range values {
		t, ok := v.(*tensor.Dense)
		if !ok {
			return nil, fmt.Errorf("gorgonia: a graph returned %T, want a matrix", v)
		}
		out[i] = matrix(wanted[i].Shape()[0], wanted[i].Shape()[1], append([]float32(nil), floats(t)...))
	}
	return out, nil
}

func (s *sheet) run1(wanted node) (*tensor.Dense, error) {
	out, err := s.run(wanted)
	if err != nil {
		return nil, err
	}
	return out[0], nil
}
