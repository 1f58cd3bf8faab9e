package model

// Granite MoE: Granite with experts, weighed by a softmax over the chosen, and in some versions a network beside them. granite_swa is dense and
// has windows, sinks, and layers that do not rotate.
func init() {
	registerArchitecture(architecture{config: graniteMoeConfig, params: decoderParams}, "granitemoe")
	registerArchitecture(architecture{config: graniteSWAConfig, params: graniteSWAParams}, "granite_swa")
}

func graniteMoeConfig(r *reader) *Config {
	c := graniteDecoder(r)
	r.router(c, SoftmaxRouter, true)
	return c
}

func graniteSWAConfig(r *reader) *Config {
	c := graniteDecoder(r)
	r.windows(c, 0, 0)
	r.layerBases(c)
	if pattern := "attention.rope_pattern"; r.meta.Has(r.key(pattern)) {
		for i, rotates := range r.flagsOr(r.key(pattern), c.Layers, true) {
			if !rotates {
				c.Layer[i].Rope = -1
			}
		}
	}
	return c
}

func graniteSWAParams(r *reader, c *Config) *Params {
	p := decoderParams(r, c)
	return eachLayer(r, p, func(i int, n string) LayerParams {
		l := p.Layers[i]
		r.sinks(c, &l, i, n)
		return l
	})
}
