package model

// Falcon-H1: attention and Mamba-2 side by side in each layer, on one norm. GGUF files have its multipliers folded into the weights.
func init() {
	registerArchitecture(architecture{config: falconH1Config, params: falconH1Params}, "falcon-h1")
}

func falconH1Config(r *reader) *Config {
	c := decoderConfig(r)
	r.rmsEps(c)
	r.activation(c, SiLU)
	r.rope(c)
	c.EmbedScale, c.LogitScale = r.floatOr("embedding_scale", 0), r.floatOr("logit_scale", 0)
	ssm := r.ssmFigures()
	switch {
	case !r.anyLayerHas(c, "ssm_norm.weight"):
		ssm.Norm = NoSSMNorm
	case r.boolKeyOr("terrace.ssm.norm_before_gate", false):
		ssm.Norm = NormThenGate
	}
	for i := range c.Layer {
		c.Layer[i].SSM = ssm
	}
	return c
}

func falconH1Params(r *reader, c *Config) *Params {
	return eachLayer(r, outerParams(r, c), func(i int, n string) LayerParams {
		l := attentionLayer(r, c, i, n)
		l.AttnNorm = r.norm(n+"attn_norm", c.Hidden)
		if name := n + "ffn_norm"; r.file.Has(name) { // as llama.cpp's converter writes it
			l.FFNNorm.W = r.vector(name, c.Hidden)
		} else {
			l.FFNNorm = r.norm(name, c.Hidden)
		}
		s := c.Layer[i].SSM
		l.Recurrent = ssmParams(r, c, s, n)
		l.Recurrent.Out = r.linear(n+"ssm_out", c.Hidden, s.inner())
		r.feedForward(c, &l, n, false)
		return l
	})
}
