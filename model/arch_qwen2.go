package model

// Qwen 2 and 2.5: the llama decoder with biases on q, k and v, and a sliding window that none of the released models uses.
func init() {
	registerArchitecture(architecture{config: qwen2Config, params: decoderParams}, "qwen2")
}

func qwen2Config(r *reader) *Config {
	c := decoderConfig(r)
	r.rmsEps(c)
	r.activation(c, SiLU)
	r.rope(c)
	r.windows(c, 0, 0)
	return c
}
