package vulkan

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"gorgonia.org/tensor"

	"terrace/attention"
	"terrace/internal/kernels"
	"terrace/internal/kernels/quant"
	"terrace/internal/kvpage"
	"terrace/internal/vulkan"
	"terrace/model"
)

// onCPU is a backend without a model on a driver for the CPU.
func onCPU(t *testing.T, m *model.Model, budget int64) *backend {
	t.Helper()
	d, done, err := open(CPU)
	if err != nil {
		if strings.Contains(os.Getenv("TERRACE_TEST_VULKAN"), "cpu") {
			t.Fatal(err)
		}
		t.Skipf("no Vulkan driver for the CPU: %v", err)
	}
	r, err := newRecorder(d)
	r.done = done
	t.Cleanup(r.close)
	if err != nil {
		t.Fatal(err)
	}
	return onDeviceOf(r, m, budget)
}

// onDeviceOf is a backend without a model on the device of another one, which has built its kernels.
func onDeviceOf(r *recorder, m *model.Model, budget int64) *backend {
	return &backend{recorder: r, name: CPU, m: m, apart: make([]bool, len(m.Layer)), mirrors: newMirrors(r, m, budget), rotary: model.NewRotaryRows(&m.Config),
		weights: weights{r: r, matrices: map[*model.Linear]*matrix{}, shared: map[source]span{}, vectors: map[*model.Vector]span{}}}
}

// blocks are random rows of a type: what it quantises to, or random bytes with scales that are small and finite.
func blocks(t *testing.T, rnd *rand.Rand, typ quant.Type, n int) []byte {
	out := make([]byte, typ.RowBytes(n))
	if typ.Writable() {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(rnd.NormFloat64())
		}
		if err := quant.Quantize(typ, out, x); err != nil {
			t.Fatal(err)
		}
		return out
	}
	for i := range out {
		out[i] = byte(rnd.Uint32())
	}
	for at := 0; at < len(out); at += typ.BlockBytes() {
		switch typ {
		case quant.MXFP4:
			out[at] = byte(120 + rnd.IntN(12))
		case quant.NVFP4:
			copy(out[at:], []byte{0x30, 0x34, 0x38, 0x2c}) // 0.5 to 1.25
		case quant.Q2_K:
			copy(out[at+80:], []byte{0x11, 0x2c, 0x05, 0x28}) // about 0.06 and 0.03
		default:
			t.Fatalf("%v is written by no one: say where its scales lie", typ)
		}
	}
	return out
}

// TestProducts compares products and look-ups of every type, for a step's and a prompt's arithmetic and several numbers of rows,
// with sums in float64; a row's result does not depend on the rows beside it.
func TestProducts(t *testing.T) {
	b := onCPU(t, &model.Model{}, 0)
	for _, typ := range onDevice {
		rnd := rand.New(rand.NewPCG(1, uint64(typ)))
		rows, cols := 70, 512
		if typ.BlockLen() == 1 {
			cols = 509
		}
		padded := cols
		if typ.BlockLen() == 1 {
			padded = 512
		}
		w := &matrix{typ: typ, rows: rows, cols: cols, stride: (typ.RowBytes(padded) + 3) / 4}
		data, wide := make([]byte, 4*w.stride*rows), make([]float32, rows*cols)
		for r := range rows {
			row := blocks(t, rnd, typ, cols)
			copy(data[4*w.stride*r:], row)
			quant.Dequantize(typ, wide[r*cols:(r+1)*cols], row)
		}
		bias := make([]float32, rows)
		for i := range bias {
			bias[i] = rnd.Float32()
		}
		var err error
		if w.on, err = b.weights.upload(data, "test"); err == nil {
			w.bias, err = b.weights.upload(vulkan.Bytes(bias), "test")
		}
		if err != nil {
			t.Fatal(err)
		}
		l := &model.Linear{Rows: rows, Cols: cols}
		b.weights.matrices[l] = w
		x := make([]float32, 20*cols)
		for i := range x {
			x[i] = float32(rnd.NormFloat64())
		}
		for _, phase := range []kernels.Phase{kernels.Decode, kernels.Prefill} {
			var first []float32
			counts := []int{3} // drivers take their time to compile each width
			if typ == quant.Q4_K {
				counts = []int{20, 3, 1}
			}
			for _, n := range counts {
				s := b.steps(&model.Pass{Phase: phase})
				in := s.input(tensor.New(tensor.WithShape(n, cols), tensor.WithBacking(slices.Clone(x[:n*cols]))), &b.block)
				y := s.room(&b.gate, n*rows)
				s.product(l, in, y, n, 0.5, 0)
				s.product(l, in, y, n, 0.25, addTo)
				if _, err := s.result(&b.gate, n, rows, true); err != nil {
					t.Fatal(err)
				}
				got, err := b.gate.h.now()
				if err != nil {
					t.Fatal(err)
				}
				for i, g := range got {
					r, o := i/rows, i%rows
					sum, size := float64(bias[o]), float64(bias[o])
					for c := range cols {
						p := float64(wide[o*cols+c]) * float64(x[r*cols+c])
						sum, size = sum+p, size+math.Abs(p)
					}
					if !(math.Abs(0.75*sum-float64(g)) <= 1e-5*size) {
						t.Fatalf("%v, phase %d, %d rows, row %d, output %d: %g, want %g", typ, phase, n, r, o, g, 0.75*sum)
					}
				}
				if first == nil {
					first = slices.Clone(got)
				} else if !slices.Equal(got, first[:len(got)]) {
					t.Errorf("%v, phase %d: %d rows give other numbers than more", typ, phase, n)
				}
			}
		}
		s := b.steps(&model.Pass{})
		y := s.room(&b.up, 2*cols)
		s.lookup(l, []int32{69, 3}, y, 2, false, 0)
		if _, err := s.result(&b.up, 2, cols, true); err != nil {
			t.Fatal(err)
		}
		got, err := b.up.h.now()
		if err != nil {
			t.Fatal(err)
		}
		for i, g := range got {
			if want := 2 * wide[[]int{69, 3}[i/cols]*cols+i%cols]; math.Abs(float64(g-want)) > 2e-6*math.Abs(float64(want))+1e-6 {
				t.Fatalf("%v: looked up %g at %d, want %g", typ, g, i, want)
			}
		}
	}
}

// cached are the views of a layer whose pages hold random keys and values of tokens [0, n), every third position left out.
func cached(rnd *rand.Rand, l kvpage.Layout, heads, n int, cache uint64) []attention.View {
	views := make([]attention.View, heads)
	for g := range views {
		views[g] = attention.View{Layout: l, Cache: cache}
		for first := 0; first < n; first += l.Tokens {
			p := attention.Page{Data: make([]byte, l.PageBytes()), N: min(l.Tokens, n-first), Version: rnd.Uint64() | 1}
			p.Pos = make([]int32, l.Tokens)
			row := make([]float32, kvpage.Tile*l.KeyDim)
			for i := range p.N {
				for d := range row {
					row[d] = float32(rnd.NormFloat64())
				}
				p.Pos[i] = int32((first + i) * 3 / 2)
				if !l.K.Quantised() {
					kvpage.PutK(l, p.Data, i, row[:l.KeyDim])
				} else if i%kvpage.Tile == 0 {
					kvpage.PutGroupK(l, p.Data, i/kvpage.Tile, min(kvpage.Tile, p.N-i), row, l.KeyDim, kvpage.Farthest)
				}
				kvpage.PutV(l, p.Data, i, row[l.KeyDim:][:l.ValueDim])
			}
			views[g].Pages = append(views[g].Pages, p)
		}
	}
	return views
}

func attending1(heads, kvHeads, dim, window int, softcap float32) *model.Model {
	m := &model.Model{Params: model.Params{Layers: make([]model.LayerParams, 4)}}
	for range 4 {
		m.Layer = append(m.Layer, model.LayerConfig{Attention: model.Attention{Heads: heads, KVHeads: kvHeads, KeyDim: dim, ValDim: dim, Window: window, Softcap: softcap}})
	}
	return m
}

// TestAttention compares attention over pages of every type with the native kernels: one row over several splits and rows of a prompt,
// windows, soft caps, selected tokens, and weights summed or row by row.
func TestAttention(t *testing.T) {
	pool := kernels.NewPool(1)
	defer pool.Close()
	const heads, kvHeads, dim = 6, 2, 40
	for _, c := range []struct {
		name   string
		l      kvpage.Layout
		tokens int
		rows   int
		window int
		cap    float32
		sel    bool
		mass   string
		phase  kernels.Phase
	}{
		{"a step over splits", kvpage.Layout{K: kvpage.F16, V: kvpage.F16, Tokens: 16}, 2500, 1, 0, 0, false, "", kernels.Decode},
		{"window", kvpage.Layout{K: kvpage.BF16, V: kvpage.BF16, Tokens: 64}, 700, 11, 300, 0, false, "", kernels.Prefill},
		{"soft cap", kvpage.Layout{K: kvpage.F32, V: kvpage.F32, Tokens: 32}, 333, 1, 0, 2, false, "", kernels.Decode},
		{"by token", kvpage.Layout{K: kvpage.F16, V: kvpage.F16, Tokens: 16, TokenMajor: true}, 100, 9, 0, 0, false, "", kernels.Exact},
		{"two types", kvpage.Layout{K: kvpage.F32, V: kvpage.F16, Tokens: 16}, 45, 2, 0, 0, false, "", kernels.Exact},
		{"int8", kvpage.Layout{K: kvpage.I8, V: kvpage.I8, Tokens: 16}, 70, 3, 0, 0, false, "", kernels.Exact},
		{"selected", kvpage.Layout{K: kvpage.F16, V: kvpage.F16, Tokens: 16}, 1500, 1, 0, 0, true, "", kernels.Decode},
		{"sums", kvpage.Layout{K: kvpage.F16, V: kvpage.F16, Tokens: 16}, 200, 20, 0, 0, false, "sum", kernels.Prefill},
		{"rows", kvpage.Layout{K: kvpage.F32, V: kvpage.F32, Tokens: 16}, 130, 10, 100, 0, false, "rows", kernels.Exact},
		{"selected rows", kvpage.Layout{K: kvpage.F32, V: kvpage.F32, Tokens: 16}, 90, 1, 0, 0, true, "rows", kernels.Decode},
	} {
		t.Run(c.name, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(3, uint64(c.tokens)))
			c.l.KeyDim, c.l.ValueDim = dim, dim
			b := onCPU(t, attending1(heads, kvHeads, dim, c.window, c.cap), 0)
			views := cached(rnd, c.l, kvHeads, c.tokens, 7)
			q := make([]float32, c.rows*heads*dim)
			for i := range q {
				q[i] = float32(rnd.NormFloat64())
			}
			s := attention.Seq{Q: q, Views: views, Out: make([]float32, len(q))}
			for r := range c.rows {
				s.Pos = append(s.Pos, int32((c.tokens-c.rows+r)*3/2))
			}
			if c.sel {
				s.Select = make([][]int32, kvHeads)
				for i := range c.tokens { // of the first head; the second has all
					if rnd.IntN(3) == 0 {
						s.Select[0] = append(s.Select[0], int32(i))
					}
				}
			}
			sums := func() *attention.ColumnSums {
				if c.mass == "" {
					return nil
				}
				m := &attention.ColumnSums{FromRow: min(3, c.rows-1)}
				for range heads {
					if c.mass == "sum" {
						m.Sum = append(m.Sum, make([]float32, c.tokens))
					} else {
						m.Rows = append(m.Rows, make([]float32, (c.rows-m.FromRow)*c.tokens))
					}
				}
				return m
			}
			s.ColumnSums = sums()
			params, err := b.m.AttentionParams(0)
			if err != nil {
				t.Fatal(err)
			}
			attention.Attend(pool, kernels.Exact, params, []attention.Seq{s})
			mine := s
			mine.ColumnSums = sums()
			out, err := b.Attend(&model.Pass{Phase: c.phase, Pos: s.Pos}, 0, tensor.New(tensor.WithShape(c.rows, heads*dim), tensor.WithBacking(q)), []attention.Seq{mine})
			if err != nil {
				t.Fatal(err)
			}
			near(t, "output", model.Float32s(out), s.Out)
			if c.mass != "" {
				for h := range heads {
					if c.mass == "sum" {
						near(t, fmt.Sprint("sums of head ", h), mine.ColumnSums.Sum[h], s.ColumnSums.Sum[h])
					} else {
						near(t, fmt.Sprint("weights of head ", h), mine.ColumnSums.Rows[h], s.ColumnSums.Rows[h])
					}
				}
			}
		})
	}
}

func near(t *testing.T, what string, got, want []float32) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d numbers, want %d", what, len(got), len(want))
	}
	for i := range got {
		if !(math.Abs(float64(got[i]-want[i])) <= 2e-4) {
			t.Fatalf("%s: %g at %d, want %g", what, got[i], i, want[i])
		}
	}
}

// TestMirrors: what the device has does not go up again, layers that do not fit take turns with right results, and a budget too
// small for one layer is ErrDeviceMemory.
func TestMirrors(t *testing.T) {
	const heads, dim, tokens = 2, 32, 100
	l := kvpage.Layout{K: kvpage.F32, V: kvpage.F32, KeyDim: dim, ValueDim: dim, Tokens: 16}
	layer := int64(heads * 7 * (16*2*dim*4 + 64))
	for _, c := range []struct {
		budget int64
		again  int64 // most bytes that a second pass uploads
		fails  bool
	}{{0, 20 << 10, false}, {2*layer + 1000, 2*layer + 20<<10, false}, {layer - 1, 0, true}} {
		b := onCPU(t, attending1(heads, heads, dim, 0, 0), c.budget)
		rnd := rand.New(rand.NewPCG(5, 5))
		var views [3][]attention.View
		for i := range views {
			views[i] = cached(rnd, l, heads, tokens, 9)
		}
		q := make([]float32, heads*dim)
		q[3] = 1
		pass := func() (outs [][]float32, up int64) {
			before := b.DeviceUse().UpBytes
			b.mirrors.pass++
			for i := range views {
				out, err := b.Attend(&model.Pass{Phase: kernels.Decode}, i, tensor.New(tensor.WithShape(1, heads*dim), tensor.WithBacking(q)), []attention.Seq{{Pos: []int32{1000}, Views: views[i]}})
				if c.fails {
					if !errors.Is(err, model.ErrDeviceMemory) {
						t.Errorf("budget %d: %v", c.budget, err)
					}
					return nil, 0
				}
				if err != nil {
					t.Fatal(err)
				}
				outs = append(outs, slices.Clone(model.Float32s(out)))
			}
			return outs, b.DeviceUse().UpBytes - before
		}
		first, all := pass()
		if c.fails {
			continue
		}
		if all < 3*layer {
			t.Errorf("budget %d: %d bytes went up for three layers of %d", c.budget, all, layer)
		}
		second, more := pass()
		if more > c.again {
			t.Errorf("budget %d: a second pass uploads %d bytes, want at most %d", c.budget, more, c.again)
		}
		for i := range first {
			near(t, "second pass", second[i], first[i])
		}
		if peak := b.DeviceUse().KVPeakBytes; c.budget > 0 && peak > c.budget || peak == 0 {
			t.Errorf("budget %d: %d bytes held", c.budget, peak)
		}
		b.ForgetKV(9)
		if b.mirrors.held != 0 || len(b.mirrors.all) != 0 {
			t.Errorf("%d bytes and %d mirrors are left of a forgotten sequence", b.mirrors.held, len(b.mirrors.all))
		}
	}
}

// TestArgmax: the first of equals, and rows that are not finite are told.
func TestArgmax(t *testing.T) {
	const width = 1000
	b := onCPU(t, &model.Model{Params: model.Params{Output: &model.Linear{Rows: width}}}, 0)
	x := make([]float32, 3*width)
	x[700], x[300], x[299] = 5, 5, 4
	for i := range width {
		x[width+i] = -3e38
	}
	x[2*width+5], x[2*width+9] = float32(math.NaN()), 1
	s := b.steps(&model.Pass{})
	s.input(tensor.New(tensor.WithShape(3, width), tensor.WithBacking(x)), &b.logits)
	if _, err := s.result(&b.logits, 3, width, false); err != nil {
		t.Fatal(err)
	}
	ids, finite, err := b.Argmax()
	if err != nil || !slices.Equal(ids[:2], []int32{300, 0}) || !slices.Equal(finite, []bool{true, true, false}) {
		t.Errorf("%v %v, %v", ids, finite, err)
	}
}

// TestChoose: a discrete GPU before others; a CPU only by its name.
func TestChoose(t *testing.T) {
	of := func(kinds ...vulkan.Kind) (list []*vulkan.Physical) {
		for _, k := range kinds {
			list = append(list, &vulkan.Physical{Info: vulkan.Info{Name: k.String(), Kind: k}})
		}
		return list
	}
	for _, c := range []struct {
		name string
		list []*vulkan.Physical
		want string
	}{{GPU, of(vulkan.CPU, vulkan.Integrated, vulkan.Discrete), "discrete GPU"}, {GPU, of(vulkan.CPU, vulkan.Integrated), "integrated GPU"},
		{CPU, of(vulkan.Discrete, vulkan.CPU), "CPU"}, {GPU, of(vulkan.CPU), "error: --backend vulkan:cpu"}, {CPU, of(vulkan.Discrete), "error: mesa"}, {GPU, nil, "error: no driver"}} {
		p, err := choose(c.name, c.list)
		if want, fails := strings.CutPrefix(c.want, "error: "); fails {
			if !errors.Is(err, vulkan.ErrNoDevice) || !strings.Contains(strings.ReplaceAll(err.Error(), "finds no driver", "no driver"), want) {
				t.Errorf("%s of %d: %v, want %s", c.name, len(c.list), err, want)
			}
		} else if err != nil || p.Name != c.want {
			t.Errorf("%s of %d: %v, %v, want %s", c.name, len(c.list), p, err, c.want)
		}
	}
}

// TestRefused names what there are no kernels for, of the whole model and of a layer.
func TestRefused(t *testing.T) {
	of := func(l model.LayerConfig) *model.Model {
		l.Heads = 1
		return &model.Model{Config: model.Config{Layer: []model.LayerConfig{l}}, Params: model.Params{Layers: make([]model.LayerParams, 1)}}
	}
	many := func(m *model.Model) *model.Model { m.Experts = 3000; return m }
	for want, m := range map[string]*model.Model{"LogN": {Config: model.Config{Positions: model.Positions{LogN: true}}},
		"3000 experts": many(of(model.LayerConfig{MoE: true})), "heads of 576": of(model.LayerConfig{Attention: model.Attention{KeyDim: 576}})} {
		for _, on := range []bool{true, false} {
			if _, err := OpenLayers(GPU, m, model.BackendOptions{}, slices.Repeat([]bool{on}, len(m.Layer))); !errors.Is(err, model.ErrUnsupported) || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
		}
	}
}
