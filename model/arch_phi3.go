package model

// Phi-3 and Phi-4 (text): the llama decoder with q, k, v fused and gate, up fused; the long-context versions scale each
// frequency by a factor of its own (longrope), of which there are two sets: one for sequences within the original context,
// one beyond. Which set a row gets follows from the length of its sequence (Pass.Len): all rows of a text that is longer than the
// original context get the long set, as in Hugging Face; engines read a text again where it comes to be longer. (llama.cpp takes the
// set for the whole run from the context it was given.) Config.LongRopeAt is the length.
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
	return eachLayer(r, outerParams(r, c), func(i int, n string) LayerParams {
		l := fusedLayer(r, c, i, n)
		l.Gate, l.Up = r.part(n+"ffn_up", 2*width, 0, width, c.Hidden), r.part(n+"ffn_up", 2*width, width, width, c.Hidden)
		l.Down = r.linear(n+"ffn_down", c.Hidden, width)
		return l
	})
}
