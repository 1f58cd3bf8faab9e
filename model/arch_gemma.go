package model

import "math"

// Gemma (the first): embeddings scaled by √D, tanh-GELU, heads wider than D/H. Norm weights have their +1 already.
func init() {
	registerArchitecture(architecture{config: gemmaConfig, params: decoderParams}, "gemma")
}

func gemmaConfig(r *reader) *Config {
	c := decoderConfig(r)
	r.rmsEps(c)
	r.activation(c, GELUTanh)
	c.EmbedScale = float32(math.Sqrt(float64(c.Hidden)))
	r.rope(c)
	return c
}
