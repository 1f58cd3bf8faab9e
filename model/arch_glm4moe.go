package model

// GLM-4.5 and later: a partial rotation, optional norms on each head of q and k, and after the first layers a mixture of experts chosen by
// sigmoids with a bias, beside a network that every token uses. Layers that guess further tokens (nextn) are not read.
func init() {
	registerArchitecture(architecture{config: glm4MoeConfig, params: glm4MoeParams}, "glm4moe")
}

func glm4MoeConfig(r *reader) *Config {
	c := decoderConfig(r)
	r.rmsEps(c)
	r.activation(c, SiLU)
	r.rope(c)
	r.router(c, SigmoidRouter, true)
	c.Router.Bias = c.Experts > 0
	return c
}

func glm4MoeParams(r *reader, c *Config) *Params {
	return eachLayer(r, outerParams(r, c), func(i int, n string) LayerParams {
		l := attentionLayer(r, c, i, n)
		l.AttnNorm, l.FFNNorm = r.norm(n+"attn_norm", c.Hidden), r.norm(n+"post_attention_norm", c.Hidden)
		if r.file.Has(n+"attn_q_norm.weight") || r.file.Has(n+"attn_k_norm.weight") {
			r.headNorms(c, &l, i, n)
		}
		r.feedForward(c, &l, n, c.Layer[i].MoE)
		return l
	})
}
