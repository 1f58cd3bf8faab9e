package model

// Mamba-2: state space layers alone, without attention and feed-forward networks.
func init() {
	registerArchitecture(architecture{config: mamba2Config, params: mamba2Params}, "mamba2")
}

func mamba2Config(r *reader) *Config {
	c := outerConfig(r)
	r.rmsEps(c)
	r.layers(c)
	ssm := r.ssmFigures()
	for i := range c.Layer {
		c.Layer[i].SSM, c.Layer[i].NoFFN = ssm, true
	}
	return c
}

func mamba2Params(r *reader, c *Config) *Params {
	return eachLayer(r, outerParams(r, c), func(i int, n string) LayerParams {
		s := c.Layer[i].SSM
		return LayerParams{AttnNorm: r.norm(n+"attn_norm", c.Hidden), Recurrent: ssmParams(r, c, s, n), O: r.linear(n+"ssm_out", c.Hidden, s.inner())}
	})
}
