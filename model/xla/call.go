package xla

import (
	"fmt"
	"math/bits"

	"github.com/gomlx/compute"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
	"gorgonia.org/tensor"

	"terrace/model"
)

// call collects the operands of one program run: weights stay on the device, the others are freed after it.
type call struct {
	b        *backend
	n        int // rows, padded to bucket
	bucket   int
	operands []operand
	passing  []compute.Buffer
	err      error
}

func (b *backend) call(rows int) *call { return &call{b: b, n: rows, bucket: roundUp(rows, 1)} }

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
	o, err := upload(c.b.device, x, dims...)
	c.add(o, err)
	if err == nil {
		c.passing = append(c.passing, o.buffer)
		c.b.device.counts.UploadBytes += int64(4 * len(x))
	}
}

// rows adds a matrix [n, cols], padded with zero rows.
func (c *call) rows(x []float32, cols int) {
	if c.bucket != c.n {
		x = append(make([]float32, 0, c.bucket*cols), x...)[:c.bucket*cols]
	}
	c.floats(x, c.bucket, cols)
}

// linear adds a weight [rows, cols] and its bias [rows].
func (c *call) linear(l *model.Linear) {
	if l.Absent() {
		c.none()
		c.none()
		return
	}
	w, bias, err := c.b.weights.linear(l)
	c.add(w, err)
	c.add(bias, nil)
}

// norm adds a norm's weight and bias.
func (c *call) norm(p model.NormParams) {
	for _, v := range []*model.Vector{p.W, p.B} {
		if v.Absent() {
			c.none()
			continue
		}
		c.add(c.b.weights.vector(v))
	}
}

// run runs the program and frees what only this call needed.
func (c *call) run(stage string, build func(*params) []*graph.Node) ([]*tensors.Tensor, error) {
	defer func() {
		for _, b := range c.passing {
			_ = b.Finalize()
		}
	}()
	if c.err != nil {
		return nil, c.err
	}
	g, err := c.b.device.program(stage, c.operands, build)
	if err != nil {
		return nil, err
	}
	return c.b.device.run(g, c.operands)
}

// matrices runs the program and returns its results' first n rows.
func (c *call) matrices(stage string, build func(*params) []*graph.Node) ([]*tensor.Dense, error) {
	got, err := c.run(stage, build)
	if err != nil {
		return nil, err
	}
	out := make([]*tensor.Dense, len(got))
	for i, t := range got {
		cols := t.Shape().Size() / c.bucket
		x, err := c.b.device.read(t, c.n*cols)
		if err != nil {
			return nil, fmt.Errorf("xla: %s: result %d: %w", stage, i, err)
		}
		out[i] = tensor.New(tensor.WithShape(c.n, cols), tensor.WithBacking(x))
	}
	return out, nil
}

// values is the row-major float32 backing of a tensor.
func values(t *tensor.Dense) []float32 { return model.Float32s(t) }
