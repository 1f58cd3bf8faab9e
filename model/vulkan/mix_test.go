package vulkan

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gorgonia.org/tensor"

	"terrace/internal/cacheshape"
	"terrace/internal/kernels"
	"terrace/internal/kernels/quant"
	"terrace/internal/vulkan"
	"terrace/model"
	"terrace/weights/gguf"
)

// randomWeights makes weights of a mixer.
type randomWeights struct{ rnd *rand.Rand }

func (w randomWeights) numbers(mean, spread float64, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(mean + spread*w.rnd.NormFloat64())
	}
	return x
}

func (w randomWeights) vector(mean, spread float64, n int) *model.Vector {
	data := slices.Clone(vulkan.Bytes(w.numbers(mean, spread, n)))
	return &model.Vector{Tensor: gguf.NewTensor("random", quant.F32, []int{n}, func() ([]byte, error) { return data, nil })}
}

func (w randomWeights) linear(rows, cols int) *model.Linear {
	data := slices.Clone(vulkan.Bytes(w.numbers(0, 1/math.Sqrt(float64(cols)), rows*cols)))
	return &model.Linear{Rows: rows, Cols: cols, Tensor: gguf.NewTensor("random", quant.F32, []int{rows, cols}, func() ([]byte, error) { return data, nil })}
}

const mixWidth = 52 // of rows

// delta is a model of one gated DeltaNet: with decays by channel q, k and v come of products and convolutions of their own, and decays and the
// gate of two products, as in Kimi Linear.
func (w randomWeights) delta(d model.DeltaNet, decays int) *model.Model {
	keys, values := d.KeyHeads*d.KeyDim, d.ValueHeads*d.ValueDim
	r := model.RecurrentParams{In: []*model.Linear{w.linear(2*keys+values, mixWidth)}, Conv: []*model.Vector{w.vector(0, 0.6, (2*keys+values)*d.Kernel)}, Z: w.linear(values, mixWidth), A: w.linear(d.ValueHeads, mixWidth),
		B: w.linear(d.ValueHeads, mixWidth), Decay: w.vector(-0.5, 0.2, decays), DTBias: w.vector(0, 2, d.ValueHeads), Norm: w.vector(1, 0.1, d.ValueDim)}
	if d.ByChannel {
		r.In, r.Conv = nil, nil
		for _, n := range []int{keys, keys, values} {
			r.In, r.Conv = append(r.In, w.linear(n, mixWidth)), append(r.Conv, w.vector(0, 0.6, n*d.Kernel))
		}
		r.ADown, r.A, r.DTBias = w.linear(8, mixWidth), w.linear(d.ValueHeads*d.KeyDim, 8), w.vector(0, 2, d.ValueHeads*d.KeyDim)
		r.ZDown, r.Z = w.linear(8, mixWidth), w.linear(values, 8)
	}
	return w.model(model.LayerConfig{Delta: &d}, r, values)
}

// space is a model of one Mamba-2 mixer.
func (w randomWeights) space(s model.Mamba2) *model.Model {
	inner := s.Heads * s.HeadDim
	channels := inner + 2*s.Groups*s.State
	return w.model(model.LayerConfig{SSM: &s}, model.RecurrentParams{In: []*model.Linear{w.linear(inner+channels+s.Heads, mixWidth)}, Conv: []*model.Vector{w.vector(0, 0.6, channels*s.Kernel)}, ConvBias: w.vector(0, 0.3, channels),
		Decay: w.vector(-0.5, 0.2, s.Heads), DTBias: w.vector(-1, 2, s.Heads), D: w.vector(1, 0.5, s.Heads), Norm: w.vector(1, 0.1, inner)}, inner)
}

// convolution is a model of one short convolution.
func (w randomWeights) convolution(c model.ShortConv, bias bool) *model.Model {
	r := model.RecurrentParams{In: []*model.Linear{w.linear(3*c.Width, mixWidth)}, Conv: []*model.Vector{w.vector(0, 0.6, c.Width*c.Kernel)}}
	if bias {
		r.ConvBias = w.vector(0, 0.3, c.Width)
	}
	return w.model(model.LayerConfig{Conv: &c}, r, c.Width)
}

func (w randomWeights) model(l model.LayerConfig, r model.RecurrentParams, out int) *model.Model {
	l.Rope = -1
	return &model.Model{Config: model.Config{Layers: 1, Residual: model.Residual{Hidden: mixWidth}, Norms: model.Norms{NormEps: 1e-6}, Layer: []model.LayerConfig{l}},
		Params: model.Params{Layers: []model.LayerParams{{AttnNorm: model.NormParams{W: w.vector(1, 0.1, mixWidth)}, Recurrent: r, O: w.linear(mixWidth, out)}}}}
}

// TestMixers compares mixers of shapes that no work group divides with the native ones, over passes of several texts. States that stay on the
// device give the bits that states give which go up and down at each pass.
func TestMixers(t *testing.T) {
	w := randomWeights{rand.New(rand.NewPCG(5, 5))}
	for _, c := range []struct {
		name string
		m    *model.Model
	}{
		{"delta", w.delta(model.DeltaNet{KeyHeads: 2, ValueHeads: 6, KeyDim: 20, ValueDim: 36, Kernel: 4}, 6)},
		{"delta, modulo", w.delta(model.DeltaNet{KeyHeads: 2, ValueHeads: 6, KeyDim: 20, ValueDim: 36, Kernel: 4, Modulo: true, Sigmoid: true}, 6)},
		{"delta of 128", w.delta(model.DeltaNet{KeyHeads: 1, ValueHeads: 2, KeyDim: 128, ValueDim: 128, Kernel: 4}, 2)},
		{"delta of 150", w.delta(model.DeltaNet{KeyHeads: 1, ValueHeads: 1, KeyDim: 150, ValueDim: 8, Kernel: 2}, 1)},
		{"decays by channel", w.delta(model.DeltaNet{KeyHeads: 3, ValueHeads: 3, KeyDim: 20, ValueDim: 20, Kernel: 4, ByChannel: true, Sigmoid: true}, 3)},
		{"each channel's decay", w.delta(model.DeltaNet{KeyHeads: 3, ValueHeads: 3, KeyDim: 20, ValueDim: 20, Kernel: 4, ByChannel: true, Sigmoid: true}, 60)},
		{"Mamba-2", w.space(model.Mamba2{Heads: 6, HeadDim: 20, Groups: 3, State: 40, Kernel: 4})},
		{"Mamba-2, bounded", w.space(model.Mamba2{Heads: 6, HeadDim: 20, Groups: 1, State: 40, Kernel: 4, DTMin: 0.2, DTMax: 0.4, Norm: model.NormThenGate})},
		{"Mamba-2 without a norm", w.space(model.Mamba2{Heads: 2, HeadDim: 16, Groups: 1, State: 16, Kernel: 1, Norm: model.NoSSMNorm})},
		{"convolution", w.convolution(model.ShortConv{Width: 200, Kernel: 3}, false)},
		{"convolution with bias", w.convolution(model.ShortConv{Width: 52, Kernel: 5}, true)},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := c.m
			native, err := model.OpenBackend("native", m, model.BackendOptions{Threads: 1})
			if err != nil {
				t.Fatal(err)
			}
			defer native.Close()
			b := onCPU(t, m, 0)
			size := m.Cache()[0].State.Bytes / 4
			host, down, stay := make([]state, 4), make([]state, 4), make([]state, 4)
			for i := range host {
				x := w.numbers(0, 1, size)
				host[i], down[i], stay[i] = newState(x), newState(x), newState(x)
			}
			for i, pass := range [][]int{{3, 0, 37, 1}, {1, 1, 1, 1}, {2, 5, 0, 1}} {
				n := 0
				for _, rows := range pass {
					n += rows
				}
				hidden := w.numbers(0, 1, n*mixWidth)
				p := &model.Pass{Phase: kernels.Exact, Pos: make([]int32, n)}
				want := mix(t, native.(model.Recurrent), p, hidden, host, pass, false)
				got := mix(t, b, p, hidden, down, pass, false)
				near(t, fmt.Sprintf("pass %d", i), got, want)
				up, brought, batch := b.use.UpBytes, b.use.DownBytes, b.batch
				again := mix(t, b, p, hidden, stay, pass, true)
				if !slices.Equal(again, got) {
					t.Errorf("pass %d: rows are others where states stay on the device", i)
				}
				if moved := b.use.UpBytes - up - int64(4*n*(mixWidth+1)+4*6*len(pass)); i > 0 && moved != 0 {
					t.Errorf("pass %d: %d bytes went up beside rows and tables, want none", i, moved)
				}
				if moved := b.use.DownBytes - brought - int64(4*len(got)); moved != 0 || b.batch-batch > 1 {
					t.Errorf("pass %d: %d bytes came down beside rows, want none; %d submissions, want 1", i, moved, b.batch-batch)
				}
			}
			for i := range host {
				numbers := make([]float32, size)
				if err := errors.Join(stay[i].copy.Bring(), stay[i].copy.Fetch(numbers)); err != nil {
					t.Fatal(err)
				}
				near(t, fmt.Sprintf("state of text %d", i), down[i].now, host[i].now)
				if !slices.Equal(numbers, down[i].now) {
					t.Errorf("the state of text %d is another where it stays on the device", i)
				}
				stay[i].copy.Drop()
				stay[i].other.Drop()
			}
			if free := len(b.heap.free[int64(4*size+16+255)&^255]); free < 2*len(stay) {
				t.Errorf("%d pieces of a state's size are free, want those of %d copies", free, 2*len(stay))
			}
		})
	}
}

// state is one text's, as who owns it has it: the numbers now and those before the last pass, and a device's copies of both.
type state struct {
	now, before []float32
	copy, other cacheshape.StateCopy
}

func newState(x []float32) state { return state{now: slices.Clone(x), before: make([]float32, len(x))} }

// mix takes rows of texts through a mixer and their states on. What may stay on a device is spoilt in host memory.
func mix(t *testing.T, b model.Recurrent, p *model.Pass, hidden []float32, states []state, rows []int, keeps bool) []float32 {
	t.Helper()
	texts := make([]model.StateRows, len(rows))
	for i := range texts {
		s := &states[i]
		texts[i] = model.StateRows{Rows: rows[i], From: s.now, State: s.before, Keeps: keeps, FromCopy: s.copy, Copy: s.other}
	}
	n := len(p.Pos)
	out, err := b.Mix(p, 0, tensor.New(tensor.WithShape(n, mixWidth), tensor.WithBacking(slices.Clone(hidden))), texts)
	if err != nil {
		t.Fatal(err)
	}
	for i := range states {
		s := &states[i]
		s.now, s.before = s.before, s.now
		s.copy, s.other = texts[i].Copy, s.copy
		for j := range s.now {
			if keeps {
				s.now[j] = float32(math.NaN())
			}
		}
	}
	return slices.Clone(model.Float32s(out))
}

// TestMixersBeside: beside attention a mixer's output is added to the rows, where they lie on the device, as whoever has read them before
// finds, and in host memory.
func TestMixersBeside(t *testing.T) {
	w := randomWeights{rand.New(rand.NewPCG(6, 6))}
	m := w.space(model.Mamba2{Heads: 2, HeadDim: 20, Groups: 1, State: 24, Kernel: 4})
	m.Layer[0].Attention = model.Attention{Heads: 1, KVHeads: 1, KeyDim: 8, ValDim: 8, Rope: -1}
	m.Params.Layers[0].Recurrent.Out = w.linear(mixWidth, 40)
	m.ResidualScale = 0.5
	native, err := model.OpenBackend("native", m, model.BackendOptions{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer native.Close()
	b := onCPU(t, m, 0)
	const n = 5
	rows, x := w.numbers(0, 1, n*mixWidth), w.numbers(0, 1, m.Cache()[0].State.Bytes/4)
	on, err := b.embedded.room(b.recorder, len(rows))
	if err == nil {
		err = b.upload(on, vulkan.Bytes(rows))
	}
	if err != nil {
		t.Fatal(err)
	}
	host := func() *tensor.Dense {
		return tensor.New(tensor.WithShape(n, mixWidth), tensor.WithBacking(slices.Clone(rows)))
	}
	want, there, here := host(), b.embedded.tensor(b.recorder, n, mixWidth), host()
	near(t, "rows before", model.Float32s(there), rows)
	for _, c := range []struct {
		by   model.Recurrent
		rows *tensor.Dense
	}{{native.(model.Recurrent), want}, {b, there}, {b, here}} {
		s := newState(x)
		out, err := c.by.Mix(&model.Pass{Phase: kernels.Exact, Pos: make([]int32, n)}, 0, c.rows, []model.StateRows{{Rows: n, From: s.now, State: s.before}})
		if err != nil || out != nil {
			t.Fatal(out, err)
		}
	}
	near(t, "rows on the device", model.Float32s(there), want.Float32s())
	near(t, "rows in host memory", here.Float32s(), want.Float32s())
}

// TestPromptsOfMixers: what a pass of recurrent layers has recorded is done before the next one, though nobody reads anything.
func TestPromptsOfMixers(t *testing.T) {
	w := randomWeights{rand.New(rand.NewPCG(7, 7))}
	m := w.convolution(model.ShortConv{Width: 20, Kernel: 3}, false)
	b := onCPU(t, m, 0)
	s := newState(w.numbers(0, 1, 40))
	for range 2 {
		if err := b.begin(); err != nil {
			t.Fatal(err)
		}
		batch := b.batch
		if _, err := b.Mix(&model.Pass{Pos: make([]int32, 1)}, 0, tensor.New(tensor.WithShape(1, mixWidth), tensor.WithBacking(make([]float32, mixWidth))),
			[]model.StateRows{{Rows: 1, From: s.now, State: s.before, Keeps: true}}); err != nil {
			t.Fatal(err)
		}
		if b.batch != batch {
			t.Errorf("a mixer submits %d times", b.batch-batch)
		}
		if err := b.begin(); err != nil || b.batch != batch+1 {
			t.Errorf("the next pass has had %d submissions before it, want 1: %v", b.batch-batch, err)
		}
	}
}

// TestGates compares gates on attention, by head and by number, with the native ones.
func TestGates(t *testing.T) {
	const heads, dim, n = 3, 20, 4
	for _, kind := range []model.GateKind{model.SigmoidGate, model.SoftplusGate} {
		for _, gates := range []int{heads, heads * dim} {
			w := randomWeights{rand.New(rand.NewPCG(8, uint64(gates)))}
			m := w.model(model.LayerConfig{NoFFN: true, Attention: model.Attention{Heads: heads, KVHeads: 1, KeyDim: dim, ValDim: dim, Gate: kind}}, model.RecurrentParams{}, heads*dim)
			m.Params.Layers[0].OutGate = w.linear(gates, mixWidth)
			native, err := model.OpenBackend("native", m, model.BackendOptions{Threads: 1})
			if err != nil {
				t.Fatal(err)
			}
			rows, attended := w.numbers(0, 1, n*mixWidth), w.numbers(0, 1, n*heads*dim)
			var got [][]float32
			for _, by := range []model.Backend{native, onCPU(t, m, 0)} {
				out, err := by.Finish(&model.Pass{Phase: kernels.Exact, Pos: make([]int32, n)}, 0, tensor.New(tensor.WithShape(n, mixWidth), tensor.WithBacking(slices.Clone(rows))),
					tensor.New(tensor.WithShape(n, heads*dim), tensor.WithBacking(slices.Clone(attended))))
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, slices.Clone(model.Float32s(out)))
			}
			near(t, fmt.Sprintf("gate %d, %d gates", kind, gates), got[1], got[0])
			if err := native.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
