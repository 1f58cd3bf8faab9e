package model

// Command R7B and Command A: attention and the feed-forward network read the same LayerNorm (without bias) side by side; three of four layers
// have a window and rotate, the others see all and do not; logits are scaled.
func init() {
	registerArchitecture(architecture{config: cohere2Config, params: cohere2Params}, "cohere2")
}

func cohere2Config(r *reader) *Config {
	c := decoderConfig(r)
	r.layerEps(c)
	r.activation(c, SiLU)
	c.Parallel = true
	c.LogitScale = r.floatOr("logit_scale", 0)
	r.rope(c)
	r.windows(c, 4, 0)
	c.stillWithoutWindow()
	return c
}

func cohere2Params(r *reader, c *Config) *Params {
	return eachLayer(r, outerParams(r, c), func(i int, n string) LayerParams {
		l := attentionLayer(r, c, i, n)
		l.AttnNorm = r.norm(n+"attn_norm", c.Hidden)
		l.FFNNorm = l.AttnNorm
		r.feedForward(c, &l, n, false)
		return l
	})
}
