package vulkan

import (
	"math/rand/v2"
	"slices"
	"testing"

	"gorgonia.org/tensor"

	"terrace/attention"
	"terrace/internal/kernels"
	"terrace/internal/kvpage"
	"terrace/model"
)

// TestMirrorFollows: tokens added to a page, a page of other content under a new version, and tokens taken back show in what is attended,
// which is that of the native kernels.
func TestMirrorFollows(t *testing.T) {
	const heads, dim = 2, 32
	l := kvpage.Layout{K: kvpage.F16, V: kvpage.F16, KeyDim: dim, ValueDim: dim, Tokens: 16}
	pool := kernels.NewPool(1)
	defer pool.Close()
	b := onCPU(t, attending1(heads, heads, dim, 0, 0), 0)
	rnd := rand.New(rand.NewPCG(8, 8))
	full, other := cached(rnd, l, heads, 48, 4), cached(rnd, l, heads, 48, 4)
	views := make([]attention.View, heads)
	show := func(pages, last int, second []attention.View) {
		for g := range views {
			views[g] = full[g]
			views[g].Pages = append([]attention.Page(nil), full[g].Pages[:pages]...)
			if second != nil {
				views[g].Pages[1] = second[g].Pages[1]
			}
			p := &views[g].Pages[pages-1]
			p.N, p.Data = last, slices.Clone(p.Data)
			for i := last; i < l.Tokens; i++ { // what is written later
				kvpage.PutK(l, p.Data, i, make([]float32, dim))
				kvpage.PutV(l, p.Data, i, make([]float32, dim))
			}
		}
	}
	q := make([]float32, heads*dim)
	for i := range q {
		q[i] = float32(rnd.NormFloat64())
	}
	params, err := b.m.AttentionParams(0)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		name        string
		pages, last int
		second      []attention.View
	}{{"two pages", 2, 5, nil}, {"one token more", 2, 6, nil}, {"a third page", 3, 1, nil}, {"another second page", 3, 9, other}, {"tokens taken back", 2, 7, other}, {"and the first again", 3, 16, nil}} {
		show(step.pages, step.last, step.second)
		b.UploadKV(0, views)
		want := attention.Seq{Q: q, Pos: []int32{1000}, Views: views, Out: make([]float32, len(q))}
		attention.Attend(pool, kernels.Exact, params, []attention.Seq{want})
		out, err := b.Attend(&model.Pass{Phase: kernels.Decode}, 0, tensor.New(tensor.WithShape(1, heads*dim), tensor.WithBacking(q)), []attention.Seq{{Pos: want.Pos, Views: views}})
		if err != nil {
			t.Fatal(err)
		}
		near(t, step.name, model.Float32s(out), want.Out)
	}
}
