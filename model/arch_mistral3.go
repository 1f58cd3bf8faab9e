package model

// Ministral 3: the llama decoder with YaRN, and queries that grow with the logarithm of their position beyond the original context.
func init() {
	registerArchitecture(architecture{config: mistral3Config, params: decoderParams}, "mistral3")
}

func mistral3Config(r *reader) *Config {
	c := decoderConfig(r)
	r.rmsEps(c)
	r.activation(c, SiLU)
	r.rope(c)
	// Files say the method's mscale_all_dim, and mean that mscale is 1; the view of a folder says the factor itself.
	if all := "rope.scaling.yarn_log_multiplier"; r.meta.Has(r.key(all)) && !r.meta.Has("terrace.rope.scaling.attention_factor") && len(c.Ropes) > 0 {
		c.Ropes[0].Amplitude = yarnScale(r.positive("rope.scaling.factor"), 1) / yarnScale(r.positive("rope.scaling.factor"), r.float(all))
		r.checkAmplitude(&c.Ropes[0])
	}
	r.windows(c, 0, 0)
	r.mixture(c)
	if scale := r.floatOr("attention.temperature_scale", 0); scale != 0 {
		heat := Temperature{Scale: scale, Every: r.intOr("attention.temperature_length", 0)}
		if heat.Every == 0 {
			heat.Every = r.original(c)
		}
		c.EachAttention(func(a *Attention) { a.Temperature = heat })
	}
	return c
}
