package model

// Mellum 2: Qwen 3's mixture of experts with windows in layers of the file's choice, whose rotation is not scaled.
func init() {
	registerArchitecture(architecture{config: mellumConfig, params: qwen3Params}, "mellum")
}

func mellumConfig(r *reader) *Config {
	c := decoderConfig(r)
	r.rmsEps(c)
	r.activation(c, SiLU)
	r.rope(c)
	r.windows(c, 4, 0)
	r.slidingRope(c)
	r.router(c, SoftmaxRouter, true)
	return c
}
