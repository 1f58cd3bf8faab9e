package model

// ERNIE 4.5: the llama decoder with interleaved rotation; ernie4_5-moe has experts, chosen by a softmax with a bias and weighed by it without,
// beside a network that every token uses.
func init() {
	registerArchitecture(architecture{config: ernieConfig, params: decoderParams}, "ernie4_5")
	registerArchitecture(architecture{config: ernieMoeConfig, params: decoderParams}, "ernie4_5-moe")
}

func ernieConfig(r *reader) *Config {
	c := decoderConfig(r)
	r.rmsEps(c)
	r.activation(c, SiLU)
	r.rope(c)
	return c
}

func ernieMoeConfig(r *reader) *Config {
	c := ernieConfig(r)
	r.router(c, SoftmaxRouter, true)
	c.Router.Bias = c.Experts > 0 && r.anyLayerHas(c, "exp_probs_b.bias")
	c.Router.Least = r.floatKeyOr("terrace.router.least", 1e-12)
	step := r.intOr("interleave_moe_layer_step", 1)
	if step < 1 || step > maxLayers {
		r.fail("metadata %q is %d, want 1 to %d: %w", r.key("interleave_moe_layer_step"), step, maxLayers, ErrConfig)
		return c
	}
	for i := range c.Layer {
		c.Layer[i].MoE = c.Layer[i].MoE && (i+1)%step == 0
	}
	return c
}
