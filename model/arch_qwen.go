package model

// Qwen (the first, 2023): the llama decoder with q, k and v fused and biased. The file's feed_forward_length counts gate and
// up together. Its two ways to go beyond the trained length (logn attention, dynamic NTK) change nothing within it and stay
// off, as in llama.cpp.
func init() {
	registerArchitecture(architecture{config: qwenConfig, params: qwenParams}, "qwen")
}

func qwenConfig(r *reader) *Config {
	c := decoderConfig(r)
	r.rmsEps(c)
	r.rope(c)
	return c
}

func qwenParams(r *reader, c *Config) *Params {
	both := r.perLayer("feed_forward_length", c.Layers)
	return eachLayer(r, outerParams(r, c), func(i int, n string) LayerParams {
		l := fusedLayer(r, c, i, n)
		l.Gate, l.Up = r.linear(n+"ffn_gate", both/2, c.Hidden), r.linear(n+"ffn_up", both/2, c.Hidden)
		l.Down = r.linear(n+"ffn_down", c.Hidden, both/2)
		return l
	})
}
