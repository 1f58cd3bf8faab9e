package model

// Qwen 3: Qwen 2 with norms on each head of q and k instead of biases; qwen3moe replaces the feed-forward networks (of all
// layers, or of those that the file says) by a mixture of experts.
func init() {
	registerArchitecture(architecture{config: qwen2Config, params: qwen3Params}, "qwen3")
	registerArchitecture(architecture{config: qwen3MoeConfig, params: qwen3Params}, "qwen3moe")
}

func qwen3MoeConfig(r *reader) *Config {
	c := qwen2Config(r)
	r.mixture(c)
	c.NormTopK = r.normalises(true)
	if c.Experts > 0 {
		for i, moe := range r.flagsOr("terrace.moe.layers", c.Layers, true) {
			c.Layer[i].MoE = moe
		}
	}
	return c
}

func qwen3Params(r *reader, c *Config) *Params { return qkNorms(r, c, decoderParams(r, c)) }
