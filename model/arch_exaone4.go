package model

// EXAONE 4: norms on what attention and the feed-forward network give, and on each head of q and k; where layers have windows, those without
// do not rotate.
func init() {
	registerArchitecture(architecture{config: exaone4Config, params: exaone4Params}, "exaone4")
}

func exaone4Config(r *reader) *Config {
	c := decoderConfig(r)
	r.rmsEps(c)
	r.activation(c, SiLU)
	r.rope(c)
	r.windows(c, 4, 0)
	if r.intOr("attention.sliding_window", 0) > 0 {
		c.stillWithoutWindow()
	}
	return c
}

// stillWithoutWindow takes the rotation from the layers that have no window.
func (c *Config) stillWithoutWindow() {
	c.EachAttention(func(a *Attention) {
		if a.Window == 0 {
			a.Rope = -1
		}
	})
}

func exaone4Params(r *reader, c *Config) *Params {
	return eachLayer(r, outerParams(r, c), func(i int, n string) LayerParams {
		l := postNormed(r, c, i, n)
		r.headNorms(c, &l, i, n)
		return l
	})
}
