package model

// MiniMax-M2: norms over all heads of q and of k at once, a partial rotation, experts chosen by sigmoids with a bias.
func init() {
	registerArchitecture(architecture{config: minimaxConfig, params: minimaxParams}, "minimax-m2")
}

func minimaxConfig(r *reader) *Config {
	c := decoderConfig(r)
	r.rmsEps(c)
	r.activation(c, SiLU)
	r.rope(c)
	r.router(c, SigmoidRouter, true)
	c.Router.Bias = c.Experts > 0
	return c
}

func minimaxParams(r *reader, c *Config) *Params {
	p := decoderParams(r, c)
	return eachLayer(r, p, func(i int, n string) LayerParams {
		l := p.Layers[i]
		r.wideNorms(c, &l, i, n)
		return l
	})
}
