package model

// gpt-oss: windows in every other layer beginning with the first, attention sinks, YaRN with a ramp that is not rounded, biases everywhere,
// experts with a clamped activation. The weights of the chosen experts are a softmax over their logits alone.
func init() {
	registerArchitecture(architecture{config: gptOSSConfig, params: gptOSSParams}, "gpt-oss")
}

func gptOSSConfig(r *reader) *Config {
	c := decoderConfig(r)
	r.rmsEps(c)
	r.activation(c, ClampedSwiGLU)
	c.Clamp = Clamp{Alpha: r.floatKeyOr("terrace.swiglu.alpha", 1.702), Limit: r.floatKeyOr("terrace.swiglu.limit", 7)}
	r.exactRamp = true
	r.rope(c)
	r.windows(c, 2, 0)
	r.router(c, SoftmaxRouter, true)
	return c
}

func gptOSSParams(r *reader, c *Config) *Params {
	return eachLayer(r, outerParams(r, c), func(i int, n string) LayerParams {
		l := attentionLayer(r, c, i, n)
		l.AttnNorm, l.FFNNorm = r.norm(n+"attn_norm", c.Hidden), r.norm(n+"post_attention_norm", c.Hidden)
		r.sinks(c, &l, i, n)
		r.feedForward(c, &l, n, c.Layer[i].MoE)
		return l
	})
}
