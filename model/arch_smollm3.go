package model

// SmolLM3: the llama decoder in which every fourth layer (or those that the file says) does not rotate q and k.
func init() {
	registerArchitecture(architecture{config: smollm3Config, params: decoderParams}, "smollm3")
}

func smollm3Config(r *reader) *Config {
	c := decoderConfig(r)
	r.rmsEps(c)
	r.activation(c, SiLU)
	r.rope(c)
	r.windows(c, 0, 0)
	const key, interval = "terrace.rope.layers", 4
	rotates := r.flagsOr(key, c.Layers, true)
	for i := range c.Layer {
		if !r.meta.Has(key) {
			rotates[i] = (i+1)%interval != 0
		}
		if !rotates[i] {
			c.Layer[i].Rope = -1
		}
	}
	return c
}
