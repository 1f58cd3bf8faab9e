package model

// Phi-3 and Phi-4 (text): the llama decoder with q, k, v fused and gate, up fused; the long-context versions scale each
// frequency by a factor of its own (longrope).
func init() {
	registerArchitecture(architecture{config: phi3Config, params: phi3Params}, "phi3")
}

func phi3Config(r *reader) *Config {
	c := decoderConfig(r)
	r.rmsEps(c)
	r.activation(c, SiLU)
	r.rope(c)
	r.windows(c, 0, 0)
	return c
}

func phi3Params(r *reader, c *Config) *Params {
	width := r.perLayer("feed_forward_length", c.Layers)
	return eachLayer(r, outerParams(r, c), func(_ int, n string) LayerParams {
		l := fusedLayer(r, c, n)
		l.Gate, l.Up = r.part(n+"ffn_up", 2*width, 0, width, c.Hidden), r.part(n+"ffn_up", 2*width, width, width, c.Hidden)
		l.Down = r.linear(n+"ffn_down", c.Hidden, width)
		return l
	})
}
