package gorgonia

import (
	"fmt"
	"hash"
	"hash/fnv"
	"math"
	"slices"

	"github.com/chewxy/hm"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// hashcode is what graphs tell operations apart by.
func hashcode(op gorgonia.Op) uint32 {
	h := fnv.New32a()
	op.WriteHash(h)
	return h.Sum32()
}

// erf is the error function as a gorgonia operation, which has none of its own.
type erf struct{}

func (erf) Arity() int { return 1 }
func (erf) Type() hm.Type {
	a := hm.TypeVariable('a')
	return hm.NewFnType(a, a)
}
func (erf) InferShape(in ...gorgonia.DimSizer) (tensor.Shape, error) {
	return in[0].(tensor.Shape).Clone(), nil
}

// Do returns erf of each element of a float32 tensor.
func (erf) Do(in ...gorgonia.Value) (gorgonia.Value, error) {
	t, ok := in[0].(*tensor.Dense)
	if !ok || t.Dtype() != tensor.Float32 {
		return nil, fmt.Errorf("gorgonia: erf of %T, want a float32 matrix", in[0])
	}
	out := make([]float32, len(floats(t)))
	for i, x := range floats(t) {
		out[i] = float32(math.Erf(float64(x)))
	}
	return tensor.New(tensor.WithShape(t.Shape().Clone()...), tensor.WithBacking(out)), nil
}
func (erf) ReturnsPtr() bool      { return false }
func (erf) CallsExtern() bool     { return false }
func (erf) OverwritesInput() int  { return -1 }
func (erf) WriteHash(h hash.Hash) { fmt.Fprint(h, "erf") }
func (e erf) Hashcode() uint32    { return hashcode(e) }
func (erf) String() string        { return "erf" }

// softmax is e^x / Σ e^x over each row of a matrix. gorgonia's own takes the exponentials as they are, which overflow to
// infinity, and their quotients to NaN, from x = 89 on; here the row's maximum is taken off first.
type softmax struct{}

func (softmax) Arity() int { return 1 }
func (softmax) Type() hm.Type {
	a := hm.TypeVariable('a')
	return hm.NewFnType(a, a)
}
func (softmax) InferShape(in ...gorgonia.DimSizer) (tensor.Shape, error) {
	return in[0].(tensor.Shape).Clone(), nil
}

// Do returns the softmax of each row of a float32 matrix; sums are in float64.
func (softmax) Do(in ...gorgonia.Value) (gorgonia.Value, error) {
	t, ok := in[0].(*tensor.Dense)
	if !ok || t.Dtype() != tensor.Float32 || t.Dims() != 2 {
		return nil, fmt.Errorf("gorgonia: softmax of %T %v, want a float32 matrix", in[0], in[0].Shape())
	}
	rows, cols := t.Shape()[0], t.Shape()[1]
	out := make([]float32, rows*cols)
	for r := range rows {
		x, y := floats(t)[r*cols:(r+1)*cols], out[r*cols:(r+1)*cols]
		top, sum := float64(slices.Max(x)), 0.0
		for _, v := range x {
			sum += math.Exp(float64(v) - top)
		}
		for i, v := range x {
			y[i] = float32(math.Exp(float64(v)-top) / sum)
		}
	}
	return matrix(rows, cols, out), nil
}
func (softmax) ReturnsPtr() bool      { return false }
func (softmax) CallsExtern() bool     { return false }
func (softmax) OverwritesInput() int  { return -1 }
func (softmax) WriteHash(h hash.Hash) { fmt.Fprint(h, "softmax of rows") }
func (s softmax) Hashcode() uint32    { return hashcode(s) }
func (softmax) String() string        { return "softmax of rows" }

// refold is a matrix in another shape, in memory of its own. gorgonia's Reshape shares memory with what it reshapes, and an
// operation that works in place on the one then changes the other.
type refold struct{ rows, cols int }

func (refold) Arity() int { return 1 }
func (refold) Type() hm.Type {
	a := hm.TypeVariable('a')
	return hm.NewFnType(a, a)
}
func (r refold) InferShape(...gorgonia.DimSizer) (tensor.Shape, error) {
	return tensor.Shape{r.rows, r.cols}, nil
}

// Do returns a copy of a float32 matrix in the new shape.
func (r refold) Do(in ...gorgonia.Value) (gorgonia.Value, error) {
	t, ok := in[0].(*tensor.Dense)
	if !ok || t.Dtype() != tensor.Float32 || t.Shape().TotalSize() != r.rows*r.cols {
		return nil, fmt.Errorf("gorgonia: refold of %T %v, want a float32 matrix of %d elements", in[0], in[0].Shape(), r.rows*r.cols)
	}
	return matrix(r.rows, r.cols, append([]float32(nil), floats(t)...)), nil
}
func (refold) ReturnsPtr() bool        { return false }
func (refold) CallsExtern() bool       { return false }
func (refold) OverwritesInput() int    { return -1 }
func (r refold) WriteHash(h hash.Hash) { fmt.Fprint(h, r.String()) }
func (r refold) Hashcode() uint32      { return hashcode(r) }
func (r refold) String() string        { return fmt.Sprintf("refold %dx%d", r.rows, r.cols) }
