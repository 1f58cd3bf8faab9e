package model

// Phi-3.5-MoE: LayerNorm with bias, biases everywhere, two experts a token that are taken one after the other (SparseMixer).
func init() {
	registerArchitecture(architecture{config: phimoeConfig, params: decoderParams}, "phimoe")
}

func phimoeConfig(r *reader) *Config {
	c := decoderConfig(r)
	if r.meta.Has(r.key("attention.layer_norm_epsilon")) {
		r.layerEps(c)
	} else { // files of the architecture name the figure of the other norm
		r.rmsEps(c)
		c.Norm = LayerNorm
	}
	r.activation(c, SiLU)
	r.rope(c)
	r.windows(c, 0, 0)
	r.mixture(c)
	c.Router.Score, c.Router.Jitter, c.NormTopK = SparseMixer, r.floatKeyOr("terrace.router.jitter", 0.01), false
	return c
}
