package model

// DeepSeek V3.2: V3 with an indexer in every layer, whose queries are made of the latent of the layer's own.
func init() {
	registerArchitecture(architecture{config: deepseek32Config, params: deepseek32Params}, "deepseek32")
}

func deepseek32Config(r *reader) *Config {
	c := deepseek2Config(r)
	x := r.indexer(c, 1)
	if x == nil {
		r.int("attention.indexer.head_count") // it says what is missing
		return c
	}
	if x.Latent = r.intOr("attention.q_lora_rank", 0) > 0; !x.Latent {
		r.fail("metadata %q is missing or 0: the indexer's queries are made of that latent: %w", r.key("attention.q_lora_rank"), ErrConfig)
	}
	if len(c.Ropes) > 0 {
		x.Rot = c.Ropes[0].Dim
	}
	c.EachAttention(func(a *Attention) { a.Index = x })
	return c
}

func deepseek32Params(r *reader, c *Config) *Params {
	rank, p := r.intOr("attention.q_lora_rank", 0), deepseek2Params(r, c)
	return eachLayer(r, p, func(i int, n string) LayerParams {
		l, x := p.Layers[i], c.Layer[i].Index
		l.Index = IndexParams{Q: r.linear(n+"indexer.attn_q_b", x.Heads*x.Dim, rank), K: r.linear(n+"indexer.attn_k", x.Dim, c.Hidden),
			Weights: r.linear(n+"indexer.proj", x.Heads, c.Hidden), KNorm: r.norm(n+"indexer.k_norm", x.Dim)}
		return l
	})
}
