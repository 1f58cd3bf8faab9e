package xla

import (
	"fmt"
	"math"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"gorgonia.org/tensor"

	"terrace/model"
)

// deltaRows is how many rows of a text a program of the gated delta rule takes at once; the state stays on the device between them.
const deltaRows = 64

// unitEps is what is added to the sum of squares where queries and keys are made unit length.
const unitEps = 1e-6

// delta is a call of the gated delta rule (model.DeltaNet).
type delta struct {
	b      *backend
	f      *model.DeltaNet
	t      *texts
	chunk  int // rows at once
	chunks int
}

// mixDelta is model.DeltaNet: what a row gives the rule, the rule itself chunk by chunk, and the norm and gate of what it gives.
func (b *backend) mixDelta(t *texts, f *model.DeltaNet, hidden *tensor.Dense) (out operand, err error) {
	d := &delta{b: b, f: f, t: t, chunk: min(t.rows, deltaRows)}
	d.chunks = t.rows / d.chunk
	given, err := d.given(hidden)
	if err != nil {
		return operand{}, err
	}
	own := given
	defer func() {
		for i := range own {
			own[i].free()
		}
	}()
	tail := (f.Kernel - 1) * d.channels()
	state, err := t.up(tail, f.ValueHeads, f.KeyDim, f.ValueDim)
	if err != nil {
		return operand{}, err
	}
	outs := make([]operand, d.chunks)
	for i := range outs {
		if outs[i], state, err = d.step(given[:5], state, i); err != nil {
			return operand{}, err
		}
		own = append(own, outs[i], state)
	}
	if err := t.down(state, tail); err != nil {
		return operand{}, err
	}
	if f.Kernel > 1 {
		if err := t.down(given[6], 0); err != nil {
			return operand{}, err
		}
	}
	return d.finish(outs, given[5], hidden.Shape()[0])
}

func (d *delta) channels() int { return 2*d.f.KeyHeads*d.f.KeyDim + d.f.ValueHeads*d.f.ValueDim }

// given is what the rows give the rule: queries and keys [chunks, S, hv, C, dk], values [chunks, S, hv, C, dv], step sizes and logarithms of decays
// [chunks, S, hv, C], both 0 behind a text's last row; then the gate [N, hv·dv] and the last inputs of the convolution.
func (d *delta) given(hidden *tensor.Dense) ([]operand, error) {
	b, f, t := d.b, d.f, d.t
	m, l := &b.m.Config, &b.m.Params.Layers[t.layer]
	r := &l.Recurrent
	c := b.call(t.layer, hidden.Shape()[0])
	c.rows(hidden)
	c.norm(l.AttnNorm)
	for _, w := range []*model.Linear{r.In[0], r.B, r.A, r.Z} {
		c.linear(w)
	}
	c.vector(r.Decay)
	c.vector(r.DTBias)
	t.begin(c)
	t.convolution(c, r, d.channels(), f.Kernel)
	build := func(in *params) []node {
		x := in.next()
		x = in.norm(m, x, m.PostNorm)
		qkv, beta, a, gate := in.linear(x), in.linear(x), in.linear(x), in.linear(x)
		decay, dt := in.next(), in.next()
		counts, places := in.next(), in.next()
		beta = graph.Logistic(beta)
		log := graph.Mul(softplus(graph.Add(a, graph.ExpandAxes(dt, 0))), graph.ExpandAxes(decay, 0))
		y, last := t.convolve(in, t.apart(qkv, places), counts, f.Kernel)
		y = graph.Mul(y, graph.Logistic(y))
		keys, at := f.KeyHeads*f.KeyDim, graph.Iota(x.Graph(), shapes.Make(dtypes.Int32, t.many, t.rows, 1), 1)
		there := asFloat(graph.LessThan(at, graph.Reshape(counts, t.many, 1, 1)))
		part := func(from, to int) node {
			return graph.Slice(y, graph.AxisRange(), graph.AxisRange(), graph.AxisRange(from, to))
		}
		q, k := d.heads(part(0, keys), f.KeyHeads, f.KeyDim), d.heads(part(keys, 2*keys), f.KeyHeads, f.KeyDim)
		q, k = graph.MulScalar(unitLength(q), 1/math.Sqrt(float64(f.KeyDim))), unitLength(k)
		out := []node{d.spread(q), d.spread(k), d.heads(part(2*keys, d.channels()), f.ValueHeads, f.ValueDim)}
		for _, each := range []node{beta, log} {
			each = graph.Mul(t.apart(each, places), there)
			out = append(out, graph.Squeeze(d.heads(each, f.ValueHeads, 1), 4))
		}
		out = append(out, gate)
		if last != nil {
			out = append(out, last)
		}
		return out
	}
	stage := fmt.Sprintf("delta %+v texts=%d rows=%d", *f, t.many, t.rows)
	if d.chunks > 1 {
		return c.run(stage, build)
	}
	part := func(width ...int) shapes.Shape {
		return shapes.Make(dtypes.Float32, append([]int{1, t.many, f.ValueHeads, d.chunk}, width...)...)
	}
	of := []shapes.Shape{part(f.KeyDim), part(f.KeyDim), part(f.ValueDim), part(), part(), shapes.Make(dtypes.Float32, c.bucket, f.ValueHeads*f.ValueDim)}
	if f.Kernel > 1 {
		of = append(of, shapes.Make(dtypes.Float32, t.many, f.Kernel-1, d.channels()))
	}
	return c.later(stage, build, of...)
}

// heads is x [S, R, heads·dim] as [chunks, S, heads, C, dim].
func (d *delta) heads(x node, heads, dim int) node {
	x = graph.Reshape(x, d.t.many, d.chunks, d.chunk, heads, dim)
	return graph.TransposeAllAxes(x, 1, 0, 3, 2, 4)
}

// spread repeats key heads for the value heads that use them.
func (d *delta) spread(x node) node {
	f, each := d.f, d.f.ValueHeads/d.f.KeyHeads
	if each == 1 {
		return x
	}
	if f.Modulo {
		x = graph.BroadcastToDims(graph.ExpandAxes(x, 2), d.chunks, d.t.many, each, f.KeyHeads, d.chunk, f.KeyDim)
	} else {
		x = graph.BroadcastToDims(graph.ExpandAxes(x, 3), d.chunks, d.t.many, f.KeyHeads, each, d.chunk, f.KeyDim)
	}
	return graph.Reshape(x, d.chunks, d.t.many, f.ValueHeads, d.chunk, f.KeyDim)
}

// unitLength divides each vector by its length.
func unitLength(x node) node {
	last := x.Rank() - 1
	return graph.Mul(x, graph.Rsqrt(graph.AddScalar(graph.ExpandAxes(graph.ReduceSum(graph.Mul(x, x), last), last), unitEps)))
}

// step takes the states [S, hv, dk, dv] through a chunk of every text and returns what the rule gives, [S, hv, C, dv], and the states behind it.
func (d *delta) step(given []operand, state operand, chunk int) (out, next operand, err error) {
	c := d.b.call(d.t.layer, 1)
	for _, o := range given {
		c.add(o, nil)
	}
	c.add(state, nil)
	c.scalars(chunk)
	got, err := c.run(fmt.Sprintf("rule chunks=%d", d.chunks), func(in *params) []node {
		x := [5]node{in.next(), in.next(), in.next(), in.next(), in.next()}
		state, at := in.next(), element(in.next(), 0)
		for i := range x {
			x[i] = chunkOf(x[i], at)
		}
		out, next := deltaRule(x[0], x[1], x[2], x[3], x[4], state)
		return []node{out, next}
	})
	if err != nil {
		return operand{}, operand{}, err
	}
	return got[0], got[1], nil
}

// chunkOf is x[at] without its first axis.
func chunkOf(x, at node) node {
	dims := x.Shape().Dimensions
	if dims[0] > 1 {
		x = rowsFrom(graph.Reshape(x, dims[0], x.Shape().Size()/dims[0]), at, 1)
	}
	return graph.Reshape(x, dims[1:]...)
}

// deltaRule is the gated delta rule over C rows, all at once. With G the sums of the logarithms of decays up to a row, what row i writes is
// d_i = β_i (v_i − e^{G_i} Sᵀk_i − Σ_{j<i} e^{G_i−G_j} (k_j·k_i) d_j), a triangular system (I+N) D = B; what it reads is
// e^{G_i} Sᵀq_i + Σ_{j≤i} e^{G_i−G_j} (k_j·q_i) d_j, and the state becomes e^{G_C} S + Σ_j e^{G_C−G_j} k_j d_jᵀ. q, k [S, hv, C, dk], v [S, hv, C, dv],
// beta, log [S, hv, C], state [S, hv, dk, dv].
func deltaRule(q, k, v, beta, log, state node) (out, next node) {
	g, rows := q.Graph(), q.Shape().Dim(2)
	pairs := func(x, y node) node { return batched(x, 3, y, 3) } // of all rows of x and of y
	upTo := graph.Const(g, triangle(rows, 0))
	sums := graph.DotGeneral(log, []int{2}, nil, upTo, []int{1}, nil) // [S, hv, C]
	between := graph.Sub(graph.ExpandAxes(sums, 3), graph.ExpandAxes(sums, 2))
	seen := graph.ExpandLeftToRank(upTo, 4)
	decay := graph.Mul(graph.Exp(graph.Mul(between, seen)), seen) // e^{G_i−G_j} where j ≤ i
	since := graph.ExpandAxes(graph.Exp(sums), 3)                 // e^{G_i}
	step := graph.ExpandAxes(beta, 3)
	n := graph.Mul(graph.Mul(graph.Mul(pairs(k, k), decay), graph.ExpandLeftToRank(graph.Const(g, triangle(rows, 1)), 4)), step)
	written := graph.Mul(step, graph.Sub(v, graph.Mul(since, batched(k, 3, state, 2))))
	written = batched(unitTriangularInverse(n), 3, written, 2)
	out = graph.Add(graph.Mul(since, batched(q, 3, state, 2)), batched(graph.Mul(pairs(q, k), decay), 3, written, 2))
	left := graph.Squeeze(graph.Slice(decay, graph.AxisRange(), graph.AxisRange(), graph.AxisElem(rows-1)), 2) // e^{G_C−G_j}
	all := graph.Slice(since, graph.AxisRange(), graph.AxisRange(), graph.AxisElem(rows-1))
	next = graph.Add(graph.Mul(all, state), batched(graph.Mul(k, graph.ExpandAxes(left, 3)), 2, written, 2))
	return out, next
}

// batched is the product of x and y [S, heads, …] over one axis of each.
func batched(x node, axisX int, y node, axisY int) node {
	return graph.DotGeneral(x, []int{axisX}, []int{0, 1}, y, []int{axisY}, []int{0, 1})
}

// unitTriangularInverse is (I+n)⁻¹ for n [S, heads, C, C] below the diagonal, C a power of two: inverses of blocks on the diagonal become those of
// blocks twice as large, [[A, 0], [−D·B·A, D]] of A, D the two inverses and B what lies below. It sums as forward substitution does; a series
// in powers of n would not, whose terms cancel.
func unitTriangularInverse(n node) node {
	rows := n.Shape().Dim(3)
	one := make([][]float32, rows)
	for i := range one {
		one[i] = make([]float32, rows)
		one[i][i] = 1
	}
	inverse := graph.BroadcastToDims(graph.ExpandLeftToRank(graph.Const(n.Graph(), one), 4), n.Shape().Dimensions...)
	for size := 1; size < rows; size *= 2 {
		below := make([][]float32, rows)
		for i := range below {
			below[i] = make([]float32, rows)
			for j := range rows {
				if i/size%2 == 1 && j/size == i/size-1 {
					below[i][j] = 1
				}
			}
		}
		part := graph.Mul(n, graph.ExpandLeftToRank(graph.Const(n.Graph(), below), 4))
		inverse = graph.Sub(inverse, batched(batched(inverse, 3, part, 2), 3, inverse, 2))
	}
	return inverse
}

// triangle is 1 where the column is at least so much below the row.
func triangle(n, below int) [][]float32 {
	out := make([][]float32, n)
	for i := range out {
		out[i] = make([]float32, n)
		for j := range max(0, i-below+1) {
			out[i][j] = 1
		}
	}
	return out
}

// finish sets the chunks' results [S, hv, C, dv] in the order of the pass's rows, norms each head and gates it.
func (d *delta) finish(outs []operand, gate operand, rows int) (operand, error) {
	b, f, t := d.b, d.f, d.t
	c := b.call(t.layer, rows)
	for _, o := range outs {
		c.add(o, nil)
	}
	c.add(gate, nil)
	c.vector(b.m.Params.Layers[t.layer].Recurrent.Norm)
	t.end(c)
	width := f.ValueHeads * f.ValueDim
	got, err := c.later(fmt.Sprintf("gate %+v texts=%d", *f, t.many), func(in *params) []node {
		all := make([]node, len(outs))
		for i := range all {
			all[i] = in.next()
		}
		gate, norm := in.next(), in.next()
		x := graph.TransposeAllAxes(graph.Concatenate(all, 2), 0, 2, 1, 3) // [S, R, hv, dv]
		x = graph.Mul(unitRows(x, b.m.NormEps), graph.ExpandLeftToRank(norm, 4))
		x = t.together(graph.Reshape(x, t.many, t.rows, width), in.next())
		if !f.Sigmoid {
			x = graph.Mul(x, gate)
		}
		return []node{graph.Mul(x, graph.Logistic(gate))}
	}, shapes.Make(dtypes.Float32, c.bucket, width))
	return first(got), err
}
