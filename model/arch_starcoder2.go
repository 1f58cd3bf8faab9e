package model

// StarCoder 2: LayerNorm, biases, and a tanh-GELU network without a gate.
func init() {
	registerArchitecture(architecture{config: starcoder2Config, params: decoderParams}, "starcoder2")
}

func starcoder2Config(r *reader) *Config {
	c := decoderConfig(r)
	r.layerEps(c)
	r.activation(c, GELUTanh)
	c.Gated = false
	r.rope(c)
	r.windows(c, 0, 0)
	return c
}
