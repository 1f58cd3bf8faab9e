package keyindex

import (
	"fmt"
	"slices"
	"testing"

	"terrace/attention"
	"terrace/internal/kvpage"
	"terrace/policy"
)

// TestCutIsAsNeverAdded: a head whose newest tokens were taken back answers as one that never had them, and goes on so.
func TestCutIsAsNeverAdded(t *testing.T) {
	const prompt, longest = 70, 100
	needs := map[string]policy.Sketch{
		"int8":            {Kind: policy.SketchInt8, Scale: policy.ScaleHead},
		"int8, own scale": {Kind: policy.SketchInt8, Scale: policy.ScaleToken},
		"int4, channels":  {Kind: policy.SketchInt4, Scale: policy.ScaleChannel},
		"half":            {Kind: policy.SketchHalf},
		"bounds":          {Kind: policy.SketchBounds, Blocks: []int{16}},
		"two bounds":      {Kind: policy.SketchBounds, Blocks: []int{4, 16}},
	}
	for name, need := range needs {
		for _, n := range []int{70, 79, 80, 81, 99} {
			t.Run(fmt.Sprint(name, " ", n), func(t *testing.T) {
				keys := newTestKeys(t, longest)
				cut, never := New(need, 1, keys.dim), New(need, 1, keys.dim)
				for _, to := range []int{prompt, n, longest} {
					keys.refresh(cut, to)
				}
				cut.Head(0).Cut(keys.pos[:n])
				keys.refresh(never, prompt)
				for to := n; to <= longest; to += 7 {
					keys.refresh(cut, to)
					keys.refresh(never, to)
					if got, want := keys.answers(cut, need, to), keys.answers(never, need, to); !slices.Equal(got, want) {
						t.Fatalf("%d tokens: %v, want %v", to, got, want)
					}
				}
			})
		}
	}
}

// testKeys are a head's, in pages of 16 tokens.
type testKeys struct {
	dim  int
	view attention.View
	pos  []int32
	q    []float32
}

func newTestKeys(t *testing.T, n int) *testKeys {
	t.Helper()
	k := &testKeys{dim: 32, q: make([]float32, 32)}
	k.view.Layout = kvpage.Layout{K: kvpage.F16, V: kvpage.F16, KeyDim: 32, ValueDim: 32, Tokens: 16}
	row := make([]float32, 32)
	for i := range n {
		if i%16 == 0 {
			k.view.Pages = append(k.view.Pages, attention.Page{Data: make([]byte, k.view.Layout.PageBytes()), Pos: make([]int32, 16)})
		}
		for d := range row {
			row[d] = float32((i*37+d*13)%101)/50 - 1
			k.q[d] = float32(d%7) - 3
		}
		page := &k.view.Pages[i/16]
		kvpage.PutK(k.view.Layout, page.Data, i%16, row)
		page.Pos[i%16] = int32(i)
		k.pos = append(k.pos, int32(i))
	}
	return k
}

// refresh shows an index the first n tokens.
func (k *testKeys) refresh(x *Index, n int) {
	v := k.view
	v.Pages = slices.Clone(v.Pages[:(n+15)/16])
	for i := range v.Pages {
		v.Pages[i].N = min(16, n-16*i)
	}
	l := &policy.Layer{Heads: 1, KVHeads: 1, KeyDim: k.dim, ValueDim: k.dim, Pos: [][]int32{k.pos[:n]}}
	x.Head(0).Refresh(&v, k.pos[:n], 1<<30, l, 0, nil)
}

// answers are what a policy would score n tokens by.
func (k *testKeys) answers(x *Index, need policy.Sketch, n int) []float32 {
	if need.Kind != policy.SketchBounds {
		dst := make([]float32, n)
		x.Head(0).Approx(0, k.q, 1, dst)
		return dst
	}
	var all []float32
	for _, block := range need.Blocks {
		dst := make([]float32, (n+block-1)/block)
		x.Head(0).Bounds(0, block, nil, k.q, 1, dst)
		all = append(all, dst...)
	}
	return all
}
