package model

// Seed-OSS: the llama decoder with biases on q, k and v; post_attention_norm is the norm before the feed-forward network.
func init() {
	registerArchitecture(architecture{config: glm4Config, params: seedOSSParams}, "seed_oss")
}

func seedOSSParams(r *reader, c *Config) *Params {
	return eachLayer(r, outerParams(r, c), func(i int, n string) LayerParams {
		l := attentionLayer(r, c, i, n)
		l.AttnNorm, l.FFNNorm = r.norm(n+"attn_norm", c.Hidden), r.norm(n+"post_attention_norm", c.Hidden)
		r.feedForward(c, &l, n, false)
		return l
	})
}
