package model

import "math"

// Gemma 2: Gemma with norms after each block too, soft caps on scores and logits, and a sliding window in every other layer.
func init() {
	registerArchitecture(architecture{config: gemma2Config, params: gemma2Params}, "gemma2")
}

// The first GGUF files of Gemma 2 have no keys for soft caps and window: what the defaults are for.
//
// gemma2BigLayers tells the 27B model, whose scale is 1/√(D/H): GGUF files of Gemma 2 have no key for it.
const gemma2BigLayers = 46

func gemma2Config(r *reader) *Config {
	c := gemmaConfig(r)
	scale := float32(0)
	if c.Layers == gemma2BigLayers {
		scale = float32(1 / math.Sqrt(float64(c.Hidden/c.Layer[0].Heads)))
	}
	r.attentionScale(c, scale)
	softcap := r.floatOr("attn_logit_softcapping", 50)
	c.EachAttention(func(a *Attention) { a.Softcap = softcap })
	c.LogitSoftcap = r.floatOr("final_logit_softcapping", 30)
	r.windows(c, 2, 4096)
	return c
}

func gemma2Params(r *reader, c *Config) *Params {
	return eachLayer(r, outerParams(r, c), func(i int, n string) LayerParams {
		l := decoderLayer(r, c, i)
		l.PostAttnNorm = r.norm(n+"post_attention_norm", c.Hidden)
		l.PostFFNNorm = r.norm(n+"post_ffw_norm", c.Hidden)
		return l
	})
}
