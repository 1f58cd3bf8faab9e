package gorgonia

import (
	"fmt"
	"hash"
	"hash/fnv"
	"math"

	"github.com/chewxy/hm"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// erf is the error function as a gorgonia operation, which has none of its own.
type erf struct{}

var _ gorgonia.Op = erf{}

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
func (e erf) Hashcode() uint32 {
	h := fnv.New32a()
	e.WriteHash(h)
	return h.Sum32()
}
func (erf) String() string { return "erf" }
