package model

import (
	"fmt"
	"math"
)

// Gemma 3 (text): embeddings scaled by √D, norms before and after each block, per-head norms on q and k, tanh-GELU, five
// sliding-window layers with a short rotary base to one global layer. attn_logit_softcapping, which configurations inherit
// from Gemma 2, changes nothing: neither Hugging Face's attention nor llama.cpp's applies it.
func init() {
	registerArchitecture(architecture{config: gemma3Config, params: gemma3Params}, "gemma3")
}

func gemma3Config(r *reader) *Config {
	c := decoderConfig(r)
	r.rmsEps(c)
	r.activation(c, GELUTanh)
	// The factor is rounded to bf16 where the weights are; f32 models use it as it is, and so do we.
	c.EmbedScale = float32(math.Sqrt(float64(c.Hidden)))
	c.LogitSoftcap = r.floatOr("final_logit_softcapping", 0)
	r.rope(c)
	window := r.intOr("attention.sliding_window", 0)
	if window <= 0 || r.err() != nil {
		return c
	}
	local := c.Ropes[0]
	local.InvFreq, local.Amplitude = invFreq(float64(r.floatOr("rope.freq_base_swa", 10000)), local.Dim), 0
	c.Ropes = append(c.Ropes, local)
	for i, sliding := range r.slidingPattern(c.Layers, 6) {
		if sliding {
			c.Layer[i].Window, c.Layer[i].Rope = window, 1
		}
	}
	return c
}

// slidingPattern tells which layers use the sliding window: the file's own list or period, else every layer but each
// period-th.
func (r *reader) slidingPattern(layers, period int) []bool {
	out := make([]bool, layers)
	k := r.key("attention.sliding_window_pattern")
	if list, err := r.meta.Ints(k); err == nil {
		if list = r.decoders(list, layers); len(list) != layers {
			r.fail("metadata %q has %d entries for %d layers: %w", k, len(list), layers, ErrConfig)
			return out
		}
		for i, v := range list {
			out[i] = v != 0
		}
		return out
	}
	if r.meta.Has(k) {
		period = r.int("attention.sliding_window_pattern")
	}
	for i := range out {
		out[i] = period == 0 || period > 0 && (i+1)%period != 0
	}
	return out
}

func gemma3Params(r *reader, c *Config) *Params {
	p := decoderParams(r, c)
	for i := range p.Layers {
		n, l := fmt.Sprintf("blk.%d.", i), &p.Layers[i]
		l.QNorm, l.KNorm = r.norm(n+"attn_q_norm", c.Layer[i].KeyDim), r.norm(n+"attn_k_norm", c.Layer[i].KeyDim)
		l.PostAttnNorm = r.norm(n+"post_attention_norm", c.Hidden)
		l.PostFFNNorm = r.norm(n+"post_ffw_norm", c.Hidden)
		if r.faults != nil {
			break
		}
	}
	return p
}
