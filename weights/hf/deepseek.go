package hf

import (
	"terrace/weights/gguf"
)

// DeepSeek V2, V3 and V3.2, GLM-4.7-Flash and Mistral 4: latent keys and values.
func init() {
	register("deepseek_v2", family{"deepseek2", deepseekV2Figures, deepseekTensors})
	register("deepseek_v3", family{"deepseek2", deepseekV3Figures, deepseekTensors})
	register("deepseek_v32", family{"deepseek32", deepseekV32Figures, deepseekV32Tensors})
	register("glm4_moe_lite", family{"deepseek2", glm4LiteFigures, deepseekTensors})
	register("mistral4", family{"deepseek2", mistral4Figures, deepseekTensors})
}

// latent are the defaults of the figures of latent attention; 0 = the config gives them.
type latent struct{ rank, query, nope, rope, value int }

// latentFigures reads what the families share; false after a fault.
func (v *view) latentFigures(d defaults, l latent, theta float64) bool {
	if !v.latentWidths(d, l) {
		return false
	}
	v.activation("hidden_act", "silu")
	r := v.rotary("full_attention", "rope_theta", theta)
	r.dim = v.published("rope.dimension_count")
	v.refuseUnless(r.dim >= 2 && r.dim%2 == 0, "qk_rope_head_dim is %d, want an even number", r.dim)
	v.publishRope(r)
	if all := r.params.floatOr("mscale_all_dim", 0, 0, 100); all > 0 && r.method != "default" {
		v.setFloat("rope.scaling.yarn_log_multiplier", 0.1*all)
	}
	if beta := r.params.floatOr("llama_4_scaling_beta", 0, 0, 1e3); beta > 0 {
		v.setFloat("attention.temperature_scale", beta)
		v.setInt("attention.temperature_length", v.original(r))
	}
	if !v.cfg.boolOr("rope_interleave", true) {
		v.setOurs("rope.layout", "neox")
	}
	return len(v.faults.list) == 0
}

// latentWidths reads the usual figures with those of latent attention.
func (v *view) latentWidths(d defaults, l latent) bool {
	c := v.cfg
	nope, rope := c.intUnless("qk_nope_head_dim", l.nope, maxHeadDim), c.intOr("qk_rope_head_dim", l.rope, 0, maxHeadDim)
	d.headDim = max(1, nope+rope)
	n := usualNames
	n.headDim, n.kvHeads = "", ""
	if !v.figures(n, d) {
		return false
	}
	rank := c.intUnless("kv_lora_rank", l.rank, maxHeadDim)
	if !c.null("q_lora_rank") {
		if query := c.intOr("q_lora_rank", l.query, 0, maxWidth); query > 0 {
			v.setInt("attention.q_lora_rank", query)
		}
	}
	v.setInt("attention.head_count_kv", 1)
	v.setInt("attention.kv_lora_rank", rank)
	v.setInt("attention.key_length", rank+rope)
	v.setInt("attention.value_length", rank)
	v.setInt("attention.key_length_mla", nope+rope)
	v.setInt("attention.value_length_mla", c.intUnless("v_head_dim", l.value, maxHeadDim))
	v.setInt("rope.dimension_count", rope)
	return len(v.faults.list) == 0
}

// latentExperts publishes the experts, which stand behind the first layers, and how their groups are scored.
func (v *view) latentExperts(experts, used, width, shared, dense int) {
	v.expertsFrom("n_routed_experts", "num_experts_per_tok", experts, used)
	v.expertWidth("moe_intermediate_size", width)
	v.setInt("expert_shared_count", v.cfg.intOr("n_shared_experts", shared, 0, maxExperts))
	v.setInt("leading_dense_block_count", v.cfg.intOr("first_k_dense_replace", dense, 0, v.layers))
	v.refuseUnless(v.cfg.intOr("moe_layer_freq", 1, 1, maxLayers) == 1, "moe_layer_freq is not 1")
	v.spare = v.cfg.intOr("num_nextn_predict_layers", 0, 0, maxLayers)
}

// deepseekV2Figures: weights are not normalised whatever norm_topk_prob says.
func deepseekV2Figures(v *view) {
	if !v.latentFigures(defaults{heads: 32, context: 2048, eps: 1e-6}, latent{512, 1536, 128, 64, 128}, 10000) {
		return
	}
	v.latentExperts(64, 6, 1407, 2, 0)
	v.setFloat("expert_weights_scale", v.cfg.floatOr("routed_scaling_factor", 1, 1e-6, 1e6))
	v.set("expert_weights_norm", false)
	switch method := v.cfg.stringOr("topk_method", "greedy"); method {
	case "greedy":
	case "group_limited_greedy":
		v.groups(1, 1)
	default:
		v.cfg.wrong("topk_method", "greedy or group_limited_greedy")
	}
}

func deepseekV3Figures(v *view) {
	if !v.latentFigures(defaults{heads: 128, context: 4096, eps: 1e-6}, latent{512, 1536, 128, 64, 128}, 10000) {
		return
	}
	v.latentExperts(256, 8, 2048, 1, 3)
	v.groups(8, 4)
	v.weighing(true, 2.5)
	v.refuseUnless(v.cfg.stringOr("scoring_func", "sigmoid") == "sigmoid", "scoring_func is not sigmoid")
	v.refuseUnless(v.cfg.stringOr("topk_method", "noaux_tc") == "noaux_tc", "topk_method is not noaux_tc")
}

// deepseekV32Figures: those of V3 with the indexer's.
func deepseekV32Figures(v *view) {
	deepseekV3Figures(v)
	if v.cfg.has("mlp_layer_types") {
		v.setInt("leading_dense_block_count", 0)
		v.mlpLayerTypes()
	}
	v.indexFigures("index_n_heads", "index_head_dim", "index_topk", 64, 128, 2048)
	v.refuseUnless(v.published("attention.q_lora_rank") > 0, "q_lora_rank is missing: the indexer's queries are made of that latent")
	v.refuseUnless(v.published("attention.indexer.key_length") >= v.published("rope.dimension_count"), "index_head_dim is less than qk_rope_head_dim")
	v.onlyLayers("indexed_attention")
}

// indexFigures publishes the figures of a trained indexer.
func (v *view) indexFigures(heads, dim, topK string, headsDef, dimDef, topKDef int) {
	v.setInt("attention.indexer.head_count", v.cfg.intUnless(heads, headsDef, maxHeads))
	v.setInt("attention.indexer.key_length", v.cfg.intUnless(dim, dimDef, maxHeadDim))
	v.setInt("attention.indexer.top_k", v.cfg.intUnless(topK, topKDef, maxTopK))
}

// onlyLayers refuses a layer_types list with any other kind.
func (v *view) onlyLayers(kind string) {
	for i, x := range v.cfg.list("layer_types", v.layers) {
		if x != kind {
			v.faults.add("%s: layer_types[%d] is %v, want %s: %w", v.cfg.where, i, x, kind, ErrConfig)
			return
		}
	}
}

func glm4LiteFigures(v *view) {
	if !v.latentFigures(defaults{heads: 20, context: 202752, eps: 1e-5}, latent{512, 768, 192, 64, 256}, 10000) {
		return
	}
	v.latentExperts(64, 4, 1536, 1, 1)
	v.groups(1, 1)
	v.weighing(true, 1.8)
	if v.cfg.has("mlp_layer_types") {
		v.setInt("leading_dense_block_count", 0)
		v.mlpLayerTypes()
	}
}

func mistral4Figures(v *view) {
	v.ropeOfClass(`{"rope_type": "yarn", "factor": 128, "original_max_position_embeddings": 8192, "beta_fast": 32, "beta_slow": 1, "mscale_all_dim": 1, "mscale": 1, "llama_4_scaling_beta": 0.1}`)
	if !v.latentFigures(defaults{heads: 32, context: 1048576, eps: 1e-6}, latent{256, 1024, 64, 64, 128}, 10000) {
		return
	}
	v.latentExperts(128, 4, 2048, 1, 0)
	v.groups(1, 1)
	v.set("expert_weights_norm", v.cfg.boolOr("norm_topk_prob", true))
	v.setFloat("expert_weights_scale", v.cfg.floatOr("routed_scaling_factor", 1, 1e-6, 1e6))
	v.setOurs("router.group_best", uint32(2))
}

func deepseekTensors(v *view) {
	bias, wide, experts := v.cfg.boolOr("attention_bias", false), v.cfg.boolOr("mlp_bias", false), v.published("expert_count")
	shared := v.published("expert_shared_count") * v.published("expert_feed_forward_length")
	sigmoid := v.published("expert_gating_func") == sigmoidGating
	v.outer(0)
	v.eachLayer("model.layers.", func(i int, name, hfName string) {
		v.blockNorms(i, name, hfName, 0)
		v.latentTensors(i, name, hfName+"self_attn.", bias)
		mlp := hfName + "mlp."
		if !v.mixes(i) {
			v.gatedFFN(i, name, mlp, v.ffn, wide && v.has(mlp+"gate_proj.bias")) // only V2's class has them
			return
		}
		v.matrix(name+"ffn_gate_inp.weight", mlp+"gate.weight", i, experts, v.hidden)
		if sigmoid {
			v.choiceBias(i, name, mlp+"gate.e_score_correction_bias")
		}
		v.expertStacks(i, name, mlp+"experts.", projections)
		if shared > 0 {
			v.sharedExpert(i, name, mlp+"shared_experts.", shared, wide && v.has(mlp+"shared_experts.gate_proj.bias"))
		}
	})
}

// deepseekV32Tensors are deepseekTensors with each layer's indexer.
func deepseekV32Tensors(v *view) {
	deepseekTensors(v)
	heads, dim, query := v.published("attention.indexer.head_count"), v.published("attention.indexer.key_length"), v.published("attention.q_lora_rank")
	v.eachLayer("model.layers.", func(i int, name, hfName string) {
		name, hfName = name+"indexer.", hfName+"self_attn.indexer."
		v.matrix(name+"attn_q_b.weight", hfName+"wq_b.weight", i, heads*dim, query)
		v.matrix(name+"attn_k.weight", hfName+"wk.weight", i, dim, v.hidden)
		v.matrix(name+"proj.weight", hfName+"weights_proj.weight", i, heads, v.hidden)
		v.vector(name+"k_norm.weight", hfName+"k_norm.weight", i, dim, 0)
		v.vector(name+"k_norm.bias", hfName+"k_norm.bias", i, dim, 0)
	})
}

// latentTensors presents the projections of latent attention; those of keys and values lie in one, a head's keys before its values.
func (v *view) latentTensors(i int, name, hfName string, bias bool) {
	rank, rope, value := v.published("attention.kv_lora_rank"), v.published("rope.dimension_count"), v.published("attention.value_length_mla")
	nope, query := v.published("attention.key_length_mla")-rope, v.published("attention.q_lora_rank")
	width := v.heads * (nope + rope)
	if query > 0 {
		v.linear(name+"attn_q_a", hfName+"q_a_proj", i, query, v.hidden, bias)
		v.vector(name+"attn_q_a_norm.weight", hfName+"q_a_layernorm.weight", i, query, 0)
		v.linear(name+"attn_q_b", hfName+"q_b_proj", i, width, query, false)
	} else {
		v.linear(name+"attn_q", hfName+"q_proj", i, width, v.hidden, false)
	}
	v.linear(name+"attn_kv_a_mqa", hfName+"kv_a_proj_with_mqa", i, rank+rope, v.hidden, bias)
	v.vector(name+"attn_kv_a_norm.weight", hfName+"kv_a_layernorm.weight", i, rank, 0)
	v.headBlocks(name+"attn_k_b.weight", hfName+"kv_b_proj.weight", i, nope+value, rank, 0, nope, true)
	v.headBlocks(name+"attn_v_b.weight", hfName+"kv_b_proj.weight", i, nope+value, rank, nope, value, false)
	v.linear(name+"attn_output", hfName+"o_proj", i, v.hidden, v.heads*value, bias)
}

// headBlocks presents rows [first, first+n) of each head of a matrix [heads·each, cols] as [heads, n, cols], or turned as [heads, cols, n].
func (v *view) headBlocks(name, hfName string, layer, each, cols, first, n int, turned bool) {
	t := v.find(hfName, layer, v.heads*each, cols)
	if t == nil {
		return
	}
	heads, shape := v.heads, []int{v.heads, n, cols}
	if turned {
		t = plain(t)
		shape = []int{v.heads, cols, n}
	}
	v.add(gguf.NewTensor(name, t.Type, shape, func() ([]byte, error) {
		raw, err := t.Bytes()
		if err != nil {
			return nil, err
		}
		row := t.Type.RowBytes(cols)
		out := make([]byte, 0, heads*n*row)
		for h := range heads {
			block := raw[(h*each+first)*row : (h*each+first+n)*row]
			if turned {
				block = transpose(block, n, cols, t.Type.BlockBytes())
			}
			out = append(out, block...)
		}
		return out, nil
	}))
}
