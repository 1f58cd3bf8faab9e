package model

// OLMo 2 and 3: norms stand on what attention and the feed-forward network give, none before them, and q and k are normed over all heads at
// once. OLMo 3 has windows in three of four layers, whose rotation is not scaled.
func init() {
	registerArchitecture(architecture{config: olmo2Config, params: olmo2Params}, "olmo2")
}

func olmo2Config(r *reader) *Config {
	c := decoderConfig(r)
	r.rmsEps(c)
	r.activation(c, SiLU)
	r.rope(c)
	r.windows(c, 4, 0)
	r.slidingRope(c)
	return c
}

func olmo2Params(r *reader, c *Config) *Params {
	return eachLayer(r, outerParams(r, c), func(i int, n string) LayerParams {
		l := postNormed(r, c, i, n)
		r.wideNorms(c, &l, i, n)
		return l
	})
}

// postNormed is a layer whose norms stand on what its blocks give.
func postNormed(r *reader, c *Config, i int, n string) LayerParams {
	l := attentionLayer(r, c, i, n)
	l.PostAttnNorm, l.PostFFNNorm = r.norm(n+"post_attention_norm", c.Hidden), r.norm(n+"post_ffw_norm", c.Hidden)
	r.feedForward(c, &l, n, c.Layer[i].MoE)
	return l
}
