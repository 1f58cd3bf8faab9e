package keyindex

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"terrace/attention"
	"terrace/internal/cacheshape"
	"terrace/internal/kvpage"
	"terrace/kvmanager"
	"terrace/policy"
)

// keyed is a sequence of one layer and KV head with random keys, read back as rows.
type keyed struct {
	t    *testing.T
	m    *kvmanager.Manager
	s    *kvmanager.Sequence
	rng  *rand.Rand
	dim  int
	next int32
}

func newKeyed(t *testing.T, elem kvpage.Elem, tokens int, byToken bool) *keyed {
	dim := 32
	m, err := kvmanager.New(kvmanager.Options{Layers: cacheshape.Equal(1, 1, cacheshape.KV{Heads: 1, KeyDim: dim, ValueDim: dim}), Window: 20, Layout: kvpage.Layout{K: elem, V: elem, KeyDim: dim, ValueDim: dim, Tokens: tokens, TokenMajor: byToken}})
	if err != nil {
		t.Fatal(err)
	}
	k := &keyed{t: t, m: m, s: m.NewSequence(), rng: rand.New(rand.NewPCG(uint64(elem), uint64(tokens))), dim: dim}
	t.Cleanup(func() {
		k.s.Free()
		if err := m.Check(); err != nil {
			t.Error(err)
		}
		m.Close()
	})
	return k
}

func (k *keyed) add(n int) {
	k.t.Helper()
	x, pos := make([]float32, n*k.dim), make([]int32, n)
	for i := range x {
		x[i] = float32(k.rng.NormFloat64())
	}
	for i := range pos {
		pos[i] = k.next
		k.next++
	}
	if err := k.s.Append(0, x, x, pos); err != nil {
		k.t.Fatal(err)
	}
	k.s.Settle(0) // indexes are asked behind the attention of what was appended
}

func (k *keyed) rows() [][]float32 {
	v := k.s.Views(0)[0]
	var out [][]float32
	for i := range v.Tokens() {
		row := make([]float32, k.dim)
		if main := len(v.Pages); main > 0 && i < (main-1)*v.Layout.Tokens+v.Pages[main-1].N {
			kvpage.ReadK(v.Layout, v.Pages[i/v.Layout.Tokens].Data, i%v.Layout.Tokens, row)
		} else {
			if main > 0 {
				i -= (main-1)*v.Layout.Tokens + v.Pages[main-1].N
			}
			kvpage.ReadK(v.RecentLayout, v.Recent[i/16].Data, i%16, row)
		}
		out = append(out, row)
	}
	return out
}

// TestIndexAgainstPlainLoops asks every kind of index while the cache grows, loses tokens and grows again.
func TestIndexAgainstPlainLoops(t *testing.T) {
	sketches := []policy.Sketch{{Kind: policy.SketchExact}, {Kind: policy.SketchDims}, {Kind: policy.SketchHalf}, {Kind: policy.SketchBounds, Blocks: []int{8, 24}},
		{Kind: policy.SketchInt8}, {Kind: policy.SketchInt8, Scale: policy.ScaleHead}, {Kind: policy.SketchInt8, Scale: policy.ScaleChannel}, {Kind: policy.SketchInt4}}
	for _, elem := range []kvpage.Elem{kvpage.F32, kvpage.F16, kvpage.I8, kvpage.I3} {
		for _, tokens := range []int{elem.PageTokens(), 2 * elem.PageTokens()} { // the larger with keys by token where they can lie so
			for i, need := range sketches {
				byToken := !elem.Quantised() && tokens == 32
				t.Run(fmt.Sprintf("%v x%d %v %d by token %v", elem, tokens, need.Kind, i, byToken), func(t *testing.T) {
					k := newKeyed(t, elem, tokens, byToken)
					h := New(need, 1, k.dim).Head(0)
					for _, n := range []int{150, 1, 1, 30, 1} {
						k.add(n)
						k.check(h, need)
					}
					var keep []int
					for i := range k.s.Tokens(0, 0) {
						if i%3 != 1 {
							keep = append(keep, i)
						}
					}
					if err := k.s.Keep(0, 0, keep); err != nil {
						t.Fatal(err)
					}
					k.check(h, need)
					k.add(1)
					k.check(h, need)
				})
			}
		}
	}
}

func (k *keyed) check(h *Head, need policy.Sketch) {
	k.t.Helper()
	v := k.s.Views(0)[0]
	h.Refresh(&v, k.s.PositionList(0, 0), math.MaxInt, &policy.Layer{}, 0, nil)
	keys, n := k.rows(), v.Tokens()
	const rows = 3
	q := make([]float32, rows*k.dim)
	for i := range q {
		q[i] = float32(k.rng.NormFloat64())
	}
	dst := make([]float32, rows*n)
	limit := 1e-3
	if v.Layout.K == kvpage.I3 { // coarse codes are multiplied by larger factors, which are rounded (kernels.HasIntegerKV)
		limit = 4e-3
	}
	want := func(r, i int) (sum float64) {
		for d, x := range keys[i] {
			sum += float64(q[r*k.dim+d] * x)
		}
		return sum
	}
	switch need.Kind {
	case policy.SketchExact:
		h.Dot(0, q, rows, dst)
	case policy.SketchDims:
		dims := []int32{0, 3, 17, 31, 30}
		h.Dims(0, dims, q, rows, dst)
		want = func(r, i int) (sum float64) {
			for _, d := range dims {
				sum += float64(q[r*k.dim+int(d)] * keys[i][d])
			}
			return sum
		}
	case policy.SketchBounds:
		k.checkBounds(h, need, keys, q, rows)
		return
	default:
		h.Approx(0, q, rows, dst)
		limit = map[policy.SketchKind]float64{policy.SketchHalf: 0.02, policy.SketchInt8: 0.4, policy.SketchInt4: 4}[need.Kind]
		if need.Scale == policy.ScaleChannel {
			limit = 6 // keys after the prompt saturate
		}
		limit += k.settled()
		k.checkLent(h, q, rows, dst)
	}
	for r := range rows {
		for i := range n {
			if e := math.Abs(float64(dst[r*n+i]) - want(r, i)); e > limit {
				k.t.Fatalf("product of query %d with token %d of %d is off by %g", r, i, n, e)
			}
		}
	}
}

// checkLent compares lent scores with Approx's, also after the borrower has changed them.
func (k *keyed) checkLent(h *Head, q []float32, rows int, want []float32) {
	k.t.Helper()
	n, again := len(want)/rows, make([]float32, len(want))
	scores, stride := h.Lend(0, q, rows)
	for r := range rows {
		if scores != nil && !slices.Equal(scores[r*stride:][:n], want[r*n:][:n]) {
			k.t.Fatalf("scores of query %d differ when they are lent", r)
		}
	}
	clear(scores)
	if h.Approx(0, q, rows, again); !slices.Equal(again, want) {
		k.t.Fatal("scores differ after lent ones were changed")
	}
}

// settled is what products lose when a key leaves the window of a quantised cache after the sketch has seen it.
func (k *keyed) settled() float64 {
	if k.m.Layout(0).K.Quantised() {
		return 0.25
	}
	return 0
}

// checkBounds compares with minima and maxima found by plain loops; rounding outwards may add a thousandth.
func (k *keyed) checkBounds(h *Head, need policy.Sketch, keys [][]float32, q []float32, rows int) {
	k.t.Helper()
	for _, block := range need.Blocks {
		blocks := (len(keys) + block - 1) / block
		dst := make([]float32, rows*blocks)
		h.Bounds(0, block, nil, q, rows, dst)
		only := []int32{0, int32(blocks - 1)}
		few := make([]float32, 2*rows)
		h.Bounds(0, block, only, q, rows, few)
		for r := range rows {
			for b := range blocks {
				var bound float64
				for d := range k.dim {
					lo, hi := math.Inf(1), math.Inf(-1)
					for _, key := range keys[b*block : min((b+1)*block, len(keys))] {
						lo, hi = min(lo, float64(key[d])), max(hi, float64(key[d]))
					}
					x := float64(q[r*k.dim+d])
					bound += max(x*lo, x*hi)
				}
				if got := float64(dst[r*blocks+b]); got < bound-1e-3-k.settled() || got > bound+0.05+k.settled() {
					k.t.Fatalf("bound of block %d is %g, want %g", b, got, bound)
				}
			}
			if few[2*r] != dst[r*blocks] || few[2*r+1] != dst[r*blocks+blocks-1] {
				k.t.Fatal("bounds of chosen blocks differ from those of all")
			}
		}
	}
}

// TestMostSize: an index takes no more than its size says, whatever it grew to, and not much less.
func TestMostSize(t *testing.T) {
	k := newKeyed(t, kvpage.F16, 16, false)
	sketches := []policy.Sketch{{Kind: policy.SketchHalf}, {Kind: policy.SketchBounds, Blocks: []int{8, 24}}, {Kind: policy.SketchInt8}, {Kind: policy.SketchInt8, Scale: policy.ScaleHead},
		{Kind: policy.SketchInt4, Scale: policy.ScaleChannel}, {Kind: policy.SketchProduct, Parts: 4, Bits: 3, Iters: 2},
		{Kind: policy.SketchClusters, Clusters: policy.ClusterSketch{Size: 8, Segment: 500, Iters: 2, Sinks: 2, Recent: 8, Update: 32, ValueDim: k.dim}}}
	indexes := make([]*Index, len(sketches))
	for i, need := range sketches {
		indexes[i] = New(need, 1, k.dim)
	}
	for _, n := range []int{1, 14, 2, 300, 1, 1, 700, 5, 1100, 1} {
		k.add(n)
		for i, need := range sketches {
			v := k.s.Views(0)[0]
			indexes[i].Head(0).Refresh(&v, k.s.PositionList(0, 0), math.MaxInt, &policy.Layer{Pos: [][]int32{k.s.PositionList(0, 0)}}, 0, nil)
			most, got := MostSize(need, k.dim, v.Tokens(), false, kvpage.F16).Bytes, indexes[i].Bytes()
			if got > most || most > 2*got+16384 {
				t.Errorf("%v %v of %d tokens: %d bytes, at most %d were expected", need.Kind, need.Scale, v.Tokens(), got, most)
			}
		}
	}
}

// TestGroupsReadTheCache: clusters are the same whether a view has all tokens at every step or, when some are grouped, only those from
// ReadsFrom on beside the newest; and beside them nothing is kept of tokens that wait.
func TestGroupsReadTheCache(t *testing.T) {
	k := newKeyed(t, kvpage.F16, 16, false)
	need := policy.Sketch{Kind: policy.SketchClusters, Clusters: policy.ClusterSketch{Size: 8, Segment: 8192, Iters: 2, Sinks: 4, Recent: 24, Update: 64, ValueDim: k.dim}}
	whole, few := New(need, 1, k.dim), New(need, 1, k.dim)
	refresh := func(x *Index, v attention.View) *policy.Clusters {
		pos := k.s.PositionList(0, 0)
		x.Head(0).Refresh(&v, pos, math.MaxInt, &policy.Layer{Pos: [][]int32{pos}}, 0, nil)
		return x.Head(0).Clusters(0)
	}
	k.add(300)
	refresh(whole, k.s.Views(0)[0])
	refresh(few, k.s.Views(0)[0])
	if n := few.Head(0).ReadsFrom(k.s.PositionList(0, 0), 0); n != 300 {
		t.Errorf("nothing is new, and tokens from %d on are read", n)
	}
	grouped := 0
	for n := 301; n <= 300+3*64; n++ {
		from := few.Head(0).ReadsFrom(k.s.PositionList(0, 0), 1)
		k.add(1)
		want := refresh(whole, k.s.Views(0)[0])
		v := k.s.Views(0)[0]
		v.Pages = slices.Clone(v.Pages)
		for i := range v.Pages[:min(from/16, len(v.Pages)-1)] {
			v.Pages[i].Data = nil
		}
		if got := refresh(few, v); !reflect.DeepEqual(got, want) {
			t.Fatalf("%d tokens: clusters differ", n)
		}
		if from < n {
			if grouped++; from != 300-24+(grouped-1)*64 || want.Done != from+64 || n != from+64+24+1 {
				t.Errorf("%d tokens: those from %d on were read, the next to group are from %d on", n, from, want.Done)
			}
		}
		groups, batches := len(want.Sizes), 0
		for _, b := range want.Batches {
			batches += len(b.Of)
		}
		if got := few.Bytes(); got != int64(4*groups*(2*k.dim+1)+batches) {
			t.Errorf("%d tokens: %d bytes of %d clusters", n, got, groups)
		}
	}
	if grouped != 2 {
		t.Errorf("tokens were grouped %d times", grouped)
	}
	pos := slices.Clone(k.s.PositionList(0, 0))
	pos[len(pos)-1]++
	if n := few.Head(0).ReadsFrom(pos, 0); n != 4 {
		t.Errorf("other tokens than those that were grouped: those from %d on are read", n)
	}
	if n := few.Head(0).ReadsFrom(pos[:91], 0); n != 91 {
		t.Errorf("too few tokens to group: those from %d on are read", n)
	}
}
