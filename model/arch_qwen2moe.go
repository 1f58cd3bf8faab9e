package model

// Qwen 1.5 and 2 MoE: Qwen 2 with experts, beside a network whose output is weighed by a sigmoid of its own.
func init() {
	registerArchitecture(architecture{config: qwen2MoeConfig, params: qwen2MoeParams}, "qwen2moe")
}

func qwen2MoeConfig(r *reader) *Config {
	c := qwen2Config(r)
	r.router(c, SoftmaxRouter, false)
	if c.Experts > 0 && c.Shared == 0 {
		c.Shared = r.perLayerOr("feed_forward_length", c.Layers, 0)
	}
	return c
}

func qwen2MoeParams(r *reader, c *Config) *Params {
	p := decoderParams(r, c)
	return eachLayer(r, p, func(i int, n string) LayerParams {
		l := p.Layers[i]
		if c.Layer[i].MoE {
			l.SharedRouter = r.row(n+"ffn_gate_inp_shexp", c.Hidden)
		}
		return l
	})
}
