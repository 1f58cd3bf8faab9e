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
	cacheScores = 1 << 21 // scores of one run on a CPU: longer passes are computed in blocks of rows, whose scores stay in the cache
	gpuScores   = 1 << 28 // on a GPU, where they are 1 GiB of its memory
	noRow       = -1      // position of a padded query: sees nothing
	noKey       = math.MaxInt32
	hiddenScore = -1e30
)

// Attend implements model.Backend: one run for each sequence and block of rows.
func (b *backend) Attend(p *model.Pass, layer int, q *tensor.Dense, seqs []attention.Seq) (*tensor.Dense, error) {
	m := b.m
	n := q.Shape()[0]
	params, err := m.AttentionParams(layer)
	if err != nil {
		return nil, err
	}
	a := &attending{b: b, p: p, params: params, layer: layer, q: q, bucket: roundUp(n, 1)}
	defer a.free()
	at := 0
	for i := range seqs {
		s := &seqs[i]
		if s.Sparse != nil {
			return nil, fmt.Errorf("xla: %s: sparse prefill masks: %w", b.name, model.ErrUnsupported)
		}
		if s.Norm != nil {
			return nil, fmt.Errorf("xla: %s: attention that estimates are mixed with: %w", b.name, model.ErrUnsupported)
		}
		if at+len(s.Pos) > n {
			return nil, fmt.Errorf("xla: sequences hold more than the pass's %d rows", n)
		}
		if err := a.sequence(s, at); err != nil {
			return nil, fmt.Errorf("xla: layer %d: %w", layer, err)
		}
		at += len(s.Pos)
	}
	if at != n {
		return nil, fmt.Errorf("xla: sequences hold %d rows, the pass has %d", at, n)
	}
	out, err := a.join()
	if err != nil {
		return nil, err
	}
	return b.attended.put(b.device, out, n), nil
}

// attending is one Attend: the sequences' results one after the other.
type attending struct {
	b      *backend
	p      *model.Pass
	params attention.Params
	layer  int
	q      *tensor.Dense
	bucket int       // rows of the pass, padded
	parts  []operand // results, [rows, H·dv] each
	rows   []int     // of each result that count
}

func (a *attending) free() {
	for i := range a.parts {
		a.parts[i].free()
	}
}

// sequence computes the rows of one sequence, which are those from at on of the pass.
func (a *attending) sequence(s *attention.Seq, at int) error {
	b := a.b
	if s.ColumnSums != nil {
		for _, row := range s.ColumnSums.Rows {
			clear(row)
		}
	}
	keys, err := b.keys(b.m.Layer[a.layer].Owner, s, at)
	if err != nil {
		return err
	}
	defer keys.free()
	if before, ok := a.flashes(s, keys); ok {
		return a.flash(keys, before)
	}
	block := roundUp(len(s.Pos), 1)
	for block > 1 && block*a.params.Heads*keys.slots() > b.maxScores {
		block /= 2
	}
	for from := 0; from < len(s.Pos); from += block {
		if err := a.block(s, keys, at, from, min(from+block, len(s.Pos)), block); err != nil {
			return err
		}
	}
	return nil
}

// block computes the sequence's rows [from, to), padded to rows.
func (a *attending) block(s *attention.Seq, keys *keys, at, from, to, rows int) error {
	b, p := a.b, &a.params
	c := b.call(a.layer, a.q.Shape()[0])
	c.rows(a.q)
	if to-from == c.n {
		c.positions(a.p)
		c.none()
	} else {
		c.ints(fillUp(s.Pos[from:to], rows, noRow), rows)
		c.scalars(at + from)
	}
	for _, o := range []operand{keys.large.k, keys.large.v, keys.large.pos, keys.picks, keys.picked, keys.tail.k, keys.tail.v, keys.tailPos} {
		c.add(o, nil)
	}
	if p.Sinks != nil {
		c.floats(p.Sinks, p.KVHeads, 1, p.Heads/p.KVHeads, 1)
	} else {
		c.none()
	}
	mass := s.ColumnSums != nil && to > s.ColumnSums.FromRow
	each := mass && s.ColumnSums.Rows != nil
	if mass && !each {
		counts := make([]float32, rows)
		for r := max(from, s.ColumnSums.FromRow); r < to; r++ {
			counts[r-from] = 1
		}
		c.floats(counts, rows)
	} else {
		c.none()
	}
	limit := keys.limit(s, to)
	got, err := c.run(fmt.Sprintf("attend window=%d each=%v keys=%d", p.Window, each, limit), func(in *params) []node {
		return attend(p, in, limit, each)
	})
	if err != nil {
		return err
	}
	a.parts, a.rows = append(a.parts, got[0]), append(a.rows, to-from)
	if !mass {
		return nil
	}
	defer got[1].free()
	weights := make([]float32, got[1].shape.Size())
	if err := b.device.read(weights, got[1]); err != nil {
		return err
	}
	columns := limit + keys.tail.slots()
	if each {
		keys.eachMass(p, s.ColumnSums, weights, from, to, rows, columns)
	} else {
		keys.sumMass(p, s.ColumnSums, weights, columns)
	}
	return nil
}

// join makes one result of the parts, padded to the pass's bucket.
func (a *attending) join() (operand, error) {
	if len(a.parts) == 1 && a.parts[0].shape.Dim(0) == a.bucket {
		out := a.parts[0]
		a.parts = nil
		return out, nil
	}
	c := a.b.call(a.layer, a.bucket)
	for _, o := range a.parts {
		c.add(o, nil)
	}
	got, err := c.run(fmt.Sprint("join ", a.rows, " of ", a.bucket), func(in *params) []node {
		var all []node
		n := 0
		for _, rows := range a.rows {
			all = append(all, graph.Slice(in.next(), graph.AxisRange(0, rows)))
			n += rows
		}
		if n < a.bucket {
			rest := all[0].Shape().Clone()
			rest.Dimensions[0] = a.bucket - n
			all = append(all, graph.Zeros(all[0].Graph(), rest))
		}
		return []node{graph.Concatenate(all, 0)}
	})
	if err != nil {
		return operand{}, err
	}
	return got[0], nil
}

// part is the keys and values of one block inside a program.
type part struct {
	k, v, pos, e node // e: scores, then their exponentials [G, n, H/G, t]
}

// attend is the program: softmax(q·kᵀ·scale)·v over the visible keys of the large block (its first limit slots, or only the
// picks where there are) and the tail. The weights are summed over rows with the counts, [G, H/G, t], or those of each row, [G, n, H/G, t], the
// tail's after the large block's.
func attend(p *attention.Params, in *params, limit int, each bool) []node {
	q, posQ, at := in.next(), in.next(), in.next()
	parts := []part{{k: in.next(), v: in.next(), pos: in.next()}}
	if picks, picked := in.next(), in.next(); picks != nil {
		parts[0] = part{k: pickSlots(parts[0].k, picks), v: pickSlots(parts[0].v, picks), pos: picked}
	} else if limit < parts[0].k.Shape().Dim(1) {
		first := graph.AxisRange(0, limit)
		parts[0] = part{k: graph.Slice(parts[0].k, graph.AxisRange(), first), v: graph.Slice(parts[0].v, graph.AxisRange(), first),
			pos: graph.Slice(parts[0].pos, graph.AxisRange(), first)}
	}
	if tail := (part{k: in.next(), v: in.next(), pos: in.next()}); tail.k != nil {
		parts = append(parts, tail)
	}
	sinks, counts := in.next(), in.next()
	n, group := posQ.Shape().Dim(0), p.Heads/p.KVHeads
	q = takeRows(q, at, n)
	q = graph.TransposeAllAxes(graph.Reshape(q, n, p.KVHeads, group, p.KeyDim), 1, 0, 2, 3)
	q = graph.Reshape(q, p.KVHeads, n*group, p.KeyDim)
	g := q.Graph()
	var top node
	for i := range parts {
		parts[i].e = scores(p, q, posQ, &parts[i])
		most := graph.ExpandAxes(graph.ReduceMax(parts[i].e, 3), 3)
		if top = most; i > 0 {
			top = graph.Max(most, graph.ExpandAxes(graph.ReduceMax(parts[0].e, 3), 3))
		}
	}
	seen := asFloat(graph.GreaterThan(top, graph.Scalar(g, top.DType(), hiddenScore/2))) // 0 for a row that sees nothing
	if sinks != nil {
		top = graph.Max(top, sinks)
	}
	var sum, out node
	for i := range parts {
		s := &parts[i]
		t := s.v.Shape().Dim(1)
		s.e = graph.Exp(graph.Sub(s.e, top)) // of a hidden key: 0, where any key is seen
		sum = plus(sum, graph.ExpandAxes(graph.ReduceSum(s.e, 3), 3))
		out = plus(out, product(graph.Reshape(s.e, p.KVHeads, n*group, t), []int{2}, []int{0}, s.v, []int{1}, []int{0}))
	}
	if sinks != nil {
		sum = graph.Add(sum, graph.Exp(graph.Sub(sinks, top)))
	}
	inverse := graph.Div(seen, sum)
	out = graph.Mul(graph.Reshape(out, p.KVHeads, n, group, p.ValueDim), inverse)
	out = graph.Reshape(graph.TransposeAllAxes(out, 1, 0, 2, 3), n, p.Heads*p.ValueDim)
	if counts == nil && !each {
		return []node{out}
	}
	weights := make([]node, len(parts))
	for i := range parts {
		w := graph.Mul(parts[i].e, inverse)
		if !each {
			w = graph.ReduceSum(graph.Mul(w, graph.Reshape(counts, 1, n, 1, 1)), 1)
		}
		weights[i] = w
	}
	return []node{out, graph.Concatenate(weights, -1)}
}

// scores are those of one part, hidden where a query must not see a key; q is [G, n·H/G, dk].
func scores(p *attention.Params, q, posQ node, s *part) node {
	n, t, group := posQ.Shape().Dim(0), s.v.Shape().Dim(1), p.Heads/p.KVHeads
	x := product(q, []int{2}, []int{0}, s.k, []int{2}, []int{0}) // [G, n·group, t]
	x = softcap(factor(graph.Reshape(x, p.KVHeads, n, group, t), p.Scale), p.Softcap)
	distance := graph.Sub(graph.Reshape(posQ, 1, n, 1, 1), graph.Reshape(s.pos, p.KVHeads, 1, 1, t))
	visible := graph.GreaterOrEqual(distance, graph.ScalarZero(q.Graph(), distance.DType()))
	if p.Window > 0 {
		visible = graph.LogicalAnd(visible, graph.LessThan(distance, graph.Scalar(q.Graph(), distance.DType(), p.Window)))
	}
	visible = graph.BroadcastToDims(visible, p.KVHeads, n, group, t)
	return graph.Where(visible, x, graph.Scalar(q.Graph(), x.DType(), hiddenScore))
}

// pickSlots takes the slots [G, s] of x [G, t, d].
func pickSlots(x, slots node) node {
	heads, t, d, n := x.Shape().Dim(0), x.Shape().Dim(1), x.Shape().Dim(2), slots.Shape().Dim(1)
	first := graph.MulScalar(graph.Iota(slots.Graph(), slots.Shape(), 0), t)
	rows := graph.Reshape(graph.Add(slots, first), heads*n)
	return graph.Reshape(lookup(graph.Reshape(x, heads*t, d), rows), heads, n, d)
}

// takeRows is rows [at, at+n) of x; a nil at is row 0.
func takeRows(x, at node, n int) node {
	if at == nil {
		return x
	}
	return rowsFrom(x, element(at, 0), n)
}

// plus is a sum whose first term may be missing.
func plus(sum, x node) node {
	if sum == nil {
		return x
	}
	return graph.Add(sum, x)
}
