package fakes

import (
	"math/rand/v2"

	"terrace/model"
)

// Indexed is a random model whose attention has a trained indexer, of single tokens or of blocks: latent keys, gated DeltaNet, and four layers of 2 KV heads of 32.
func Indexed(seed uint64, block int) *model.Model {
	b := &mixedBuilder{rng: rand.New(rand.NewPCG(seed, 78))}
	c := model.Config{Arch: "indexed", Name: "indexed", Layers: 6, Residual: model.Residual{Hidden: mixedHidden}, Vocab: 300, Context: 2048, Norms: model.Norms{NormEps: 1e-6}, Act: model.SiLU, Gated: true,
		Positions: model.Positions{Ropes: []model.Rope{b.rope(32, false), b.rope(8, true)}}, Layer: make([]model.LayerConfig, 6)}
	for i := range c.Layer {
		c.Layer[i].Owner, c.Layer[i].Rope = i, -1
	}
	x := &model.Indexer{Heads: 4, Dim: 13, TopK: 24 / block, Block: block, Rot: 8}
	c.Layer[0].Attention = model.Attention{Heads: 4, KVHeads: 1, KeyDim: 32, ValDim: 32, Rope: 1, Scale: 0.2, Latent: &model.Latent{Rank: 24, Nope: 16, Rope: 8, Value: 16}, Index: x}
	c.Layer[1].Delta = &model.DeltaNet{KeyHeads: 2, ValueHeads: 4, KeyDim: 16, ValueDim: 12, Kernel: 4}
	for i := 2; i < c.Layers; i++ {
		c.Layer[i].Attention = model.Attention{Heads: 4, KVHeads: 2, KeyDim: 32, ValDim: 32, Owner: i, Index: x}
	}
	p := model.Params{Embed: b.linear(300, mixedHidden, 1), FinalNorm: b.norm(mixedHidden), Output: b.linear(300, mixedHidden, 0.4)}
	for i := range c.Layer {
		l := b.layer(&c.Layer[i], i)
		if l.Sinks = nil; c.Layer[i].Index != nil {
			l.Index = model.IndexParams{Q: b.linear(x.Heads*x.Dim, mixedHidden, 1), K: b.linear(x.Dim, mixedHidden, 1), Weights: b.linear(x.Heads, mixedHidden, 1), QNorm: b.norm(x.Dim), KNorm: b.norm(x.Dim)}
		}
		p.Layers = append(p.Layers, l)
	}
	return &model.Model{Config: c, Params: p}
}
