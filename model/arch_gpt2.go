package model

// GPT-2: learned positions, LayerNorm, q, k and v fused, biases everywhere, a plain tanh-GELU network.
func init() {
	registerArchitecture(architecture{config: gpt2Config, params: gpt2Params}, "gpt2")
}

func gpt2Config(r *reader) *Config {
	c := decoderConfig(r)
	r.layerEps(c)
	r.activation(c, GELUTanh)
	c.Gated = false
	if r.boolKeyOr("terrace.attention.layer_scale", false) {
		r.fail("scale_attn_by_inverse_layer_idx: %w", ErrFeature)
	}
	return c
}

func gpt2Params(r *reader, c *Config) *Params {
	p := outerParams(r, c)
	p.Positions = r.linear("position_embd", c.Context, c.Hidden)
	return eachLayer(r, p, func(i int, n string) LayerParams {
		l := fusedLayer(r, c, i, n)
		r.feedForward(c, &l, n, false)
		return l
	})
}
