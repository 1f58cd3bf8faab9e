package xla

import (
	"fmt"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"gorgonia.org/tensor"

	"terrace/model"
)

// Mix implements model.Recurrent. Texts stand side by side, as many rows each as the longest has, rounded up: behind a text's last row what a
// mixer makes of the others moves no state. States live in host memory, whose owner forks, keeps and takes them back: they go up with the
// call and come down before it returns.
func (b *backend) Mix(_ *model.Pass, layer int, hidden *tensor.Dense, states []model.StateRows) (*tensor.Dense, error) {
	t := newTexts(b, layer, hidden.Shape()[0], states)
	defer t.free()
	f := &b.m.Layer[layer]
	var out operand
	var err error
	switch {
	case t.total != hidden.Shape()[0]:
		return nil, fmt.Errorf("xla: states of %d rows, the pass has %d", t.total, hidden.Shape()[0])
	case f.Conv != nil:
		out, err = b.mixConv(t, f.Conv, hidden)
	case f.Delta != nil:
		out, err = b.mixDelta(t, f.Delta, hidden)
	default:
		return nil, fmt.Errorf("xla: layer %d has no recurrent mixer: %w", layer, model.ErrUnsupported)
	}
	if err != nil {
		return nil, fmt.Errorf("xla: layer %d: %w", layer, err)
	}
	return b.attended.put(b.device, out, t.total), nil
}

// texts are the texts of a pass at a recurrent layer: S of them with R rows each, of which counts are theirs.
type texts struct {
	b            *backend
	layer        int
	states       []model.StateRows
	total        int // rows of the pass
	many, rows   int // S and R
	alike        bool
	counts       []int32
	places, back []int32 // [S·R] the pass's row, [bucket] where among these a row of the pass lies; not used where all are alike
	own          []operand
}

func newTexts(b *backend, layer, n int, states []model.StateRows) *texts {
	t := &texts{b: b, layer: layer, states: states, many: roundUp(len(states), 1), rows: 1}
	for i := range states {
		t.rows = max(t.rows, roundUp(states[i].Rows, 1))
	}
	bucket := roundUp(n, 1)
	t.counts, t.places, t.back = make([]int32, t.many), make([]int32, t.many*t.rows), make([]int32, bucket)
	for i := range states {
		t.counts[i] = int32(states[i].Rows)
		for r := range states[i].Rows {
			if t.total < n {
				t.places[i*t.rows+r], t.back[t.total] = int32(t.total), int32(i*t.rows+r)
			}
			t.total++
		}
	}
	t.alike = t.many*t.rows == bucket && (t.many == 1 || t.rows == 1)
	return t
}

func (t *texts) free() {
	for i := range t.own {
		t.own[i].free()
	}
}

// up uploads a part of every text's state, numbers [from, from+size), as [S, dims...].
func (t *texts) up(from int, dims ...int) (operand, error) {
	size := 1
	for _, d := range dims {
		size *= d
	}
	all := make([]float32, t.many*size)
	for i := range t.states {
		copy(all[i*size:(i+1)*size], t.states[i].From[from:])
	}
	o, err := uploadCounted(t.b.device, "state", t.layer, all, append([]int{t.many}, dims...)...)
	t.own = append(t.own, o)
	return o, err
}

// down brings a part of the states back from numbers from on.
func (t *texts) down(o operand, from int) error {
	size := o.shape.Size() / t.many
	all := make([]float32, len(t.states)*size)
	if err := t.b.device.read(all, o); err != nil {
		return err
	}
	for i := range t.states {
		copy(t.states[i].State[from:from+size], all[i*size:])
	}
	return nil
}

// begin adds what a program needs to set the texts side by side.
func (t *texts) begin(c *call) {
	c.ints(t.counts, t.many)
	if t.alike {
		c.none()
		return
	}
	c.ints(t.places, t.many*t.rows)
}

// end adds what a program needs to set the rows in the pass's order again.
func (t *texts) end(c *call) {
	if t.alike {
		c.none()
		return
	}
	c.ints(t.back, len(t.back))
}

// apart sets rows x [bucket, d] side by side, [S, R, d].
func (t *texts) apart(x, places node) node {
	if places != nil {
		x = lookup(x, places)
	}
	return graph.Reshape(x, t.many, t.rows, x.Shape().Dim(1))
}

// together is the opposite of apart.
func (t *texts) together(x, back node) node {
	x = graph.Reshape(x, t.many*t.rows, x.Shape().Dim(2))
	if back != nil {
		x = lookup(x, back)
	}
	return x
}

// convolution adds the weights of a layer's convolution and the texts' last inputs, oldest first.
func (t *texts) convolution(c *call, r *model.RecurrentParams, channels, kernel int) {
	w, err := t.b.weights.chain(r.Conv)
	if err == nil && w.shape.Size() != channels*kernel {
		err = fmt.Errorf("convolution of %d weights, want %d of %d channels: %w", w.shape.Size(), channels*kernel, channels, model.ErrConfig)
	}
	c.add(w, err)
	c.vector(r.ConvBias)
	if kernel == 1 {
		c.none()
		return
	}
	c.add(t.up(0, kernel-1, channels))
}

// convolve is the causal convolution of x [S, R, C] with the next parameters' weights and bias behind the inputs of before; last are the
// inputs after each text's last row, [S, kernel−1, C], nil for a kernel of 1.
func (t *texts) convolve(in *params, x, counts node, kernel int) (y, last node) {
	w, bias, before := in.next(), in.next(), in.next()
	rows, channels := x.Shape().Dim(1), x.Shape().Dim(2)
	w = graph.Reshape(w, channels, kernel)
	if before != nil {
		x = graph.Concatenate([]node{before, x}, 1)
		at := graph.Iota(x.Graph(), shapes.Make(dtypes.Int32, t.many, kernel-1), 1)
		last = pickSlots(x, graph.Add(at, graph.ExpandAxes(counts, 1)))
	}
	for j := range kernel {
		tap := graph.Reshape(graph.Slice(w, graph.AxisRange(), graph.AxisElem(j)), 1, 1, channels)
		y = plus(y, graph.Mul(graph.Slice(x, graph.AxisRange(), graph.AxisRange(j, j+rows)), tap))
	}
	if bias != nil {
		y = graph.Add(y, graph.ExpandLeftToRank(bias, 3))
	}
	return y, last
}

// mixConv is model.ShortConv: C ⊙ conv(B⊙u) of [B|C|u] = In·norm(x).
func (b *backend) mixConv(t *texts, f *model.ShortConv, hidden *tensor.Dense) (operand, error) {
	m, l := b.m, &b.m.Params.Layers[t.layer]
	c := b.call(t.layer, hidden.Shape()[0])
	c.rows(hidden)
	c.norm(l.AttnNorm)
	c.linear(l.Recurrent.In[0])
	t.begin(c)
	t.convolution(c, &l.Recurrent, f.Width, f.Kernel)
	t.end(c)
	got, err := c.run(fmt.Sprintf("convolve kernel=%d texts=%d", f.Kernel, t.many), func(in *params) []node {
		x := in.next()
		x = in.linear(in.norm(&m.Config, x, m.PostNorm))
		part := func(i int) node {
			return graph.Slice(x, graph.AxisRange(), graph.AxisRange(i*f.Width, (i+1)*f.Width))
		}
		counts, places := in.next(), in.next()
		y, last := t.convolve(in, t.apart(graph.Mul(part(0), part(2)), places), counts, f.Kernel)
		out := []node{graph.Mul(t.together(y, in.next()), part(1))}
		if last != nil {
			out = append(out, last)
		}
		return out
	})
	if err != nil || len(got) == 1 {
		return first(got), err
	}
	defer got[1].free()
	return got[0], t.down(got[1], 0)
}

// first is the first of some results, absent where there are none.
func first(got []operand) operand {
	if len(got) == 0 {
		return operand{}
	}
	return got[0]
}
