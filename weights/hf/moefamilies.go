package hf

// Families with experts on the shared blocks.
func init() {
	register("glm4_moe", family{"glm4moe", glm4MoeFigures, glm4MoeTensors})
	register("qwen2_moe", family{"qwen2moe", qwen2MoeFigures, qwen2MoeTensors})
	register("ernie4_5_moe", family{"ernie4_5-moe", ernieMoeFigures, ernieMoeTensors})
	register("granitemoe", family{"granitemoe", graniteMoeFigures, graniteMoeTensors})
	register("minimax_m2", family{"minimax-m2", minimaxFigures, minimaxTensors})
	register("mellum", family{"mellum", mellumFigures, mellumTensors})
	register("laguna", family{"laguna", lagunaFigures, lagunaTensors})
	register("phimoe", family{"phimoe", phimoeFigures, phimoeTensors})
}

const sigmoidGating = 2 // GGUF's expert_gating_func

func glm4MoeFigures(v *view) {
	if !v.figures(usualNames, defaults{heads: 96, kvHeads: 8, headDim: 128, context: 131072, eps: 1e-5}) {
		return
	}
	v.activation("hidden_act", "silu")
	v.rope(10000)
	v.expertsFrom("n_routed_experts", "num_experts_per_tok", 128, 8)
	v.expertWidth("moe_intermediate_size", 1408)
	v.setInt("expert_shared_count", v.cfg.intOr("n_shared_experts", 1, 0, maxExperts))
	v.setInt("leading_dense_block_count", v.cfg.intOr("first_k_dense_replace", 1, 0, v.layers))
	v.groups(1, 1)
	v.weighing(true, 1)
	v.spare = v.cfg.intOr("num_nextn_predict_layers", 0, 0, maxLayers)
}

// groups publishes the groups that experts are chosen by.
func (v *view) groups(def, usedDef int) {
	v.setInt("expert_group_count", v.cfg.intOr("n_group", def, 1, maxExperts))
	v.setInt("expert_group_used_count", v.cfg.intOr("topk_group", usedDef, 1, maxExperts))
}

// weighing publishes how the weights of a router of sigmoids are made.
func (v *view) weighing(normalised bool, scale float64) {
	v.setInt("expert_gating_func", sigmoidGating)
	v.set("expert_weights_norm", v.cfg.boolOr("norm_topk_prob", normalised))
	v.setFloat("expert_weights_scale", v.cfg.floatOr("routed_scaling_factor", scale, 1e-6, 1e6))
}

func glm4MoeTensors(v *view) {
	bias, experts := v.cfg.boolOr("attention_bias", false), v.published("expert_count")
	shared := v.published("expert_shared_count") * v.published("expert_feed_forward_length")
	v.outer(0)
	v.eachLayer("model.layers.", func(i int, name, hfName string) {
		v.attention(i, name, hfName, bias, false)
		if v.cfg.boolOr("use_qk_norm", false) {
			v.qkNorms(i, name, hfName, 0)
		}
		v.vector(name+"attn_norm.weight", hfName+"input_layernorm.weight", i, v.hidden, 0)
		v.vector(name+"post_attention_norm.weight", hfName+"post_attention_layernorm.weight", i, v.hidden, 0)
		mlp := hfName + "mlp."
		if !v.mixes(i) {
			v.gatedFFN(i, name, mlp, v.ffn, false)
			return
		}
		v.matrix(name+"ffn_gate_inp.weight", mlp+"gate.weight", i, experts, v.hidden)
		v.choiceBias(i, name, mlp+"gate.e_score_correction_bias")
		v.expertStacks(i, name, mlp+"experts.", projections)
		if shared > 0 {
			v.sharedExpert(i, name, mlp+"shared_experts.", shared, false)
		}
	})
}

func qwen2MoeFigures(v *view) {
	if !v.figures(usualNames, defaults{heads: 16, kvHeads: 16, context: 32768, eps: 1e-6}) {
		return
	}
	v.activation("hidden_act", "silu")
	v.rope(10000)
	v.slidingTail()
	v.experts(60, 4)
	v.expertWidth("moe_intermediate_size", 1408)
	v.setInt("expert_shared_feed_forward_length", v.cfg.intOr("shared_expert_intermediate_size", 5632, 1, maxWidth))
	v.set("expert_weights_norm", v.cfg.boolOr("norm_topk_prob", false))
	v.moeLayers()
}

func qwen2MoeTensors(v *view) {
	bias, experts, shared := v.cfg.boolOr("qkv_bias", true), v.published("expert_count"), v.published("expert_shared_feed_forward_length")
	v.outer(0)
	v.eachLayer("model.layers.", func(i int, name, hfName string) {
		v.attention(i, name, hfName, bias, false)
		v.blockNorms(i, name, hfName, 0)
		mlp := hfName + "mlp."
		if !v.mixes(i) {
			v.gatedFFN(i, name, mlp, v.ffn, false)
			return
		}
		v.matrix(name+"ffn_gate_inp.weight", mlp+"gate.weight", i, experts, v.hidden)
		v.expertStacks(i, name, mlp+"experts.", projections)
		v.sharedExpert(i, name, mlp+"shared_expert.", shared, false)
		v.matrix(name+"ffn_gate_inp_shexp.weight", mlp+"shared_expert_gate.weight", i, 1, v.hidden)
	})
}

func ernieMoeFigures(v *view) {
	if !v.figures(usualNames, defaults{heads: 20, kvHeads: 4, context: 131072, eps: 1e-5, tied: true}) {
		return
	}
	v.activation("hidden_act", "silu")
	v.rope(500000)
	v.expertsFrom("moe_num_experts", "moe_k", 64, 6)
	v.expertWidth("moe_intermediate_size", 1536)
	v.setInt("expert_shared_count", v.cfg.intOr("moe_num_shared_experts", 2, 0, maxExperts))
	v.setOurs("router.least", float32(v.cfg.floatOr("moe_norm_min", 1e-12, 0, 1e6)))
	first, last := v.cfg.intOr("moe_layer_start_index", 1, 0, maxLayers), v.cfg.intOr("moe_layer_end_index", -1, -1, maxLayers)
	step := v.cfg.period("moe_layer_interval", 1, maxLayers)
	if last < 0 {
		last = v.layers - 1
	}
	v.mixingLayers(func(i int) bool { return (i+1)%step == 0 && i >= first && i <= last })
}

func ernieMoeTensors(v *view) {
	bias, experts := v.cfg.boolOr("use_bias", false), v.published("expert_count")
	shared := v.published("expert_shared_count") * v.published("expert_feed_forward_length")
	if v.outer(0); bias {
		v.headBias()
	}
	v.eachLayer("model.layers.", func(i int, name, hfName string) {
		v.attention(i, name, hfName, bias, bias)
		v.blockNorms(i, name, hfName, 0)
		mlp := hfName + "mlp."
		if !v.mixes(i) {
			v.gatedFFN(i, name, mlp, v.ffn, bias)
			return
		}
		v.matrix(name+"ffn_gate_inp.weight", mlp+"gate.weight", i, experts, v.hidden)
		v.choiceBias(i, name, mlp+"moe_statics.e_score_correction_bias", 1)
		v.expertStacks(i, name, mlp+"experts.", projections)
		if shared > 0 {
			v.sharedExpert(i, name, mlp+"shared_experts.", shared, bias)
		}
	})
}

func graniteMoeFigures(v *view) {
	graniteFigures(v)
	if len(v.faults.list) > 0 {
		return
	}
	v.experts(8, 2)
	v.setInt("expert_feed_forward_length", v.ffn)
}

func graniteMoeTensors(v *view) {
	bias, experts := v.cfg.boolOr("attention_bias", false), v.published("expert_count")
	v.outer(0)
	v.eachLayer("model.layers.", func(i int, name, hfName string) {
		v.attention(i, name, hfName, bias, bias)
		v.blockNorms(i, name, hfName, 0)
		moe := hfName + "block_sparse_moe."
		v.matrix(name+"ffn_gate_inp.weight", moe+"router.layer.weight", i, experts, v.hidden)
		v.packedExperts(i, name, moe+"input_linear.weight", moe+"output_linear.weight", experts, v.ffn)
	})
}

func minimaxFigures(v *view) {
	if !v.figures(usualNames, defaults{heads: 32, kvHeads: 8, context: 196608, eps: 1e-6}) {
		return
	}
	v.activation("hidden_act", "silu")
	v.rope(5e6)
	v.experts(256, 8)
	v.setInt("expert_feed_forward_length", v.ffn)
	v.setInt("expert_gating_func", sigmoidGating)
	v.refuseUnless(v.cfg.stringOr("scoring_func", "sigmoid") == "sigmoid", "scoring_func is %q, want sigmoid", v.cfg.stringOr("scoring_func", ""))
	v.refuseUnless(v.cfg.boolOr("use_qk_norm", true), "use_qk_norm is false")
}

func minimaxTensors(v *view) {
	experts := v.published("expert_count")
	v.outer(0)
	v.eachLayer("model.layers.", func(i int, name, hfName string) {
		v.attention(i, name, hfName, false, false)
		v.vector(name+"attn_q_norm.weight", hfName+"self_attn.q_norm.weight", i, v.heads*v.headDim, 0)
		v.vector(name+"attn_k_norm.weight", hfName+"self_attn.k_norm.weight", i, v.kvHeads*v.headDim, 0)
		v.blockNorms(i, name, hfName, 0)
		moe := hfName + "block_sparse_moe."
		v.matrix(name+"ffn_gate_inp.weight", moe+"gate.weight", i, experts, v.hidden)
		v.choiceBias(i, name, moe+"e_score_correction_bias")
		v.expertStacks(i, name, moe+"experts.", numbered3)
	})
}

func mellumFigures(v *view) {
	if !v.figures(usualNames, defaults{heads: 32, kvHeads: 4, headDim: 128, context: 131072, eps: 1e-6}) {
		return
	}
	v.activation("hidden_act", "silu")
	v.ropeOfClass(`{"full_attention": {"rope_theta": 5e5}, "sliding_attention": {"rope_theta": 1e4}}`)
	v.rope(500000)
	v.slidingRope(500000)
	v.window(1024)
	v.windowLayers(none)
	v.experts(64, 8)
	v.expertWidth("moe_intermediate_size", 896)
	v.set("expert_weights_norm", v.cfg.boolOr("norm_topk_prob", true))
	v.mlpLayerTypes()
}

func mellumTensors(v *view) {
	bias, experts := v.cfg.boolOr("attention_bias", false), v.published("expert_count")
	v.outer(0)
	v.eachLayer("model.layers.", func(i int, name, hfName string) {
		v.attention(i, name, hfName, bias, bias)
		v.qkNorms(i, name, hfName, 0)
		v.blockNorms(i, name, hfName, 0)
		mlp := hfName + "mlp."
		if !v.mixes(i) {
			v.gatedFFN(i, name, mlp, v.ffn, false)
			return
		}
		v.matrix(name+"ffn_gate_inp.weight", mlp+"gate.weight", i, experts, v.hidden)
		v.expertStacks(i, name, mlp+"experts.", projections)
	})
}

// lagunaFigures: a list may give each layer query heads of its own number.
func lagunaFigures(v *view) {
	if !v.figures(usualNames, defaults{headDim: 128, context: 131072, eps: 1e-6}) {
		return
	}
	v.activation("hidden_act", "silu")
	v.ropeOfClass(`{"full_attention": {"rope_theta": 5e5, "partial_rotary_factor": 0.5}, "sliding_attention": {"rope_theta": 1e4}}`)
	v.rope(500000)
	v.slidingRope(10000)
	v.window(512)
	v.windowLayers(none)
	const key = "num_attention_heads_per_layer"
	if list := v.cfg.list(key, v.layers); list != nil {
		heads := make([]int32, v.layers)
		for i, x := range v.cfg.numbers(key, v.layers, 1, maxHeads) {
			heads[i] = int32(x)
			v.refuseUnless(int(x)%v.kvHeads == 0 && float32(int(x)) == x, "%s[%d] is %g, want a multiple of num_key_value_heads %d", key, i, x, v.kvHeads)
		}
		v.set("attention.head_count", heads)
	}
	v.experts(256, 8)
	v.expertWidth("moe_intermediate_size", 512)
	v.setInt("expert_shared_feed_forward_length", v.cfg.intOr("shared_expert_intermediate_size", 512, 1, maxWidth))
	v.weighing(true, 1)
	v.setFloat("expert_weights_scale", v.cfg.floatOr("moe_routed_scaling_factor", 1, 1e-6, 1e6))
	v.setOurs("router.softcap", float32(v.cfg.floatOr("moe_router_logit_softcapping", 0, 0, 1e6)))
	v.setOurs("router.on_input", v.cfg.boolOr("moe_apply_router_weight_on_input", false))
	v.mlpLayerTypes()
}

func lagunaTensors(v *view) {
	bias, experts, shared := v.cfg.boolOr("attention_bias", false), v.published("expert_count"), v.published("expert_shared_feed_forward_length")
	heads, _ := v.meta.Ints("laguna.attention.head_count") // not a list: all alike
	common := v.heads
	v.outer(0)
	v.eachLayer("model.layers.", func(i int, name, hfName string) {
		if v.heads = common; heads != nil {
			v.heads = heads[i]
		}
		v.attention(i, name, hfName, bias, bias)
		if gate := hfName + "self_attn.g_proj"; v.has(gate+".weight") || v.cfg.has("gating") && v.cfg.values["gating"] != false {
			rows := v.heads
			if t := v.files.tensor(v.prefix + gate + ".weight"); t != nil && len(t.Shape) == 2 && t.Shape[0] != rows {
				rows = v.heads * v.headDim
			}
			v.matrix(name+"attn_gate.weight", gate+".weight", i, rows, v.hidden)
		}
		v.qkNorms(i, name, hfName, 0)
		v.blockNorms(i, name, hfName, 0)
		mlp := hfName + "mlp."
		if !v.mixes(i) {
			v.gatedFFN(i, name, mlp, v.ffn, false)
			return
		}
		v.matrix(name+"ffn_gate_inp.weight", mlp+"gate.weight", i, experts, v.hidden)
		v.choiceBias(i, name, mlp+"experts.e_score_correction_bias")
		v.expertStacks(i, name, mlp+"experts.", projections)
		v.sharedExpert(i, name, mlp+"shared_expert.", shared, false)
	})
	v.heads = common
}

// phimoeFigures: num_experts_per_tok means nothing, the mixer takes two; longrope has amplitudes of its own.
func phimoeFigures(v *view) {
	n := usualNames
	n.eps = ""
	if !v.figures(n, defaults{heads: 32, kvHeads: 8, context: 131072}) {
		return
	}
	v.setFloat("attention.layer_norm_epsilon", v.cfg.floatOr("rms_norm_eps", 1e-5, 1e-20, 0.5))
	v.activation("hidden_act", "silu")
	r := v.rotary("full_attention", "rope_theta", 1e6)
	v.publishRope(r)
	short, long := r.params.floatOr("short_mscale", 0, 0, 1e3), r.params.floatOr("long_mscale", 0, 0, 1e3)
	v.refuseUnless(short == long, "short_mscale %g and long_mscale %g differ", short, long)
	if short > 0 && r.method != "default" {
		v.setFloat("rope.scaling.attn_factor", short)
	}
	v.window(0)
	v.experts(16, 2)
	v.setInt("expert_used_count", 2)
	v.setInt("expert_feed_forward_length", v.ffn)
	v.setOurs("router.jitter", float32(v.cfg.floatOr("router_jitter_noise", 0.01, 0, 1)))
}

func phimoeTensors(v *view) {
	bias, experts := v.cfg.boolOr("attention_bias", false), v.published("expert_count")
	v.normedOuter(true)
	if v.cfg.boolOr("lm_head_bias", false) {
		v.headBias()
	}
	v.eachLayer("model.layers.", func(i int, name, hfName string) {
		v.attention(i, name, hfName, bias, bias)
		v.layerNorm(name+"attn_norm", hfName+"input_layernorm", i)
		v.layerNorm(name+"ffn_norm", hfName+"post_attention_layernorm", i)
		moe := hfName + "block_sparse_moe."
		v.matrix(name+"ffn_gate_inp.weight", moe+"gate.weight", i, experts, v.hidden)
		v.expertStacks(i, name, moe+"experts.", numbered3)
	})
}
