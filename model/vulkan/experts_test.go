package vulkan

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gorgonia.org/tensor"

	"terrace/internal/kernels"
	"terrace/internal/kernels/quant"
	"terrace/internal/vulkan"
	"terrace/model"
	"terrace/weights/gguf"
)

// moe is a model of one layer whose experts are random.
type moe struct {
	model.Config
	l   model.LayerParams
	rnd *rand.Rand
}

func newMoE(experts, most int) *moe {
	x := &moe{rnd: rand.New(rand.NewPCG(uint64(experts), uint64(most)))}
	x.Layers, x.Hidden, x.NormEps, x.Gated = 1, 72, 1e-5, true
	x.Layer = []model.LayerConfig{{MoE: true}}
	x.Experts, x.TopK = experts, most
	return x
}

func (x *moe) floats(n int, scale float64) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = float32(scale * x.rnd.NormFloat64())
	}
	return out
}

// tensor is a tensor of random numbers with a shape.
func (x *moe) tensor(t *testing.T, typ quant.Type, shape ...int) *gguf.Tensor {
	rows := 1
	for _, d := range shape[:len(shape)-1] {
		rows *= d
	}
	var data []byte
	for range rows {
		if row := make([]byte, typ.RowBytes(shape[len(shape)-1])); typ == quant.F32 {
			if err := quant.Quantize(typ, row, x.floats(shape[len(shape)-1], 0.15)); err != nil {
				t.Fatal(err)
			}
			data = append(data, row...)
		} else {
			data = append(data, blocks(t, x.rnd, typ, shape[len(shape)-1])...)
		}
	}
	return gguf.NewTensor(fmt.Sprint(typ, shape), typ, shape, func() ([]byte, error) { return data, nil })
}

func (x *moe) vector(t *testing.T, n int) *model.Vector {
	return &model.Vector{Tensor: x.tensor(t, quant.F32, n)}
}

func (x *moe) norm(t *testing.T) model.NormParams {
	v := x.vector(t, x.Hidden)
	v.Factor = 8 // about 1
	return model.NormParams{W: v}
}

func (x *moe) linear(t *testing.T, rows, cols int) *model.Linear {
	return &model.Linear{Tensor: x.tensor(t, quant.F32, rows, cols), Rows: rows, Cols: cols}
}

// alike is a router whose rows are the first so many, again and again.
func (x *moe) alike(t *testing.T, rows int) *model.Linear {
	data, err := x.tensor(t, quant.F32, rows, x.Hidden).Bytes()
	if err != nil {
		t.Fatal(err)
	}
	data = slices.Repeat(data, x.Experts/rows)
	return &model.Linear{Tensor: gguf.NewTensor("alike", quant.F32, []int{x.Experts, x.Hidden}, func() ([]byte, error) { return data, nil }), Rows: x.Experts, Cols: x.Hidden}
}

// experts are weights of all experts in one tensor.
func (x *moe) experts(t *testing.T, typ quant.Type, rows, cols int, biased bool) (list []*model.Linear) {
	all := x.tensor(t, typ, x.Experts, rows, cols)
	var bias *model.Vector
	if biased {
		bias = x.vector(t, x.Experts*rows)
	}
	for e := range x.Experts {
		l := &model.Linear{Tensor: all, From: e * rows, Rows: rows, Cols: cols}
		if biased {
			l.Bias, l.BFrom = bias, e*rows
		}
		list = append(list, l)
	}
	return list
}

// build fills the weights that the configuration asks for and no test has filled.
func (x *moe) build(t *testing.T, typ quant.Type, width int, biased bool) *model.Model {
	l := &x.l
	l.FFNNorm = x.norm(t)
	if l.Router == nil {
		l.Router = x.linear(t, x.Experts, x.Hidden)
	}
	wide := x.ExpertRow()
	if x.Gated {
		l.ExpertGate = x.experts(t, typ, width, wide, biased)
	}
	l.ExpertUp, l.ExpertDown = x.experts(t, typ, width, wide, biased), x.experts(t, typ, wide, width, biased)
	if x.MoELatent > 0 {
		l.ExpertIn, l.ExpertOut = x.linear(t, wide, x.Hidden), x.linear(t, x.Hidden, wide)
	}
	if x.Router.Bias {
		l.RouterBias = x.vector(t, x.Experts)
	}
	if x.Shared > 0 {
		l.SharedUp, l.SharedDown = x.linear(t, x.Shared, x.Hidden), x.linear(t, x.Hidden, x.Shared)
		if x.Gated {
			l.SharedGate = x.linear(t, x.Shared, x.Hidden)
		}
	}
	return &model.Model{Config: x.Config, Params: model.Params{Layers: []model.LayerParams{x.l}}}
}

// agrees compares what the device and the native backend add to rows of a residual, for numbers of rows and both orders of sums; a row's
// result does not depend on the rows beside it.
func agrees(t *testing.T, b *backend, rows ...int) {
	t.Helper()
	m := b.m
	host, err := model.OpenBackend("native", m, model.BackendOptions{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	rnd := rand.New(rand.NewPCG(9, 9))
	x := make([]float32, slices.Max(rows)*m.Hidden)
	for i := range x {
		x[i] = float32(rnd.NormFloat64())
	}
	of := func(n int) *tensor.Dense {
		return tensor.New(tensor.WithShape(n, m.Hidden), tensor.WithBacking(slices.Clone(x[:n*m.Hidden])))
	}
	for _, phase := range []kernels.Phase{kernels.Decode, kernels.Prefill} {
		var first []float32
		for _, n := range rows {
			want, err := host.Finish(&model.Pass{Phase: kernels.Exact, Pos: make([]int32, n)}, 0, of(n), nil)
			if err != nil {
				t.Fatal(err)
			}
			s := b.steps(&model.Pass{Phase: phase, Pos: make([]int32, n)})
			y := s.input(of(n), &b.hidden)
			s.feed(0, n).forward(s.normed(m.Params.Layers[0].FFNNorm, y, n, m.Hidden), y)
			if _, err := s.result(&b.hidden, n, m.Hidden, true); err != nil {
				t.Fatal(err)
			}
			got, err := b.hidden.h.now()
			if err != nil {
				t.Fatal(err)
			}
			most, moved := 0.0, 0.0
			for i, w := range want.Float32s() {
				most, moved = max(most, math.Abs(float64(w))), max(moved, math.Abs(float64(w-x[i])))
			}
			if moved < 0.1 {
				t.Fatalf("the experts add at most %g to rows", moved)
			}
			for i, w := range want.Float32s() {
				if !(math.Abs(float64(got[i]-w)) <= 3e-5*most) {
					t.Fatalf("phase %d, %d rows: row %d has %g at %d, want %g", phase, n, i/m.Hidden, got[i], i%m.Hidden, w)
				}
			}
			if first == nil {
				first = slices.Clone(got)
			} else if !slices.Equal(got, first[:len(got)]) {
				t.Errorf("phase %d: %d rows give other numbers than more", phase, n)
			}
		}
	}
}

// TestExperts compares mixtures of experts with the native backend's: each way of choosing and weighing experts, and what stands around them.
func TestExperts(t *testing.T) {
	device := onCPU(t, &model.Model{}, 0).recorder
	for _, c := range []struct {
		name          string
		experts, most int
		of            func(x *moe)
		biased        bool
	}{
		{"softmax over all", 9, 3, func(x *moe) {}, false},
		{"softmax over the chosen, scaled", 70, 8, func(x *moe) { x.NormTopK, x.Router.Scale = true, 2.5 }, false},
		{"more experts than threads", 300, 11, func(x *moe) { x.NormTopK = true }, false},
		{"all of them", 4, 4, func(x *moe) {}, false},
		{"one", 1, 1, func(x *moe) { x.Router.Score = model.SigmoidRouter }, false},
		{"sigmoids with a bias", 12, 4, func(x *moe) {
			x.Router = model.Router{Score: model.SigmoidRouter, Bias: true, Scale: 1.7}
			x.NormTopK = true
		}, false},
		{"softmax with a bias, a least sum", 12, 4, func(x *moe) { x.Router, x.NormTopK = model.Router{Bias: true, Least: 0.7}, true }, false},
		{"groups", 24, 4, func(x *moe) { x.Router = model.Router{Groups: 6, GroupsUsed: 2, GroupBest: 3, Scale: 3} }, false},
		{"groups by their two best, sigmoids with a bias", 24, 4, func(x *moe) {
			x.Router = model.Router{Score: model.SigmoidRouter, Bias: true, Groups: 4, GroupsUsed: 2, GroupBest: 2}
			x.NormTopK = true
		}, false},
		{"equal scores of experts", 9, 3, func(x *moe) { x.l.Router = x.alike(t, 1) }, false},
		{"equal scores of groups", 24, 4, func(x *moe) {
			x.Router = model.Router{Groups: 6, GroupsUsed: 3, GroupBest: 1}
			x.l.Router = x.alike(t, 4)
		}, false},
		{"soft cap", 8, 2, func(x *moe) { x.Router = model.Router{Score: model.SigmoidRouter, Softcap: 0.5} }, false},
		{"sparse mixer", 8, 2, func(x *moe) { x.Router = model.Router{Score: model.SparseMixer, Jitter: 0.3} }, false},
		{"weighed inputs", 6, 2, func(x *moe) { x.Router = model.Router{Score: model.SigmoidRouter, OnInput: true} }, true},
		{"biases, a clamp", 6, 2, func(x *moe) {
			x.Act, x.Clamp, x.NormTopK = model.ClampedSwiGLU, model.Clamp{Alpha: 1.702, Limit: 0.4}, true
		}, true},
		{"squared ReLU without gates on a latent, beside a network", 6, 2, func(x *moe) {
			x.Act, x.Gated, x.MoELatent, x.Shared = model.SquaredReLU, false, 40, 24
		}, false},
		{"a latent, a network beside, a norm behind", 6, 2, func(x *moe) { x.MoELatent, x.Shared, x.l.PostFFNNorm, x.ResidualScale = 40, 24, x.norm(t), 0.7 }, false},
		{"a latent, a factor", 6, 2, func(x *moe) { x.MoELatent, x.Shared, x.ResidualScale = 40, 16, 0.7 }, false},
		{"a network beside, a factor", 6, 2, func(x *moe) { x.Shared, x.ResidualScale = 48, 0.22 }, false},
		{"a network by a sigmoid", 6, 2, func(x *moe) { x.Shared, x.l.SharedRouter = 48, x.linear(t, 1, x.Hidden) }, false},
		{"norms, factors on experts", 6, 2, func(x *moe) {
			x.l.PostFFNNorm, x.l.ExpertScale, x.ResidualScale = x.norm(t), x.vector(t, 6), 0.5
		}, false},
		{"experts beside a network", 6, 2, func(x *moe) { x.Act = model.GELUTanh; x.beside(t) }, false},
		{"experts beside a network, a norm behind", 6, 2, func(x *moe) { x.l.PostFFNNorm = x.norm(t); x.beside(t) }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			defer func(most int64) { stackBytes = most }(stackBytes)
			stackBytes = 3 * 4 * 44 * 72 // experts lie in several places
			x := newMoE(c.experts, c.most)
			c.of(x)
			agrees(t, onDeviceOf(device, x.build(t, quant.F32, 44, c.biased), 0), 37, 3, 1)
		})
	}
}

// beside has a feed-forward network stand beside the experts, each with norms of its own.
func (x *moe) beside(t *testing.T) {
	x.l.ExpertScale, x.ResidualScale = x.vector(t, x.Experts), 0.6
	x.l.Beside = &model.BesideParams{RouterNorm: x.norm(t), ExpertNorm: x.norm(t), DensePost: x.norm(t), ExpertPost: x.norm(t)}
	x.l.Gate, x.l.Up, x.l.Down = x.linear(t, 50, x.Hidden), x.linear(t, 50, x.Hidden), x.linear(t, x.Hidden, 50)
}

// TestExpertTypes: experts of every type that weights have on the device, and of one that they have not.
func TestExpertTypes(t *testing.T) {
	device := onCPU(t, &model.Model{}, 0).recorder
	for _, typ := range append(slices.Clone(onDevice), quant.NVFP4) {
		t.Run(typ.String(), func(t *testing.T) {
			x := newMoE(5, 2)
			x.Hidden = 256
			x.NormTopK = true
			b := onDeviceOf(device, x.build(t, typ, 256, false), 0)
			given := make([]float32, 3*x.Hidden)
			for i := range given {
				given[i] = float32(x.rnd.NormFloat64())
			}
			for _, phase := range []kernels.Phase{kernels.Decode, kernels.Prefill} {
				s := b.steps(&model.Pass{Phase: phase})
				in := s.input(tensor.New(tensor.WithShape(3, x.Hidden), tensor.WithBacking(given)), &b.block)
				c := s.feed(0, 3).choose(in)
				y := s.room(&b.hidden, c.pairs*256)
				c.products(x.l.ExpertUp, in, y, 2, 0)
				if _, err := s.result(&b.hidden, c.pairs, 256, false); err != nil {
					t.Fatal(err)
				}
				got, err := b.hidden.h.now()
				if err != nil {
					t.Fatal(err)
				}
				chosen := b.mixing.chosen.tensor(b.recorder, 3, 2)
				for pair, bits := range model.Float32s(chosen) {
					w, err := x.l.ExpertUp[math.Float32bits(bits)].Values()
					if err != nil {
						t.Fatal(err)
					}
					for o := range 256 {
						sum, size := 0.0, 0.0
						for i := range x.Hidden {
							p := float64(w[o*x.Hidden+i]) * float64(given[pair/2*x.Hidden+i])
							sum, size = sum+p, size+math.Abs(p)
						}
						if g := float64(got[pair*256+o]); !(math.Abs(g-sum) <= 1e-5*size) {
							t.Fatalf("phase %d: pair %d has %g at %d, want %g", phase, pair, g, o, sum)
						}
					}
				}
			}
		})
	}
}

// TestExpertTasks: the work groups of a pass multiply each pair of a row and an expert once, by that expert, whatever an earlier pass left.
func TestExpertTasks(t *testing.T) {
	x := newMoE(9, 3)
	b := onCPU(t, x.build(t, quant.F32, 44, false), 0)
	for _, phase := range []kernels.Phase{kernels.Prefill, kernels.Decode} {
		for _, n := range []int{200, 40, 7, 2, 1} {
			s := b.steps(&model.Pass{Phase: phase})
			in := s.input(tensor.New(tensor.WithShape(n, x.Hidden), tensor.WithBacking(x.floats(n*x.Hidden, 1))), &b.block)
			c := s.feed(0, n).choose(in)
			if s.err != nil {
				t.Fatal(s.err)
			}
			read := func(at *slot, n int) []int32 { return vulkan.Ints(model.Float32s(at.tensor(b.recorder, n, 1))) }
			chosen, tasks, pairs := read(&b.mixing.chosen, c.pairs), read(&b.mixing.tasks, 3*c.tasks), read(&b.mixing.pairs, c.pairs)
			done := make([]int, c.pairs)
			for i := range c.tasks {
				e, first, end := tasks[3*i], tasks[3*i+1], tasks[3*i+2]
				if int(end-first) > c.size || end < first {
					t.Fatalf("phase %d, %d rows: task %d is [%d, %d), %d at most", phase, n, i, first, end, c.size)
				}
				for _, p := range pairs[first:end] {
					if done[p]++; chosen[p] != e {
						t.Fatalf("phase %d, %d rows: pair %d is multiplied by expert %d, its own is %d", phase, n, p, e, chosen[p])
					}
				}
			}
			for p, times := range done {
				if times != 1 {
					t.Fatalf("phase %d, %d rows: pair %d is multiplied %d times", phase, n, p, times)
				}
			}
		}
	}
}
