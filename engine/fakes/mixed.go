package fakes

import (
	"encoding/binary"
	"math"
	"math/rand/v2"

	"terrace/internal/kernels/quant"
	"terrace/model"
	"terrace/weights/gguf"
)

// Mixed is a random model whose layers all differ: a window over 2 KV heads of 32; gated DeltaNet; 4 KV heads of 64; a layer that reads
// these, gated; latent keys with sinks; Mamba-2 beside attention; a short convolution. Weights are float32 in memory, the same for a seed.
func Mixed(seed uint64) *model.Model {
	b := &mixedBuilder{rng: rand.New(rand.NewPCG(seed, 77))}
	c := model.Config{Arch: "mixed", Name: "mixed", Layers: 7, Residual: model.Residual{Hidden: mixedHidden}, Vocab: 300, Context: 2048, Norms: model.Norms{NormEps: 1e-6}, Act: model.SiLU, Gated: true,
		Positions: model.Positions{Ropes: []model.Rope{b.rope(32, false), b.rope(64, false), b.rope(8, true)}}, Layer: make([]model.LayerConfig, 7)}
	for i := range c.Layer {
		c.Layer[i].Owner, c.Layer[i].Rope = i, -1
	}
	c.Layer[0].Attention = model.Attention{Heads: 4, KVHeads: 2, KeyDim: 32, ValDim: 32, Window: 24}
	c.Layer[1].Delta = &model.DeltaNet{KeyHeads: 2, ValueHeads: 4, KeyDim: 16, ValueDim: 12, Kernel: 4}
	c.Layer[2].Attention = model.Attention{Heads: 8, KVHeads: 4, KeyDim: 64, ValDim: 64, Owner: 2, Rope: 1}
	c.Layer[3].Attention = model.Attention{Heads: 4, KVHeads: 4, KeyDim: 64, ValDim: 64, Owner: 2, Rope: 1, Gate: model.SigmoidGate}
	c.Layer[4].Attention = model.Attention{Heads: 4, KVHeads: 1, KeyDim: 32, ValDim: 32, Owner: 4, Rope: 2, Scale: 0.2, Latent: &model.Latent{Rank: 24, Nope: 16, Rope: 8, Value: 16}}
	c.Layer[5].Attention = model.Attention{Heads: 2, KVHeads: 1, KeyDim: 32, ValDim: 32, Owner: 5}
	c.Layer[5].SSM = &model.Mamba2{Heads: 4, HeadDim: 16, Groups: 2, State: 8, Kernel: 3}
	c.Layer[6].Conv = &model.ShortConv{Width: mixedHidden, Kernel: 3}
	p := model.Params{Embed: b.linear(300, mixedHidden, 1), FinalNorm: b.norm(mixedHidden), Output: b.linear(300, mixedHidden, 0.4)}
	for i := range c.Layer {
		p.Layers = append(p.Layers, b.layer(&c.Layer[i], i))
	}
	return &model.Model{Config: c, Params: p}
}

const (
	mixedHidden = 64
	mixedFFN    = 96
)

type mixedBuilder struct{ rng *rand.Rand }

func (b *mixedBuilder) rope(dim int, interlaced bool) model.Rope {
	r := model.Rope{Dim: dim, Interlaced: interlaced, InvFreq: make([]float32, dim/2)}
	for i := range r.InvFreq {
		r.InvFreq[i] = float32(1 / math.Pow(1e4, float64(2*i)/float64(dim)))
	}
	return r
}

// tensor is n random numbers around a mean.
func (b *mixedBuilder) tensor(mean, spread float64, shape ...int) *gguf.Tensor {
	n := 1
	for _, d := range shape {
		n *= d
	}
	data := make([]byte, 0, 4*n)
	for range n {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(mean+spread*b.rng.NormFloat64())))
	}
	return gguf.NewTensor("mixed", quant.F32, shape, func() ([]byte, error) { return data, nil })
}

func (b *mixedBuilder) linear(rows, cols int, gain float64) *model.Linear {
	return &model.Linear{Tensor: b.tensor(0, gain/math.Sqrt(float64(cols)), rows, cols), Rows: rows, Cols: cols}
}

func (b *mixedBuilder) vector(mean, spread float64, n int) *model.Vector {
	return &model.Vector{Tensor: b.tensor(mean, spread, n)}
}

func (b *mixedBuilder) norm(n int) model.NormParams {
	return model.NormParams{W: b.vector(1, 0.1, n)}
}

// heads are a weight for each head.
func (b *mixedBuilder) heads(n, rows, cols int) (list []*model.Linear) {
	for range n {
		list = append(list, b.linear(rows, cols, 1))
	}
	return list
}

func (b *mixedBuilder) layer(l *model.LayerConfig, i int) model.LayerParams {
	const d = mixedHidden
	p := model.LayerParams{AttnNorm: b.norm(d), FFNNorm: b.norm(d), Gate: b.linear(mixedFFN, d, 1), Up: b.linear(mixedFFN, d, 1), Down: b.linear(d, mixedFFN, 0.5)}
	switch {
	case l.Latent != nil:
		x := l.Latent
		p.QueryDown, p.QueryNorm = b.linear(40, d, 1), b.norm(40)
		p.Q = b.linear(l.Heads*(x.Nope+x.Rope), 40, 2)
		p.KeyDown, p.KeyNorm = b.linear(x.Rank+x.Rope, d, 2), b.norm(x.Rank)
		p.KeyUp, p.ValueUp = b.heads(l.Heads, x.Rank, x.Nope), b.heads(l.Heads, x.Value, x.Rank)
		p.O, p.Sinks = b.linear(d, l.Heads*x.Value, 0.5), b.vector(1, 1, l.Heads)
	case l.Heads > 0:
		p.Q, p.O = b.linear(l.Heads*l.KeyDim, d, 2), b.linear(d, l.Heads*l.ValDim, 0.5)
		if l.Owner == i {
			p.K, p.V = b.linear(l.KVHeads*l.KeyDim, d, 2), b.linear(l.KVHeads*l.ValDim, d, 1)
		}
		if l.Gate != model.NoGate {
			p.OutGate = b.linear(l.Heads, d, 1)
		}
	}
	switch {
	case l.Delta != nil:
		x := l.Delta
		channels, values := 2*x.KeyHeads*x.KeyDim+x.ValueHeads*x.ValueDim, x.ValueHeads*x.ValueDim
		p.Recurrent = model.RecurrentParams{In: []*model.Linear{b.linear(channels, d, 1)}, Z: b.linear(values, d, 1), A: b.linear(x.ValueHeads, d, 1), B: b.linear(x.ValueHeads, d, 1),
			Conv: []*model.Vector{b.vector(0, 0.6, channels*x.Kernel)}, Decay: b.vector(-0.5, 0.1, x.ValueHeads), DTBias: b.vector(0, 1, x.ValueHeads), Norm: b.vector(1, 0.1, x.ValueDim)}
		p.O = b.linear(d, values, 0.5)
	case l.SSM != nil:
		x := l.SSM
		inner := x.Heads * x.HeadDim
		channels := inner + 2*x.Groups*x.State
		p.Recurrent = model.RecurrentParams{In: []*model.Linear{b.linear(inner, d, 1), b.linear(channels, d, 1), b.linear(x.Heads, d, 1)}, Conv: []*model.Vector{b.vector(0, 0.6, channels*x.Kernel)},
			ConvBias: b.vector(0, 0.1, channels), Decay: b.vector(-0.5, 0.1, x.Heads), DTBias: b.vector(0, 1, x.Heads), D: b.vector(1, 0.1, x.Heads), Norm: b.vector(1, 0.1, inner), Out: b.linear(d, inner, 0.5)}
	case l.Conv != nil:
		x := l.Conv
		p.Recurrent = model.RecurrentParams{In: []*model.Linear{b.linear(3*x.Width, d, 1)}, Conv: []*model.Vector{b.vector(0, 0.6, x.Width*x.Kernel)}}
		p.O = b.linear(d, x.Width, 0.5)
	}
	return p
}
