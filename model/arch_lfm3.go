package model

// LFM3: LFM2's short convolutions and attention, with norms behind each block too, a sigmoid gate for each head, windows, and in the layers
// without one a rotation of a part of each head (rope_freqs).
func init() {
	registerArchitecture(architecture{config: lfm3Config, params: lfm3Params}, "lfm3")
}

func lfm3Config(r *reader) *Config {
	c := lfm2Config(r)
	r.windows(c, 0, 0)
	r.slidingRope(c)
	gated := r.anyLayerHas(c, "attn_gate.weight")
	for i := range c.Layer {
		if l := &c.Layer[i]; l.Heads > 0 && gated {
			l.Gate = SigmoidGate
		}
	}
	return c
}

func lfm3Params(r *reader, c *Config) *Params {
	p := lfm2Params(r, c)
	return eachLayer(r, p, func(i int, n string) LayerParams {
		l := p.Layers[i]
		if r.file.Has(n + "post_attention_norm.weight") {
			l.PostAttnNorm, l.PostFFNNorm = r.norm(n+"post_attention_norm", c.Hidden), r.norm(n+"post_ffw_norm", c.Hidden)
		}
		if a := &c.Layer[i].Attention; a.Gate != NoGate {
			l.OutGate = r.linear(n+"attn_gate", a.Heads, c.Hidden)
		}
		return l
	})
}
