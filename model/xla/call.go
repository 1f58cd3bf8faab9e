package xla

import (
	"fmt"
	"math/bits"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"gorgonia.org/tensor"

	"terrace/model"
)

// call collects the operands of one program run: weights stay on the device, the others are freed after it.
type call struct {
	b        *backend
	n        int // rows, padded to bucket
	bucket   int
	layer    int // -1: none
	operands []operand
	passing  []operand
	err      error
}

func (b *backend) call(layer, rows int) *call {
	return &call{b: b, n: rows, bucket: roundUp(rows, 1), layer: layer}
}

// roundUp is the next power of two, at least least.
func roundUp(n, least int) int { return max(least, 1<<bits.Len(uint(max(n, 1)-1))) }

func (c *call) add(o operand, err error) {
	if c.err == nil {
		c.err = err
	}
	c.operands = append(c.operands, o)
}

// none adds an absent operand.
func (c *call) none() { c.add(operand{}, nil) }

// floats adds values that this call alone needs.
func (c *call) floats(x []float32, dims ...int) { pass(c, x, dims...) }

// ints adds integers that this call alone needs.
func (c *call) ints(x []int32, dims ...int) { pass(c, x, dims...) }

func pass[T float32 | int32](c *call, x []T, dims ...int) {
	if c.err != nil {
		return
	}
	o, err := uploadCounted(c.b.device, "inputs", c.layer, x, dims...)
	c.add(o, err)
	if err == nil {
		c.passing = append(c.passing, o)
	}
}

// rows adds a matrix [n, cols], padded with zero rows; one that lies on the device is not moved.
func (c *call) rows(t *tensor.Dense) {
	if o, ok := c.b.device.onDevice(t); ok && o.shape.Dim(0) == c.bucket {
		c.add(o, nil)
		return
	}
	cols := t.Shape()[1]
	x := values(t)
	if c.bucket != c.n {
		x = append(make([]float32, 0, c.bucket*cols), x...)[:c.bucket*cols]
	}
	c.floats(x, c.bucket, cols)
}

// linear adds a weight [rows, cols] and its bias [rows].
func (c *call) linear(l *model.Linear) { c.matrix(l, false) }

// matrix is linear, in float32 if whole.
func (c *call) matrix(l *model.Linear, whole bool) {
	if l.Absent() {
		c.none()
		c.none()
		return
	}
	w, bias, err := c.b.weights.linear(l, whole)
	c.add(w, err)
	c.add(bias, nil)
}

// norm adds a norm's weight and bias.
func (c *call) norm(p model.NormParams) {
	c.vector(p.W)
	c.vector(p.B)
}

// vector adds a small tensor, absent where the model has none.
func (c *call) vector(v *model.Vector) {
	if v.Absent() {
		c.none()
		return
	}
	c.add(c.b.weights.vector(v))
}

// free gives back what only this call needed.
func (c *call) free() {
	for i := range c.passing {
		c.passing[i].free()
	}
	c.passing = nil
}

// run runs the program and frees what only this call needed.
func (c *call) run(stage string, build func(*params) []*graph.Node) ([]operand, error) {
	defer c.free()
	if c.err != nil {
		return nil, c.err
	}
	p, _ := later(stage, c.operands, build)
	out, err := c.b.device.run(p, c.layer)
	p.release()
	return out, err
}

// later leaves the program to the one that needs its results, which have the given shapes.
func (c *call) later(stage string, build func(*params) []*graph.Node, of ...shapes.Shape) ([]operand, error) {
	defer c.free()
	if c.err != nil {
		return nil, c.err
	}
	_, out := later(stage, c.operands, build, of...)
	return out, nil
}

// into runs the program and puts its results into slots, their first n rows counting.
func (c *call) into(stage string, build func(*params) []*graph.Node, slots ...*slot) ([]*tensor.Dense, error) {
	got, err := c.run(stage, build)
	if err != nil {
		return nil, err
	}
	if len(got) != len(slots) {
		return nil, fmt.Errorf("xla: %s: %d results, want %d", stage, len(got), len(slots))
	}
	out := make([]*tensor.Dense, len(got))
	for i, o := range got {
		out[i] = slots[i].put(c.b.device, o, c.n)
	}
	return out, nil
}

// one is into for one result.
func (c *call) one(stage string, build func(*params) []*graph.Node, s *slot) (*tensor.Dense, error) {
	out, err := c.into(stage, build, s)
	if err != nil {
		return nil, err
	}
	return out[0], nil
}

// lateOne is one for a float32 result of so many columns, whose program waits for who needs it.
func (c *call) lateOne(stage string, build func(*params) []*graph.Node, cols int, s *slot) (*tensor.Dense, error) {
	got, err := c.later(stage, build, shapes.Make(dtypes.Float32, c.bucket, cols))
	if err != nil {
		return nil, err
	}
	return s.put(c.b.device, got[0], c.n), nil
}

// padded is a list of integers filled up to the bucket.
func (c *call) padded(x []int32, fill int32) []int32 { return fillUp(x, c.bucket, fill) }

func fillUp(x []int32, n int, fill int32) []int32 {
	out := make([]int32, n)
	for i := copy(out, x); i < n; i++ {
		out[i] = fill
	}
	return out
}

// values is the row-major float32 backing of a tensor.
func values(t *tensor.Dense) []float32 { return model.Float32s(t) }
