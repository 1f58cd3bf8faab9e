package xla

import (
	"fmt"
	"math"

	"github.com/gomlx/gomlx/core/graph"
	"gorgonia.org/tensor"

	"terrace/attention"
	"terrace/model"
)

const (
	leastTokens = 64      // smallest bucket of keys
	maxScores   = 1 << 26 // scores of one run: longer passes are computed in blocks of rows
	noRow       = -1      // position of a padded query: sees nothing
	noKey       = math.MaxInt32
	hiddenScore = -1e30
)

// Attend implements model.Backend: one run for each sequence and block of rows.
func (b *backend) Attend(p *model.Pass, layer int, q *tensor.Dense, seqs []attention.Seq) (*tensor.Dense, error) {
	m := b.m
	n := q.Shape()[0]
	params := model.AttentionParams(&m.Config, layer)
	out, at := make([]float32, n*m.Heads*m.ValDim), 0
	for i := range seqs {
		s := &seqs[i]
		rows := len(s.Pos)
		if at+rows > n {
			return nil, fmt.Errorf("xla: sequences hold more than the pass's %d rows", n)
		}
		if s.Sparse != nil {
			return nil, fmt.Errorf("xla: %s: sparse prefill masks: %w", b.name, model.ErrUnsupported)
		}
		s.Q, s.Out = values(q)[at*m.Heads*m.KeyDim:(at+rows)*m.Heads*m.KeyDim], out[at*m.Heads*m.ValDim:(at+rows)*m.Heads*m.ValDim]
		at += rows
		if err := b.attendSeq(&params, s); err != nil {
			return nil, fmt.Errorf("xla: layer %d: %w", layer, err)
		}
	}
	if at != n {
		return nil, fmt.Errorf("xla: sequences hold %d rows, the pass has %d", at, n)
	}
	return tensor.New(tensor.WithShape(n, m.Heads*m.ValDim), tensor.WithBacking(out)), nil
}

// attendSeq computes the rows of one sequence.
func (b *backend) attendSeq(p *attention.Params, s *attention.Seq) error {
	if s.Mass != nil {
		for _, row := range s.Mass.Rows {
			clear(row)
		}
	}
	kv := b.gather(p, s)
	block := len(s.Pos)
	for block > 1 && roundUp(block, 1)*p.Heads*kv.bucket > maxScores {
		block = (block + 1) / 2
	}
	up := b.call(0)
	up.floats(kv.k, p.KVHeads, kv.bucket, p.KeyDim)
	up.floats(kv.v, p.KVHeads, kv.bucket, p.ValueDim)
	up.ints(kv.pos, p.KVHeads, kv.bucket)
	defer func() {
		for _, buffer := range up.passing {
			_ = buffer.Finalize()
		}
	}()
	if up.err != nil {
		return up.err
	}
	for from := 0; from < len(s.Pos); from += block {
		if err := b.attendRows(p, s, kv, up.operands, from, min(from+block, len(s.Pos))); err != nil {
			return err
		}
	}
	return nil
}

// attendRows computes rows [from, to) over keys, values and key positions on the device.
func (b *backend) attendRows(p *attention.Params, s *attention.Seq, kv *gathered, keys []operand, from, to int) error {
	c := b.call(to - from)
	c.rows(s.Q[from*p.Heads*p.KeyDim:to*p.Heads*p.KeyDim], p.Heads*p.KeyDim)
	c.ints(c.padded(s.Pos[from:to], noRow), c.bucket)
	c.operands = append(c.operands, keys...)
	if p.Sinks != nil {
		c.floats(p.Sinks, p.KVHeads, 1, p.Heads/p.KVHeads, 1)
	} else {
		c.none()
	}
	mass := s.Mass != nil && to > s.Mass.FromRow
	each := mass && s.Mass.Rows != nil
	if mass && !each {
		counts := make([]float32, c.bucket)
		for r := max(from, s.Mass.FromRow); r < to; r++ {
			counts[r-from] = 1
		}
		c.floats(counts, c.bucket)
	} else {
		c.none()
	}
	got, err := c.run(fmt.Sprintf("attend window=%d each=%v", p.Window, each), func(in *params) []node {
		out, weights := attend(p, in)
		counts := in.next()
		switch {
		case each:
			return []node{out, weights()}
		case counts != nil:
			rows := graph.Reshape(counts, 1, c.bucket, 1, 1)
			return []node{out, graph.ReduceSum(graph.Mul(weights(), rows), 1)}
		}
		return []node{out}
	})
	if err != nil {
		return err
	}
	width := p.Heads * p.ValueDim
	x, err := b.device.read(got[0], (to-from)*width)
	if err != nil {
		return err
	}
	copy(s.Out[from*width:], x)
	if !mass {
		return nil
	}
	weights, err := b.device.read(got[1], got[1].Shape().Size())
	if err != nil {
		return err
	}
	if each {
		kv.eachMass(p, s.Mass, weights, from, to, c.bucket)
	} else {
		kv.sumMass(p, s.Mass, weights)
	}
	return nil
}

// attend is the program: softmax(q·kᵀ·scale)·v over the visible keys. Parameters: q [n, H·dk], its positions [n], keys
// [G, t, dk], values [G, t, dv], key positions [G, t], sinks. The weights are [G, n, H/G, t].
func attend(p *attention.Params, in *params) (out node, weights func() node) {
	q, posQ, k, v, posK, sinks := in.next(), in.next(), in.next(), in.next(), in.next(), in.next()
	n, t, group := q.Shape().Dim(0), v.Shape().Dim(1), p.Heads/p.KVHeads
	q = graph.TransposeAllAxes(graph.Reshape(q, n, p.KVHeads, group, p.KeyDim), 1, 0, 2, 3)
	q = graph.Reshape(q, p.KVHeads, n*group, p.KeyDim)
	scores := graph.DotGeneral(q, []int{2}, []int{0}, k, []int{2}, []int{0}) // [G, n·group, t]
	scores = softcap(factor(graph.Reshape(scores, p.KVHeads, n, group, t), p.Scale), p.Softcap)

	distance := graph.Sub(graph.Reshape(posQ, 1, n, 1, 1), graph.Reshape(posK, p.KVHeads, 1, 1, t))
	visible := graph.GreaterOrEqual(distance, graph.ScalarZero(q.Graph(), distance.DType()))
	if p.Window > 0 {
		visible = graph.LogicalAnd(visible, graph.LessThan(distance, graph.Scalar(q.Graph(), distance.DType(), p.Window)))
	}
	visible = graph.BroadcastToDims(visible, p.KVHeads, n, group, t)
	scores = graph.Where(visible, scores, graph.Scalar(q.Graph(), scores.DType(), hiddenScore))
	top := graph.ExpandAxes(graph.ReduceMax(scores, 3), 3)
	seen := asFloat(graph.GreaterThan(top, graph.Scalar(q.Graph(), top.DType(), hiddenScore/2))) // 0 for a row that sees nothing
	if sinks != nil {
		top = graph.Max(top, sinks)
	}
	e := graph.Exp(graph.Sub(scores, top)) // of a hidden key: 0, where any key is seen
	sum := graph.ExpandAxes(graph.ReduceSum(e, 3), 3)
	if sinks != nil {
		sum = graph.Add(sum, graph.Exp(graph.Sub(sinks, top)))
	}
	inverse := graph.Div(seen, sum)
	out = graph.DotGeneral(graph.Reshape(e, p.KVHeads, n*group, t), []int{2}, []int{0}, v, []int{1}, []int{0})
	out = graph.Mul(graph.Reshape(out, p.KVHeads, n, group, p.ValueDim), inverse)
	out = graph.TransposeAllAxes(out, 1, 0, 2, 3)
	return graph.Reshape(out, n, p.Heads*p.ValueDim), func() node { return graph.Mul(e, inverse) }
}
