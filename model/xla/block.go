package xla

import (
	"fmt"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
)

// block is keys and values of one sequence and layer on the device, T slots a KV head: k [G, T, dk], v [G, T, dv] and the
// positions [G, T] (noKey where a slot is empty). Programs do not change buffers: writing makes a new block and frees the
// old one.
type block struct {
	k, v, pos operand
}

func (b *block) absent() bool { return b.k.absent() }

// slots is T.
func (b *block) slots() int {
	if b.absent() {
		return 0
	}
	return b.k.shape.Dim(1)
}

func (b *block) free() {
	b.k.free()
	b.v.free()
	b.pos.free()
}

// blockBytes is the size of a layer's block of so many slots.
func (b *backend) blockBytes(layer, slots int) int64 {
	a := &b.m.Layer[layer].Attention
	return int64(a.KVHeads) * int64(slots) * int64(b.storedType().Size()*(a.KeyDim+a.ValDim)+4)
}

// source is rows on their way into a block: [G, R, d] with positions [G, R], or (flat) rows [N, G·d] of a pass with
// positions [N], of which so many rows from row at on are taken.
type source struct {
	k, v, pos operand
	flat      bool
	at, rows  int
}

// free frees what was uploaded for the source.
func (s *source) free() {
	if s.flat {
		return // the rows are those of the pass
	}
	s.k.free()
	s.v.free()
	s.pos.free()
}

// empty makes a block without tokens.
func (b *backend) empty(layer, slots int) (block, error) {
	a := &b.m.Layer[layer].Attention
	c := b.call(layer, 1)
	c.scalars(0) // a program has at least one operand
	got, err := c.run(fmt.Sprintf("empty slots=%d %s", slots, heads(a)), func(in *params) []node {
		g := in.next().Graph()
		pos := graph.AddScalar(graph.Zeros(g, shapes.Make(dtypes.Int32, a.KVHeads, slots)), float64(noKey))
		return []node{graph.Zeros(g, shapes.Make(b.storedType(), a.KVHeads, slots, a.KeyDim)),
			graph.Zeros(g, shapes.Make(b.storedType(), a.KVHeads, slots, a.ValDim)), pos}
	})
	if err != nil {
		return block{}, err
	}
	return block{got[0], got[1], got[2]}, nil
}

// write replaces a block by one of the given slots that holds the same, and the source's rows from slot start on. A source
// that is all of the new block becomes it. Rows of the pass are written by the program that reads the block next.
func (b *backend) write(layer int, old *block, slots, start int, add *source) error {
	a := &b.m.Layer[layer].Attention
	if old.absent() && !add.flat && add.k.shape.Dim(1) == slots {
		*old, *add = block{add.k, add.v, add.pos}, source{}
		return nil
	}
	c := b.call(layer, 1)
	for _, o := range []operand{old.k, old.v, old.pos, add.k, add.v, add.pos} {
		c.add(o, nil)
	}
	c.scalars(start, add.at)
	run := func(stage string, build func(*params) []node) ([]operand, error) {
		if !add.flat {
			return c.run(stage, build)
		}
		return c.later(stage, build, shapes.Make(b.storedType(), a.KVHeads, slots, a.KeyDim), shapes.Make(b.storedType(), a.KVHeads, slots, a.ValDim),
			shapes.Make(dtypes.Int32, a.KVHeads, slots))
	}
	got, err := run(fmt.Sprintf("write slots=%d flat=%v rows=%d %s", slots, add.flat, add.rows, heads(a)), func(in *params) []node {
		held := [3]node{in.next(), in.next(), in.next()}
		rows := [3]node{in.next(), in.next(), in.next()}
		scalars := in.next()
		from := element(scalars, 0)
		if add.flat {
			at := element(scalars, 1)
			rows[0] = byHead(rows[0], at, add.rows, a.KVHeads, a.KeyDim)
			rows[1] = byHead(rows[1], at, add.rows, a.KVHeads, a.ValDim)
			rows[2] = keyPositions(rows[2], at, add.rows, a.KVHeads)
		}
		out := make([]node, 3)
		for i := range out {
			fill := graph.Scalar(scalars.Graph(), rows[i].DType(), 0)
			if i == 2 {
				fill = graph.Scalar(scalars.Graph(), rows[i].DType(), noKey)
			}
			if held[i] == nil {
				out[i] = pad(rows[i], fill, slots) // start is 0
				continue
			}
			out[i] = update(pad(held[i], fill, slots), rows[i], from)
		}
		return out
	})
	if err != nil {
		return err
	}
	old.free()
	*old = block{got[0], got[1], got[2]}
	return nil
}

// element is one number of a list, as a scalar.
func element(list node, i int) node {
	return graph.Reshape(graph.Slice(list, graph.AxisElem(i)))
}

// byHead takes n rows from a row on of x [N, G·d] as [G, n, d].
func byHead(x, at node, n, heads, dim int) node {
	if x.Shape().Dim(0) != n {
		x = rowsFrom(x, at, n)
	}
	return graph.TransposeAllAxes(graph.Reshape(x, n, heads, dim), 1, 0, 2)
}

// keyPositions takes n positions from a row on of x [N] for each head, [G, n]; a row that is not there is no key.
func keyPositions(x, at node, n, heads int) node {
	if x.Shape().Dim(0) != n {
		x = graph.Squeeze(rowsFrom(graph.ExpandAxes(x, 1), at, n), 1)
	}
	none := graph.Scalar(x.Graph(), x.DType(), noKey)
	x = graph.Where(graph.Equal(x, graph.Scalar(x.Graph(), x.DType(), noRow)), none, x)
	return graph.BroadcastToDims(graph.ExpandAxes(x, 0), heads, n)
}

// can reports whether the graph's backend has an operation.
func can(x node, op compute.OpType) bool { return x.Graph().Backend().Capabilities().Operations[op] }

// update writes rows [G, R, …] over the slots of x [G, T, …] from a slot on.
func update(x, rows, from node) node {
	if can(x, compute.OpTypeDynamicUpdateSlice) {
		zero := graph.ScalarZero(x.Graph(), from.DType())
		return graph.DynamicUpdateSlice(x, rows, []node{zero, from, zero}[:x.Rank()])
	}
	heads, slots, n := x.Shape().Dim(0), x.Shape().Dim(1), rows.Shape().Dim(1)
	row := graph.Sub(graph.Iota(x.Graph(), shapes.Make(dtypes.Int32, heads, slots), 1), from)
	written := graph.LogicalAnd(graph.GreaterOrEqual(row, graph.ScalarZero(x.Graph(), row.DType())),
		graph.LessThan(row, graph.Scalar(x.Graph(), row.DType(), n)))
	if x.Rank() == 2 {
		rows, x = graph.ExpandAxes(rows, 2), graph.ExpandAxes(x, 2)
		return graph.Squeeze(graph.Where(spread(written, x), pickSlots(rows, graph.ClipScalar(row, 0, float64(n-1))), x), 2)
	}
	return graph.Where(spread(written, x), pickSlots(rows, graph.ClipScalar(row, 0, float64(n-1))), x)
}

// spread repeats a condition [G, T] over the last axis of x.
func spread(condition, x node) node {
	return graph.BroadcastToDims(graph.ExpandAxes(condition, 2), x.Shape().Dimensions...)
}

// rowsFrom is rows [at, at+n) of x [N, d].
func rowsFrom(x, at node, n int) node {
	if can(x, compute.OpTypeDynamicSlice) {
		return graph.DynamicSlice(x, []node{at, graph.ScalarZero(at.Graph(), at.DType())}, []int{n, x.Shape().Dim(1)})
	}
	return lookup(x, graph.Add(graph.Iota(x.Graph(), shapes.Make(at.DType(), n), 0), at))
}

// pad grows axis 1 to the given slots.
func pad(x, fill node, slots int) node {
	if x.Shape().Dim(1) == slots {
		return x
	}
	axes := make([]compute.PadAxis, x.Rank())
	axes[1] = compute.PadAxis{End: slots - x.Shape().Dim(1)}
	return graph.Pad(x, fill, axes...)
}
