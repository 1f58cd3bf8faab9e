package gorgonia

import (
	"gorgonia.org/tensor"

	"terrace/model"
)

// weights holds the float32 copies of what has been used.
type weights struct {
	linears map[*model.Linear]*linear
	vectors map[*model.Vector]*tensor.Dense
}

// linear is a weight as the graphs use it: y = x·w (+ bias).
type linear struct {
	w    *tensor.Dense // [cols, rows]
	bias *tensor.Dense // [1, rows], nil = none
}

func newWeights() weights {
	return weights{linears: map[*model.Linear]*linear{}, vectors: map[*model.Vector]*tensor.Dense{}}
}

func (w *weights) linear(l *model.Linear) (*linear, error) {
	if got := w.linears[l]; got != nil {
		return got, nil
	}
	values, err := l.Values()
	if err != nil {
		return nil, err
	}
	bias, err := l.BiasValues()
	if err != nil {
		return nil, err
	}
	turned := make([]float32, len(values))
	for r := range l.Rows {
		for c, x := range values[r*l.Cols : (r+1)*l.Cols] {
			turned[c*l.Rows+r] = x
		}
	}
	out := &linear{w: matrix(l.Cols, l.Rows, turned)}
	if bias != nil {
		out.bias = matrix(1, l.Rows, bias)
	}
	w.linears[l] = out
	return out, nil
}

// vector returns a norm's weight as a row [1, width].
func (w *weights) vector(v *model.Vector) (*tensor.Dense, error) {
	if got := w.vectors[v]; got != nil {
		return got, nil
	}
	values, err := v.Values()
	if err != nil {
		return nil, err
	}
	w.vectors[v] = matrix(1, len(values), values)
	return w.vectors[v], nil
}

// matrix is a tensor [rows, cols] over x.
func matrix(rows, cols int, x []float32) *tensor.Dense {
	return tensor.New(tensor.WithShape(rows, cols), tensor.WithBacking(x))
}

// floats is the row-major float32 backing of a tensor.
func floats(t *tensor.Dense) []float32 { return model.Float32s(t) }
