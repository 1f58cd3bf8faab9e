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

// TestUploadsAside: of layers that do not all fit the next one goes up while a layer computes, all of it beside the commands; nobody waits for it
// but its own attention, and what is attended to is that of layers that fit.
func TestUploadsAside(t *testing.T) {
	const heads, dim, tokens, layers, texts = 2, 32, 100, 4, 2
	l := kvpage.Layout{K: kvpage.F16, V: kvpage.F16, KeyDim: dim, ValueDim: dim, Tokens: 16}
	layer := int64(texts * heads * 7 * (16*2*dim*2 + 64))
	rnd := rand.New(rand.NewPCG(15, 5))
	var views [layers][texts][]attention.View
	for i := range views {
		for j := range views[i] {
			views[i][j] = cached(rnd, l, heads, tokens, uint64(20+j))
		}
	}
	q := make([]float32, texts*heads*dim)
	for i := range q {
		q[i] = float32(rnd.NormFloat64())
	}
	want := [][]float32(nil)
	for _, c := range []struct {
		budget int64
		again  int64 // layers that a second pass uploads
		aside  bool
	}{{0, 0, true}, {2*layer + 4096, 4, true}, {3*layer + 4096, 3, true}, {layer + 4096, 4, false}} {
		b := onCPU(t, attending1(heads, heads, dim, 0, 0), c.budget)
		a := &b.mirrors.aside
		for pass := range 2 {
			b.mirrors.pass++
			before := a.bytes
			for i := range views {
				if i+1 < layers {
					for _, v := range views[i+1] {
						b.UploadKV(i+1, v)
					}
				}
				s := b.steps(&model.Pass{})
				x := s.room(&b.normed, 1)
				s.activate(0, x, span{}, x, 1, 0) // what might read memory that the tiles get
				up, batch := a.bytes, b.batch
				out, err := b.Attend(&model.Pass{Phase: kernels.Decode}, i, tensor.New(tensor.WithShape(texts, heads*dim), tensor.WithBacking(q)),
					[]attention.Seq{{Pos: []int32{1000}, Views: views[i][0]}, {Pos: []int32{1000}, Views: views[i][1]}})
				if err != nil {
					t.Fatal(err)
				}
				if flying := a.stream != nil && a.stream.Flying(); flying != (a.bytes > up) {
					t.Errorf("budget %d, pass %d, layer %d: uploads of the next layer are on their way: %v, want %v", c.budget, pass, i, flying, a.bytes > up)
				}
				if a.bytes > up && b.batch != batch+1 {
					t.Errorf("budget %d, pass %d, layer %d: %d submissions before tiles go up, want 1", c.budget, pass, i, b.batch-batch)
				}
				got := slices.Clone(model.Float32s(out))
				if len(want) <= i {
					want = append(want, got)
				}
				near(t, "attended", got, want[i])
			}
			b.SettleKV()
			switch moved := a.bytes - before; {
			case !c.aside && moved > 0:
				t.Errorf("budget %d: %d bytes went up beside the commands, where one layer has room", c.budget, moved)
			case c.aside && pass == 0 && moved != (layers-1)*layer:
				t.Errorf("budget %d: %d bytes went up beside the commands, want %d layers of %d", c.budget, moved, layers-1, layer)
			case c.aside && pass == 1 && (moved > c.again*layer || moved < (c.again-1)*layer):
				t.Errorf("budget %d: %d bytes went up beside the commands in a second pass, want about %d layers of %d", c.budget, moved, c.again, layer)
			}
		}
		if peak := b.DeviceUse().KVPeakBytes; c.budget > 0 && peak > c.budget {
			t.Errorf("budget %d: %d bytes held", c.budget, peak)
		}
	}
	b := onCPU(t, attending1(heads, heads, dim, 0, 0), 0)
	b.UploadKV(1, views[1][0])
	if _, err := b.Attend(&model.Pass{Phase: kernels.Decode}, 0, tensor.New(tensor.WithShape(1, heads*dim), tensor.WithBacking(q[:heads*dim])), []attention.Seq{{Pos: []int32{1000}, Views: views[0][0]}}); err != nil {
		t.Fatal(err)
	}
	before := b.mirrors.aside.stream.Flying()
	if b.ForgetKV(20); !before || b.mirrors.aside.stream.Flying() {
		t.Errorf("on their way: %v; the memory of tiles on their way was given back: %v", before, b.mirrors.aside.stream.Flying())
	}
}
