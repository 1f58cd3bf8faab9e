package hf

import "math"

// Gemma 3n (text): Gemma 4's windows, shared keys and per-layer inputs on rows of several streams.
func init() {
	register("gemma3n_text", family{"gemma3n", gemma3nFigures, gemma3nTensors})
	aliases["gemma3n"] = "gemma3n_text"
}

const maxStreams = 16

func gemma3nFigures(v *view) {
	n := usualNames
	n.ffn = ""
	if !gemmaLate(v, defaults{heads: 8, kvHeads: 2, headDim: 256, vocab: 262400, context: 32768}, n, 512, 256) {
		return
	}
	c := v.cfg
	v.softcap("final_logit_softcapping", 30)
	v.rope(1e6)
	near := v.rotary("sliding_attention", "rope_local_base_freq", 10000)
	if !c.has("rope_parameters") || c.has("rope_scaling") { // classic: rope_scaling is for the layers without a window
		near.theta, near.method = c.floatOr("rope_local_base_freq", 10000, 1, maxTheta), "default"
	}
	v.nearRope(near)
	v.shared(15, v.slides(5, false))
	v.set("feed_forward_length", v.widths("intermediate_size", 16384))
	streams := c.intOr("altup_num_inputs", 4, 2, maxStreams)
	v.setInt("altup.num_inputs", streams)
	v.setInt("altup.active_idx", c.intOr("altup_active_idx", 0, 0, streams-1))
	v.sparsity()
}

// widths reads one width for all layers or one for each.
func (v *view) widths(key string, def int) []int32 {
	out := make([]int32, v.layers)
	if _, isList := v.cfg.values[key].([]any); !isList {
		n := v.cfg.intOr(key, def, 1, maxWidth)
		for i := range out {
			out[i] = int32(n)
		}
		return out
	}
	for i, x := range v.cfg.numbers(key, v.layers, 1, maxWidth) {
		out[i] = int32(x)
	}
	return out
}

// sparsity publishes how many standard deviations above their mean the gates of a layer must be to stay: the quantile of the normal distribution
// at its share of activation_sparsity_pattern, −∞ where that is 0.
func (v *view) sparsity() {
	const key = "activation_sparsity_pattern"
	var shares []float32
	switch {
	case v.cfg.has(key):
		shares = v.cfg.numbers(key, v.layers, 0, 0.999999)
	case v.layers > 10: // the class's own
		shares = make([]float32, v.layers)
		for i := range 10 {
			shares[i] = 0.95
		}
	}
	if shares == nil {
		return
	}
	out := make([]float32, v.layers)
	for i, s := range shares {
		out[i] = float32(math.Sqrt2 * math.Erfinv(2*float64(s)-1))
	}
	v.set("activation_sparsity_scale", out)
}

func gemma3nTensors(v *view) {
	bias, scaled, streams := v.cfg.boolOr("attention_bias", false), v.cfg.boolOr("altup_correct_scale", true), v.published("altup.num_inputs")
	rank, own := v.cfg.intOr("laurel_rank", 64, 1, maxWidth), v.layers-v.published("attention.shared_kv_layers")
	widths, err := v.meta.Ints("gemma3n.feed_forward_length")
	if err != nil {
		v.faults.add("%w", err)
		return
	}
	v.outer(0)
	v.perLayerOuter()
	v.stack("altup_proj.weight", "model.altup_projections.%d.weight", -1, streams-1, v.hidden, v.hidden)
	v.stack("altup_unembd_proj.weight", "model.altup_unembed_projections.%d.weight", -1, streams-1, v.hidden, v.hidden)
	v.eachLayer("model.layers.", func(i int, name, hfName string) {
		v.sharingAttention(i, name, hfName, bias, i < own, true)
		v.gatedFFN(i, name, hfName+"mlp.", widths[i], false)
		v.perLayerInputs(i, name, hfName)
		up, laurel := hfName+"altup.", hfName+"laurel."
		v.matrix(name+"altup_router.weight", up+"modality_router.weight", i, streams, v.hidden)
		v.vector(name+"altup_router_norm.weight", up+"router_norm.weight", i, v.hidden, 0)
		v.matrix(name+"altup_predict_coef.weight", up+"prediction_coefs.weight", i, streams*streams, streams)
		v.matrix(name+"altup_correct_coef.weight", up+"correction_coefs.weight", i, streams, streams)
		if scaled {
			v.vector(name+"altup_correct_scale.weight", up+"correct_output_scale", i, v.hidden, 0)
		}
		v.matrix(name+"laurel_l.weight", laurel+"linear_left.weight", i, rank, v.hidden)
		v.matrix(name+"laurel_r.weight", laurel+"linear_right.weight", i, v.hidden, rank)
		v.vector(name+"laurel_post_norm.weight", laurel+"post_laurel_norm.weight", i, v.hidden, 0)
	})
}
