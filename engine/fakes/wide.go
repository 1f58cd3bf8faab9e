package fakes

import (
	"math/rand/v2"

	"terrace/model"
)

// Wide is a random model of the form of Gemma 3n and 4: windows over heads of 32 and none over heads of 64, two last layers that read the keys of the last of
// their kind, per-layer inputs, norms on values, values that are keys, sparse gates, experts beside a feed-forward network. With streams its rows are
// four streams with a second residual. Weights are float32 in memory, the same for a seed.
func Wide(seed uint64, streams bool) *model.Model {
	b := &mixedBuilder{rng: rand.New(rand.NewPCG(seed, 78))}
	const layers, d, p = 6, mixedHidden, 8
	c := model.Config{Arch: "wide", Name: "wide", Layers: layers, Residual: model.Residual{Hidden: d, PerLayer: p}, Vocab: 300, Context: 2048, Norms: model.Norms{NormEps: 1e-6}, Act: model.GELUTanh, Gated: true,
		Multipliers: model.Multipliers{EmbedScale: 8, LogitSoftcap: 30}, Mixture: model.Mixture{Experts: 4, TopK: 2, NormTopK: true}, Positions: model.Positions{Ropes: []model.Rope{b.rope(64, false), b.rope(32, false)}}, Layer: make([]model.LayerConfig, layers)}
	if streams {
		c.Streams = model.Streams{Count: 4, Active: 1}
	}
	for i := range c.Layer {
		l := &c.Layer[i]
		l.Attention = model.Attention{Heads: 4, KVHeads: 2, KeyDim: 32, ValDim: 32, Window: 24, Owner: i, Rope: 1, Scale: 1}
		if i%3 == 2 {
			l.Attention = model.Attention{Heads: 4, KVHeads: 1, KeyDim: 64, ValDim: 64, Owner: i, Scale: 1}
		}
		if i >= layers-2 {
			l.Owner = i - 3
		}
		l.Sparse, l.Deviations, l.MoE = i == 0, 0.5, i == 1
	}
	params := model.Params{Embed: b.linear(300, d, 1), FinalNorm: b.norm(d), Output: b.linear(300, d, 0.4), PerLayerTable: b.linear(200, layers*p, 3), PerLayerNorm: b.norm(p)}
	if streams {
		params.StreamIn, params.StreamOut = b.heads(3, d, d), b.heads(3, d, d)
	}
	for i := range c.Layer {
		l := b.layer(&c.Layer[i], i)
		b.widen(&c, &l, i)
		params.Layers = append(params.Layers, l)
	}
	return &model.Model{Config: c, Params: params}
}

// widen adds to a layer what others do not have.
func (b *mixedBuilder) widen(c *model.Config, l *model.LayerParams, i int) {
	d, a := c.Hidden, &c.Layer[i].Attention
	l.PostAttnNorm, l.PostFFNNorm, l.QNorm = b.norm(d), b.norm(d), b.norm(a.KeyDim)
	if a.Owner == i {
		l.KNorm, l.VNorm = b.norm(a.KeyDim), b.norm(a.ValDim)
	}
	if i == 2 {
		l.V = nil
	}
	l.PerLayer = &model.PerLayerParams{Proj: b.linear(c.PerLayer, d, 1), Gate: b.linear(c.PerLayer, d, 1), Up: b.linear(d, c.PerLayer, 1), Norm: b.norm(d)}
	if c.Layer[i].MoE {
		l.Router, l.ExpertScale = b.linear(c.Experts, d, 1), b.vector(1, 0.2, c.Experts)
		l.ExpertGate, l.ExpertUp, l.ExpertDown = b.heads(c.Experts, 24, d), b.heads(c.Experts, 24, d), b.heads(c.Experts, d, 24)
		l.Beside = &model.BesideParams{RouterNorm: b.norm(d), ExpertNorm: b.norm(d), DensePost: b.norm(d), ExpertPost: b.norm(d)}
	}
	if n := c.Streams.Count; n > 0 {
		l.Streams = &model.StreamParams{Router: b.linear(n, d, 8), RouterNorm: b.norm(d), Predict: b.vector(0, 0.2, n*n*n), Correct: b.vector(0, 0.2, n*n), Scale: b.vector(1, 0.2, d)}
		l.Laurel = &model.LaurelParams{Down: b.linear(12, d, 1), Up: b.linear(d, 12, 1), Norm: b.norm(d)}
	} else {
		l.OutScale = b.vector(0.7, 0.1, 1)
	}
}
