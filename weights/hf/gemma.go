package hf

import "math"

// The Gemma family: norm weights are stored less one (presented as GGUF has them, with it), embeddings scaled by √D (not a
// key: it is part of the architecture), Gemma 2 and 3 with norms on both sides of each block and alternating windows.
func init() {
	register("gemma", family{"gemma", gemmaFigures, gemmaTensors})
	register("gemma2", family{"gemma2", gemma2Figures, gemma2Tensors})
	register("gemma3_text", family{"gemma3", gemma3Figures, gemma2Tensors})
}

func gemmaBasics(v *view, d defaults) bool {
	d.headDim, d.eps, d.tied, d.numbers = 256, 1e-6, true, true
	if !v.figures(usualNames, d) {
		return false
	}
	key := "hidden_activation"
	if v.arch == "gemma" && !v.cfg.has(key) { // the later classes do not read hidden_act
		key = "hidden_act"
	}
	// Early configs of Gemma 1 say "gelu" and mean the tanh form, which is what the model was trained with.
	if v.arch != "gemma" || v.cfg.stringOr(key, "") != "gelu" {
		v.activation(key, "gelu_pytorch_tanh")
	}
	if v.cfg.boolOr("use_bidirectional_attention", false) {
		v.faults.add("%s: use_bidirectional_attention is not supported (an encoder): %w", v.cfg.where, ErrConfig)
	}
	return len(v.faults.list) == 0
}

func gemmaFigures(v *view) {
	if gemmaBasics(v, defaults{kvHeads: 16, context: 8192}) {
		v.rope(10000)
	}
}

// gemmaAttention reads the scale of the scores and the sliding window of Gemma 2 and 3.
func gemmaAttention(v *view) {
	v.setFloat("attention.scale", 1/math.Sqrt(v.cfg.floatOr("query_pre_attn_scalar", 256, 1e-3, 1e6)))
	v.window(4096)
}

// softcap publishes a soft cap, 0 where the config has a null (GGUF's default may be another).
func (v *view) softcap(key string, def float64) {
	if v.cfg.null(key) {
		v.setFloat(key, 0)
		return
	}
	if x := v.cfg.floatOr(key, def, 0, 1e6); x > 0 {
		v.setFloat(key, x)
	}
}

func gemma2Figures(v *view) {
	if !gemmaBasics(v, defaults{kvHeads: 4, context: 8192}) {
		return
	}
	v.rope(10000)
	gemmaAttention(v)
	v.softcap("attn_logit_softcapping", 50)
	v.softcap("final_logit_softcapping", 30)
	gemmaPattern(v, 2)
}

// gemmaPattern publishes which layers slide: layer_types, else all but each period-th.
func gemmaPattern(v *view, period int) {
	sliding := v.layerTypes()
	if sliding == nil {
		sliding = make([]bool, v.layers)
		for i := range sliding {
			sliding[i] = (i+1)%period != 0
		}
	}
	v.slidingLayers(sliding)
}

func gemma3Figures(v *view) {
	// The text part of a multimodal config leaves out what has the default of its class.
	if !gemmaBasics(v, defaults{heads: 8, kvHeads: 4, vocab: 262208, context: 131072}) {
		return
	}
	v.rope(1e6)
	local := v.rotary("sliding_attention", "rope_local_base_freq", 10000)
	if !v.cfg.has("rope_parameters") || v.cfg.has("rope_scaling") { // classic: rope_scaling is for the global layers alone
		local.theta, local.method = v.cfg.floatOr("rope_local_base_freq", 10000, 1, maxTheta), "default"
	}
	if local.method != "default" {
		local.params.wrong("rope_type", "default (the only one supported for sliding layers)")
	}
	v.setFloat("rope.freq_base_swa", local.theta)
	gemmaAttention(v)
	v.softcap("final_logit_softcapping", 0) // on scores it has no effect in Gemma 3
	gemmaPattern(v, v.cfg.period("sliding_window_pattern", 6, maxLayers))
}

func gemmaTensors(v *view) {
	bias := v.cfg.boolOr("attention_bias", false)
	v.outer(1)
	v.eachLayer("model.layers.", func(i int, name, hfName string) {
		v.attention(i, name, hfName, bias, bias)
		v.blockNorms(i, name, hfName, 1)
		v.gatedFFN(i, name, hfName+"mlp.", v.ffn, false)
	})
}

// gemma2Tensors is for Gemma 2 and 3: four norms a layer, and per-head norms of q and k in Gemma 3.
func gemma2Tensors(v *view) {
	bias := v.cfg.boolOr("attention_bias", false)
	v.outer(1)
	v.eachLayer("model.layers.", func(i int, name, hfName string) {
		v.attention(i, name, hfName, bias, bias)
		if v.arch == "gemma3" {
			v.qkNorms(i, name, hfName, 1)
		}
		v.vector(name+"attn_norm.weight", hfName+"input_layernorm.weight", i, v.hidden, 1)
		v.vector(name+"post_attention_norm.weight", hfName+"post_attention_layernorm.weight", i, v.hidden, 1)
		v.vector(name+"ffn_norm.weight", hfName+"pre_feedforward_layernorm.weight", i, v.hidden, 1)
		v.vector(name+"post_ffw_norm.weight", hfName+"post_feedforward_layernorm.weight", i, v.hidden, 1)
		v.gatedFFN(i, name, hfName+"mlp.", v.ffn, false)
	})
}
