package model

// StableLM: the llama decoder with LayerNorm and a partial rotation; some have norms with weights of its own for each head of q and k, and some
// a feed-forward network beside attention, on the same norm.
func init() {
	registerArchitecture(architecture{config: stablelmConfig, params: stablelmParams}, "stablelm")
}

func stablelmConfig(r *reader) *Config {
	c := decoderConfig(r)
	r.layerEps(c)
	r.activation(c, SiLU)
	r.rope(c)
	// Not use_parallel_residual: llama.cpp's converter writes true where a configuration does not say, which means false.
	c.Parallel = !r.file.Has("blk.0.ffn_norm.weight")
	if r.file.Has("blk.0.attn_q_norm.weight") {
		c.EachAttention(func(a *Attention) { a.HeadNorms = true })
	}
	return c
}

func stablelmParams(r *reader, c *Config) *Params {
	return eachLayer(r, outerParams(r, c), func(i int, n string) LayerParams {
		l, a := attentionLayer(r, c, i, n), &c.Layer[i]
		l.AttnNorm = r.norm(n+"attn_norm", c.Hidden)
		if l.FFNNorm = l.AttnNorm; !c.Parallel {
			l.FFNNorm = r.norm(n+"ffn_norm", c.Hidden)
		}
		if a.HeadNorms {
			l.QNorm.W, l.KNorm.W = r.vector(n+"attn_q_norm.weight", a.Heads*a.KeyDim), r.vector(n+"attn_k_norm.weight", a.KVHeads*a.KeyDim)
		}
		r.feedForward(c, &l, n, false)
		return l
	})
}
