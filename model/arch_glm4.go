package model

// GLM-4 (0414): norms before and after each block, a rotation of interleaved pairs in a part of each head, gate and up in one tensor.
func init() {
	registerArchitecture(architecture{config: glm4Config, params: glm4Params}, "glm4")
}

func glm4Config(r *reader) *Config {
	c := decoderConfig(r)
	r.rmsEps(c)
	r.activation(c, SiLU)
	r.rope(c)
	return c
}

func glm4Params(r *reader, c *Config) *Params {
	width := r.perLayer("feed_forward_length", c.Layers)
	return eachLayer(r, outerParams(r, c), func(i int, n string) LayerParams {
		l := attentionLayer(r, c, i, n)
		l.AttnNorm, l.PostAttnNorm = r.norm(n+"attn_norm", c.Hidden), r.norm(n+"post_attention_norm", c.Hidden)
		l.FFNNorm, l.PostFFNNorm = r.norm(n+"ffn_norm", c.Hidden), r.norm(n+"post_ffw_norm", c.Hidden)
		l.Gate, l.Up = r.part(n+"ffn_up", 2*width, 0, width, c.Hidden), r.part(n+"ffn_up", 2*width, width, width, c.Hidden)
		l.Down = r.linear(n+"ffn_down", c.Hidden, width)
		return l
	})
}
