package model

// Llama 4 (text): three of four layers see the keys of their own chunk and rotate, q and k normed without weight after that; the others see all,
// do not rotate, and scale queries by position. Experts take their input times the sigmoid of the router, beside a network that every
// token uses. GGUF files leave out the figures of all this, which are the published models'.
func init() {
	registerArchitecture(architecture{config: llama4Config, params: llama4Params}, "llama4")
}

func llama4Config(r *reader) *Config {
	c := decoderConfig(r)
	r.rmsEps(c)
	r.activation(c, SiLU)
	r.rope(c)
	r.router(c, SigmoidRouter, false)
	c.Router.OnInput = true
	if step := "interleave_moe_layer_step"; r.meta.Has(r.key(step)) {
		every := r.int(step)
		for i := range c.Layer {
			c.Layer[i].MoE = every > 0 && (i+1)%every == 0 && c.Experts > 0
		}
	}
	if c.Experts > 0 && c.Shared == 0 {
		c.Shared = r.expertWidth(c)
	}
	chunk := r.intKeyOr("terrace.attention.chunk", 8192, maxContext)
	heat := Temperature{Scale: r.floatKeyOr("terrace.attention.temperature_scale", 0.1), Every: r.intKeyOr("terrace.attention.temperature_length", 8192, maxContext), From: 1}
	turns, chunked := r.flagsOr("terrace.rope.layers", c.Layers, true), r.flagsOr("terrace.attention.chunked", c.Layers, true)
	for i := range c.Layer {
		a := &c.Layer[i].Attention
		if fourth := (i+1)%4 == 0; fourth && !r.meta.Has("terrace.rope.layers") {
			turns[i], chunked[i] = false, false
		}
		a.NormAfterRope = true
		if chunked[i] {
			a.Chunk = chunk
		}
		if !turns[i] {
			a.Rope, a.Temperature = -1, heat
		}
	}
	return c
}

func llama4Params(r *reader, c *Config) *Params {
	p := decoderParams(r, c)
	if !r.boolKeyOr("terrace.attention.norm", true) {
		return p
	}
	return eachLayer(r, p, func(i int, n string) LayerParams {
		l := p.Layers[i]
		if a := &c.Layer[i]; a.Rope >= 0 {
			l.QNorm.W = onesVector(a.KeyDim)
			l.KNorm.W = l.QNorm.W
		}
		return l
	})
}
