package model

// Llama 1 to 3.x, LongChat, SmolLM2 and everything that llama.cpp files under "llama": RMSNorm before each block, rotary
// positions, grouped heads, SwiGLU; with experts it is Mixtral.
func init() {
	registerArchitecture(architecture{config: llamaConfig, params: decoderParams}, "llama")
}

func llamaConfig(r *reader) *Config {
	c := decoderConfig(r)
	r.rmsEps(c)
	r.activation(c, SiLU)
	r.rope(c)
	if len(c.Ropes) > 0 && c.Ropes[0].Dim != c.Layer[0].KeyDim { // llama.cpp refuses it too
		r.fail("metadata %q is %d, want the head width %d: %s rotates whole heads: %w", r.key("rope.dimension_count"), c.Ropes[0].Dim, c.Layer[0].KeyDim, r.arch, ErrFeature)
	}
	r.windows(c, 0, 0) // Mistral
	r.mixture(c)
	return c
}

// mixture reads the figures of a mixture of experts, where the file has any.
func (r *reader) mixture(c *Config) {
	if c.Experts = r.intOr("expert_count", 0); c.Experts == 0 {
		return
	}
	c.TopK, c.NormTopK = r.perLayer("expert_used_count", c.Layers), true
	for i := range c.Layer {
		c.Layer[i].MoE = true
	}
}
