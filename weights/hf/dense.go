package hf

import (
	"math"
	"strings"
)

// Dense families on the shared blocks.
func init() {
	register("ministral3", family{"mistral3", ministral3Figures, plainTensors})
	register("olmo2", family{"olmo2", olmo2Figures, postNormTensors})
	register("olmo3", family{"olmo2", olmo3Figures, postNormTensors})
	register("exaone4", family{"exaone4", exaone4Figures, postNormTensors})
	register("glm4", family{"glm4", glm4Figures, glm4Tensors})
	register("ernie4_5", family{"ernie4_5", ernieFigures, plainTensors})
	register("seed_oss", family{"seed_oss", seedOSSFigures, seedOSSTensors})
	register("hunyuan_v1_dense", family{"hunyuan-dense", hunyuanFigures, hunyuanTensors})
	register("granite_swa", family{"granite_swa", graniteSWAFigures, graniteSWATensors})
}

func ministral3Figures(v *view) {
	v.ropeOfClass(`{"rope_type": "yarn", "rope_theta": 1e6, "factor": 16, "original_max_position_embeddings": 16384, "beta_fast": 32, "beta_slow": 1, "mscale_all_dim": 1, "mscale": 1, "llama_4_scaling_beta": 0.1}`)
	if !llamaBasics(v, defaults{heads: 32, kvHeads: 8, headDim: 128, context: 262144, eps: 1e-5}, 10000) {
		return
	}
	v.window(0)
	r := v.rotary("full_attention", "rope_theta", 10000)
	if beta := r.params.floatOr("llama_4_scaling_beta", 0, 0, 1e3); beta > 0 {
		v.setFloat("attention.temperature_scale", beta)
		v.setInt("attention.temperature_length", v.original(r))
	}
}

// plainTensors are those of llama: a norm before each block, and biases by the config's flags.
func plainTensors(v *view) {
	bias := v.cfg.boolOr("use_bias", false)
	attention := bias || v.cfg.boolOr("attention_bias", false)
	v.outer(0)
	v.eachLayer("model.layers.", func(i int, name, hfName string) {
		v.attention(i, name, hfName, attention, attention)
		v.blockNorms(i, name, hfName, 0)
		v.gatedFFN(i, name, hfName+"mlp.", v.ffn, bias || v.cfg.boolOr("mlp_bias", false))
	})
}

func olmo2Figures(v *view) {
	if v.figures(usualNames, defaults{context: 2048, eps: 1e-5}) {
		v.activation("hidden_act", "silu")
		v.rope(10000)
	}
}

func olmo3Figures(v *view) {
	if !v.figures(usualNames, defaults{context: 2048, eps: 1e-5}) {
		return
	}
	v.activation("hidden_act", "silu")
	v.rope(500000)
	v.slidingRope(500000)
	v.window(4096)
	v.windowLayers(butEach(4))
}

func exaone4Figures(v *view) {
	if !v.figures(usualNames, defaults{kvHeads: 32, context: 2048, eps: 1e-5}) {
		return
	}
	v.activation("hidden_act", "silu")
	v.rope(10000)
	v.window(4096)
	if v.cfg.has("layer_types") || v.published("attention.sliding_window") == 0 {
		v.windowLayers(nil)
		return
	}
	const key = "sliding_window_pattern"
	pattern, isText := v.cfg.values[key].(string) // LLLG
	if !isText {
		v.windowLayers(butEach(v.cfg.period(key, 4, maxLayers)))
		return
	}
	if pattern == "" || strings.Trim(pattern, "LG") != "" {
		v.cfg.wrong(key, "an integer or letters L and G")
		return
	}
	v.windowLayers(func(i int) bool { return pattern[i%len(pattern)] == 'L' })
}

// postNormTensors is for layers whose norms stand on what their blocks give; q and k are normed over all heads in OLMo, each head in EXAONE.
func postNormTensors(v *view) {
	bias := v.arch == "olmo2" && v.cfg.boolOr("attention_bias", false)
	q, k := v.heads*v.headDim, v.kvHeads*v.headDim
	if v.arch == "exaone4" {
		q, k = v.headDim, v.headDim
	}
	v.outer(0)
	v.eachLayer("model.layers.", func(i int, name, hfName string) {
		v.attention(i, name, hfName, bias, bias)
		v.vector(name+"attn_q_norm.weight", hfName+"self_attn.q_norm.weight", i, q, 0)
		v.vector(name+"attn_k_norm.weight", hfName+"self_attn.k_norm.weight", i, k, 0)
		v.vector(name+"post_attention_norm.weight", hfName+"post_attention_layernorm.weight", i, v.hidden, 0)
		v.vector(name+"post_ffw_norm.weight", hfName+"post_feedforward_layernorm.weight", i, v.hidden, 0)
		v.gatedFFN(i, name, hfName+"mlp.", v.ffn, false)
	})
}

func glm4Figures(v *view) {
	if v.figures(usualNames, defaults{heads: 32, kvHeads: 2, headDim: 128, context: 131072, eps: 1.5625e-7}) {
		v.activation("hidden_act", "silu")
		v.rope(10000)
	}
}

func glm4Tensors(v *view) {
	bias := v.cfg.boolOr("attention_bias", true)
	v.outer(0)
	v.eachLayer("model.layers.", func(i int, name, hfName string) {
		v.attention(i, name, hfName, bias, false)
		v.vector(name+"attn_norm.weight", hfName+"input_layernorm.weight", i, v.hidden, 0)
		v.vector(name+"post_attention_norm.weight", hfName+"post_self_attn_layernorm.weight", i, v.hidden, 0)
		v.vector(name+"ffn_norm.weight", hfName+"post_attention_layernorm.weight", i, v.hidden, 0)
		v.vector(name+"post_ffw_norm.weight", hfName+"post_mlp_layernorm.weight", i, v.hidden, 0)
		v.linear(name+"ffn_up", hfName+"mlp.gate_up_proj", i, 2*v.ffn, v.hidden, false)
		v.linear(name+"ffn_down", hfName+"mlp.down_proj", i, v.hidden, v.ffn, false)
	})
}

func ernieFigures(v *view) {
	if v.figures(usualNames, defaults{heads: 16, kvHeads: 2, headDim: 128, context: 131072, eps: 1e-5, tied: true}) {
		v.activation("hidden_act", "silu")
		v.rope(500000)
	}
}

func seedOSSFigures(v *view) {
	if v.figures(usualNames, defaults{heads: 80, kvHeads: 8, headDim: 128, context: 524288, eps: 1e-6}) {
		v.activation("hidden_act", "silu")
		v.rope(10000)
	}
}

func seedOSSTensors(v *view) {
	bias, out := v.cfg.boolOr("attention_bias", true), v.cfg.boolOr("attention_out_bias", false)
	v.outer(0)
	v.eachLayer("model.layers.", func(i int, name, hfName string) {
		v.attention(i, name, hfName, bias, out)
		v.vector(name+"attn_norm.weight", hfName+"input_layernorm.weight", i, v.hidden, 0)
		v.vector(name+"post_attention_norm.weight", hfName+"post_attention_layernorm.weight", i, v.hidden, 0)
		v.gatedFFN(i, name, hfName+"mlp.", v.ffn, v.cfg.boolOr("mlp_bias", false))
	})
}

// hunyuanFigures: scaling by "dynamic" with an alpha is a larger base, whatever the length.
func hunyuanFigures(v *view) {
	if !v.figures(usualNames, defaults{context: 2048, eps: 1e-5}) {
		return
	}
	v.activation("hidden_act", "silu")
	r := v.rotary("full_attention", "rope_theta", 10000)
	if alpha := r.params.floatOr("alpha", 0, 0, maxFactor); r.method == "dynamic" && alpha > 0 {
		v.refuseUnless(v.headDim > 2, "scaling by alpha needs a head_dim above 2")
		d := float64(v.headDim)
		r.theta, r.method = r.theta*math.Pow(alpha, d/(d-2)), "default"
	}
	v.publishRope(r)
}

func hunyuanTensors(v *view) {
	bias := v.cfg.boolOr("attention_bias", false)
	v.outer(0)
	v.eachLayer("model.layers.", func(i int, name, hfName string) {
		v.attention(i, name, hfName, bias, bias)
		v.vector(name+"attn_q_norm.weight", hfName+"self_attn.query_layernorm.weight", i, v.headDim, 0)
		v.vector(name+"attn_k_norm.weight", hfName+"self_attn.key_layernorm.weight", i, v.headDim, 0)
		v.blockNorms(i, name, hfName, 0)
		v.gatedFFN(i, name, hfName+"mlp.", v.ffn, false)
	})
}

// graniteSWAFigures: the layers rotate by layer_rope_theta alone, where there is one; 0 = the layer does not.
func graniteSWAFigures(v *view) {
	graniteFigures(v)
	if len(v.faults.list) > 0 {
		return
	}
	v.window(128)
	v.windowLayers(func(i int) bool { return i%4 != 0 })
	const key = "layer_rope_theta"
	if v.cfg.has(key) {
		bases := v.cfg.numbers(key, v.layers, 0, maxTheta)
		for _, b := range bases {
			v.refuseUnless(b == 0 || b >= 1, "%s has %g, want 0 or 1 and more", key, b)
		}
		v.setOurs("rope.bases", bases)
		rotates := make([]int32, len(bases))
		for i, b := range bases {
			if b > 0 {
				rotates[i] = 1
				v.setFloat("rope.freq_base", float64(b))
			}
		}
		v.set("attention.rope_pattern", rotates)
	}
}

func graniteSWATensors(v *view) {
	llamaTensors(v)
	if len(v.faults.list) > 0 {
		return
	}
	v.eachLayer("model.layers.", func(i int, name, hfName string) {
		v.vector(name+"attn_sinks.weight", hfName+"self_attn.sinks", i, v.heads, 0)
	})
}
