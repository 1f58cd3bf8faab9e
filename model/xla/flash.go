package xla

import (
	"fmt"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/gomlx/core/graph"

	"terrace/attention"
	"terrace/model"
)

// flashRows is the fewest rows of a prompt that are worth a program of their own.
const flashRows = 64

// flashes reports whether a prompt's rows can be computed without ever having their scores in memory (the flash attention of cuDNN,
// which a device may offer): bfloat16, plain causal attention to the rows themselves and to before earlier tokens, nobody asks for
// weights.
func (a *attending) flashes(s *attention.Seq, k *keys) (before int, ok bool) {
	b, p, n := a.b, &a.params, len(s.Pos)
	before = k.total[0] - n
	if !b.flash || b.dtype != model.BFloat16 || n < flashRows || n != len(a.p.Pos) || before < 0 || k.m == nil || !k.tail.absent() || s.Select != nil || s.ColumnSums != nil {
		return 0, false
	}
	if p.Softcap > 0 || p.Sinks != nil || p.Scale == 0 || p.KeyDim != p.ValueDim || p.KeyDim%8 != 0 || p.KeyDim > 128 {
		return 0, false
	}
	if before+a.bucket > k.large.slots() {
		return 0, false
	}
	for i := 1; i < n; i++ {
		if s.Pos[i] <= s.Pos[i-1] {
			return 0, false
		}
	}
	pos := make([]int32, n)
	for g := range s.Views {
		v := &s.Views[g]
		if k.total[g] != before+n || before > 0 && positionOf(v, before-1) >= s.Pos[0] {
			return 0, false
		}
		if positions(pos, v, before); !slices.Equal(pos, s.Pos) || p.Window > 0 && int(s.Pos[n-1]-positionOf(v, 0)) >= p.Window {
			return 0, false
		}
	}
	return before, true
}

// flash computes all rows of a prompt: causally among themselves, and over the earlier tokens, of which a bucket is read with the
// number that counts. Both parts' results are joined by their sums of weights.
func (a *attending) flash(k *keys, before int) error {
	p, earlier := &a.params, 0
	if before > 0 {
		earlier = min(tokenBucket(before), k.large.slots())
	}
	c := a.b.call(a.layer, a.q.Shape()[0])
	c.rows(a.q)
	c.add(k.large.k, nil)
	c.add(k.large.v, nil)
	c.scalars(before)
	got, err := c.run(fmt.Sprint("attend flash earlier=", earlier), func(in *params) []node {
		return []node{flash(p, in.next(), in.next(), in.next(), in.next(), earlier)}
	})
	if err != nil {
		return err
	}
	a.b.device.counts.Flashes++
	a.parts, a.rows = append(a.parts, got[0]), append(a.rows, a.q.Shape()[0])
	return nil
}

// flash is the program: q [N, H·d], keys and values [G, T, d], the number of earlier tokens first in scalars.
func flash(p *attention.Params, q, k, v, scalars node, earlier int) node {
	n, d := q.Shape().Dim(0), p.KeyDim
	q = graph.ConvertDType(graph.TransposeAllAxes(graph.Reshape(q, 1, n, p.Heads, d), 0, 2, 1, 3), k.DType())
	before := element(scalars, 0)
	fresh := func(x node) node {
		zero := graph.ScalarZero(x.Graph(), before.DType())
		return graph.ExpandAxes(graph.DynamicSlice(x, []node{zero, before, zero}, []int{p.KVHeads, n, d}), 0)
	}
	out, sum := fused(q, fresh(k), fresh(v), &compute.ScaledDotProductAttentionConfig{Scale: float64(p.Scale), Causal: true})
	if earlier > 0 {
		old := func(x node) node {
			return graph.ExpandAxes(graph.Slice(x, graph.AxisRange(), graph.AxisRange(0, earlier)), 0)
		}
		rows := graph.Const(q.Graph(), []int32{int32(n)})
		more, moreSum := fused(q, old(k), old(v), &compute.ScaledDotProductAttentionConfig{Scale: float64(p.Scale),
			QuerySeqLen: graph.InternalBackendOutputs(rows)[0], KeyValueSeqLen: graph.InternalBackendOutputs(graph.Reshape(before, 1))[0]})
		share := graph.ExpandAxes(graph.Logistic(graph.Sub(moreSum, sum)), 3) // of the earlier tokens: e^more / (e^more + e^sum)
		out = graph.Add(out, graph.Mul(share, graph.Sub(more, out)))
	}
	return graph.Reshape(graph.TransposeAllAxes(out, 0, 2, 1, 3), n, p.Heads*d)
}

// fused is the device's attention of q [1, H, n, d] over k and v [1, G, t, d]: float32 results, and the logarithm of each row's
// sum of weights [1, H, n].
func fused(q, k, v node, o *compute.ScaledDotProductAttentionConfig) (out, logSum node) {
	out, state := graph.BackendFusedScaledDotProductAttention(q, k, v, compute.AxesLayoutBHSD, o)
	return asFloat(out), state[0]
}
