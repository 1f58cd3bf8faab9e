package model

// Granite (dense): the llama decoder with four multipliers, on embeddings, scores, block outputs and logits.
func init() {
	registerArchitecture(architecture{config: graniteConfig, params: decoderParams}, "granite")
}

func graniteConfig(r *reader) *Config {
	c := graniteDecoder(r)
	if !r.boolOr("rope.scaling.finetuned", true) { // so files of Granite say that nothing rotates
		c.EachAttention(func(a *Attention) { a.Rope = -1 })
	}
	return c
}

// graniteDecoder is what Granite's models without state have in common.
func graniteDecoder(r *reader) *Config {
	c := decoderConfig(r)
	r.rmsEps(c)
	r.activation(c, SiLU)
	r.rope(c)
	r.graniteScales(c)
	return c
}

// graniteScales reads the four multipliers.
func (r *reader) graniteScales(c *Config) {
	c.EmbedScale = r.floatOr("embedding_scale", 0)
	r.attentionScale(c, 0)
	c.ResidualScale = r.floatOr("residual_scale", 0)
	if s := r.floatOr("logit_scale", 0); s != 0 {
		c.LogitScale = 1 / s // the file's figure divides
	}
}
