package model_test

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gorgonia.org/tensor"

	"terrace/attention"
	"terrace/internal/kernels"
	"terrace/internal/kvpage"
	"terrace/model"
	"terrace/weights"
	"terrace/weights/safetensors"
)

// runner drives a backend over one sequence with exact float32 KV, as the engine does, without the engine.
type runner struct {
	t      *testing.T
	m      *model.Model
	b      model.Backend
	views  [][]attention.View // [layer][KV head]
	states [][]float32        // [layer], of those that recur
	tokens int
	phase  kernels.Phase // Exact unless a test says else
}

func newRunner(t *testing.T, dir string) *runner {
	t.Helper()
	file, err := weights.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	m, err := model.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	b, err := model.OpenBackend("native", m, model.BackendOptions{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	r := &runner{t: t, m: m, b: b, phase: kernels.Exact}
	r.pages(16)
	return r
}

// pages empties the cache and sets how many tokens a page holds.
func (r *runner) pages(tokens int) {
	r.views, r.states = make([][]attention.View, r.m.Layers), make([][]float32, r.m.Layers)
	shapes := r.m.Cache()
	for l := range r.views {
		a := &r.m.Layer[l]
		r.states[l] = make([]float32, shapes[l].State.Bytes/4)
		if a.Owner < l {
			continue // reads what that layer keeps
		}
		r.views[l] = make([]attention.View, a.KVHeads)
		for g := range r.views[l] {
			r.views[l][g].Layout = kvpage.Layout{KeyDim: a.KeyDim, ValueDim: a.ValDim, Tokens: tokens}
		}
	}
}

// store appends one token's key and value to the pages of a layer and head.
func (r *runner) store(v *attention.View, pos int32, key, val []float32) {
	if n := len(v.Pages); n == 0 || v.Pages[n-1].N == v.Layout.Tokens {
		v.Pages = append(v.Pages, attention.Page{Data: make([]byte, v.Layout.PageBytes())})
	}
	p := &v.Pages[len(v.Pages)-1]
	kvpage.PutK(v.Layout, p.Data, p.N, key)
	kvpage.PutV(v.Layout, p.Data, p.N, val)
	p.Pos, p.N = append(p.Pos, pos), p.N+1
}

// pass reads ids and returns the logits of each. length is that of the whole prompt they are part of.
func (r *runner) pass(ids []int, length int) [][]float32 {
	r.t.Helper()
	p := &model.Pass{Phase: r.phase}
	ids32 := make([]int32, len(ids))
	for i, id := range ids {
		ids32[i] = int32(id)
		p.Pos = append(p.Pos, int32(r.tokens+i))
		p.Len = append(p.Len, int32(length))
	}
	must := func(err error) {
		if err != nil {
			r.t.Helper()
			r.t.Fatal(err)
		}
	}
	hidden, err := r.b.Embed(p, ids32)
	must(err)
	for l := range r.m.Layers {
		a := &r.m.Layer[l]
		mix := func() (out *tensor.Dense) {
			if a.Recurs() {
				out, err = r.b.(model.Recurrent).Mix(p, l, hidden, []model.StateRows{{Rows: len(ids), From: r.states[l], State: r.states[l]}})
				must(err)
			}
			return out
		}
		if a.Heads == 0 {
			hidden, err = r.b.Finish(p, l, hidden, mix())
			must(err)
			continue
		}
		q, k, v, err := r.b.Project(p, l, hidden)
		must(err)
		mix() // beside attention, added to the rows
		var kd, vd []float32
		if k != nil {
			kd, vd = model.Float32s(k), model.Float32s(k)
		}
		if v != nil {
			vd = model.Float32s(v)
		}
		for i := range ids {
			for g := range r.views[l] {
				at := i*a.KVHeads + g
				r.store(&r.views[l][g], p.Pos[i], kd[at*a.KeyDim:][:a.KeyDim], vd[at*a.ValDim:][:a.ValDim])
			}
		}
		out, err := r.b.Attend(p, l, q, []attention.Seq{{Pos: p.Pos, Views: r.views[a.Owner]}})
		must(err)
		hidden, err = r.b.Finish(p, l, hidden, out)
		must(err)
	}
	logits, err := r.b.Logits(p, hidden)
	must(err)
	r.tokens += len(ids)
	return slices.Collect(slices.Chunk(slices.Clone(model.Float32s(logits)), r.m.Vocab))
}

// greedy continues by n tokens after the last row of logits, one pass a token.
func (r *runner) greedy(last []float32, n int) (ids []int) {
	for range n {
		best := 0
		for i, x := range last {
			if x > last[best] {
				best = i
			}
		}
		ids = append(ids, best)
		last = r.pass([]int{best}, r.tokens+1)[0]
	}
	return ids
}

// worst is max |got − want| / max |want|.
func worst[F float32 | float64](got [][]float32, want [][]F) float64 {
	off, top := 0.0, 0.0
	for p := range got {
		for i, x := range got[p] {
			w := float64(want[p][i])
			off, top = max(off, math.Abs(float64(x)-w)), max(top, math.Abs(w))
		}
	}
	return off / top
}

func shared(t *testing.T, parts ...string) string {
	t.Helper()
	root := os.Getenv("TERRACE_SHARED")
	if root == "" {
		root = filepath.Join("..", "..", "shared")
	}
	path := filepath.Join(append([]string{root}, parts...)...)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("%s is not there (set TERRACE_SHARED)", path)
	}
	return path
}

// golden is a file of reference results.
type golden struct {
	t    *testing.T
	file *safetensors.File
}

func readGolden(t *testing.T, path string) golden {
	t.Helper()
	f, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return golden{t, f}
}

// ints reads an I64 tensor.
func (g golden) ints(name string) (out []int) {
	g.t.Helper()
	for d := g.bytes(name); len(d) > 0; d = d[8:] {
		out = append(out, int(binary.LittleEndian.Uint64(d)))
	}
	return out
}

// rows reads an F32 tensor [n, cols].
func (g golden) rows(name string, cols int) [][]float32 {
	g.t.Helper()
	var flat []float32
	for d := g.bytes(name); len(d) > 0; d = d[4:] {
		flat = append(flat, math.Float32frombits(binary.LittleEndian.Uint32(d)))
	}
	return slices.Collect(slices.Chunk(flat, cols))
}

func (g golden) bytes(name string) []byte {
	g.t.Helper()
	b := g.file.Bytes(name)
	if b == nil {
		g.t.Fatalf("%s has no tensor %q", g.file.Path(), name)
	}
	return b
}

// TestHuggingFace compares every model of the goldens with Hugging Face's float32 logits, read in one pass, in chunks, and
// decoded with a cache. Where the two greedy rows of a golden differ (dynamic rope scaling) ours is the cached one: a key
// keeps the rotation it was written with.
func TestHuggingFace(t *testing.T) {
	root := shared(t, "data", "golden", "tiny_hf")
	dirs, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dirs {
		if !d.IsDir() {
			continue
		}
		t.Run(d.Name(), func(t *testing.T) {
			dir := filepath.Join(root, d.Name())
			g := readGolden(t, filepath.Join(dir, "golden.safetensors"))
			r := newRunner(t, dir)
			ids, want, cached := g.ints("input_ids"), g.rows("logits", r.m.Vocab), g.ints("greedy_ids_cached")
			got := r.pass(ids, len(ids))
			if off := worst(got, want); off > 2e-4 {
				t.Errorf("max |Δlogit| is %.2g of the largest logit, want at most 2e-4", off)
			}
			if have := r.greedy(got[len(got)-1], len(cached)); !slices.Equal(have, cached) {
				t.Errorf("greedy ids %v, want %v", have, cached)
			}
			r = newRunner(t, dir)
			chunked := append(r.pass(ids[:17], len(ids)), r.pass(ids[17:], len(ids))...)
			if off := worst(chunked, want); off > 2e-4 {
				t.Errorf("in two chunks: max |Δlogit| is %.2g of the largest logit, want at most 2e-4", off)
			}
		})
	}
}

// TestGGUF compares the tiny llama in every block format with transformers' float32 logits over the dequantised weights:
// the interlaced rotary order of GGUF files, and each format's exact kernel.
func TestGGUF(t *testing.T) {
	root := shared(t, "data", "golden", "tiny_gguf")
	g := readGolden(t, filepath.Join(root, "golden.safetensors"))
	ids := g.ints("input_ids")
	files, err := filepath.Glob(filepath.Join(root, "tiny-*.gguf"))
	if err != nil || len(files) < 16 {
		t.Fatalf("%d files in %s, want at least 16 (%v)", len(files), root, err)
	}
	for _, path := range files {
		kind := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), "tiny-"), ".gguf")
		t.Run(kind, func(t *testing.T) {
			r := newRunner(t, path)
			want := g.rows(kind+"/logits_dequant_f32", r.m.Vocab)
			if off := worst(r.pass(ids, len(ids)), want); off > 2e-5 {
				t.Errorf("max |Δlogit| is %.2g of the largest logit, want at most 2e-5", off)
			}
		})
	}
}
