package hf

// The Qwen family: Qwen v1 (fused c_attn), Qwen 2 and 2.5 (biases on q, k, v), Qwen 3 (norms on q and k) and its mixture of
// experts.
func init() {
	register("qwen", family{"qwen", qwenFigures, qwenTensors})
	register("qwen2", family{"qwen2", qwen2Figures, qwen2Tensors})
	register("qwen3", family{"qwen3", qwen3Figures, qwen3Tensors})
	register("qwen3_moe", family{"qwen3moe", qwen3MoeFigures, qwen3Tensors})
}

// qwenFigures follows the configuration that Qwen's own modeling code reads (it is not part of transformers).
func qwenFigures(v *view) {
	n := names{layers: "num_hidden_layers", hidden: "hidden_size", heads: "num_attention_heads", headDim: "kv_channels",
		ffn: "intermediate_size", context: "max_position_embeddings", eps: "layer_norm_epsilon"}
	if !v.figures(n, defaults{headDim: 128, context: 8192, eps: 1e-6}) {
		return
	}
	if v.heads*v.headDim != v.hidden {
		v.faults.add("%s: kv_channels %d for %d heads (num_attention_heads) is not hidden_size %d: %w", v.cfg.where, v.headDim, v.heads, v.hidden, ErrConfig)
	}
	if v.ffn%2 != 0 { // each half of the feed-forward network is intermediate_size/2 wide
		v.faults.add("%s: intermediate_size %d is odd: %w", v.cfg.where, v.ffn, ErrConfig)
	}
	if !v.cfg.boolOr("no_bias", true) {
		v.faults.add("%s: no_bias false is not supported: %w", v.cfg.where, ErrConfig)
	}
	if r := v.rotary("full_attention", "rotary_emb_base", 10000); len(v.faults.list) == 0 {
		r.dim = int(float64(v.headDim) * v.cfg.floatOr("rotary_pct", 1, 1e-3, 1))
		v.publishRope(r)
	}
	v.setOurs("qwen.seq_length", uint32(v.cfg.intOr("seq_length", v.context, 1, maxContext)))
	v.setOurs("qwen.use_dynamic_ntk", v.cfg.boolOr("use_dynamic_ntk", true))
	v.setOurs("qwen.use_logn_attn", v.cfg.boolOr("use_logn_attn", true))
}

func qwenTensors(v *view) {
	v.matrix("token_embd.weight", "transformer.wte.weight", -1, v.vocab, v.hidden)
	v.vector("output_norm.weight", "transformer.ln_f.weight", -1, v.hidden, 0)
	v.head("lm_head.weight", "transformer.wte.weight", v.hidden)
	v.eachLayer("transformer.h.", func(i int, name, hfName string) {
		v.vector(name+"attn_norm.weight", hfName+"ln_1.weight", i, v.hidden, 0)
		v.linear(name+"attn_qkv", hfName+"attn.c_attn", i, 3*v.hidden, v.hidden, true)
		v.linear(name+"attn_output", hfName+"attn.c_proj", i, v.hidden, v.hidden, false)
		v.vector(name+"ffn_norm.weight", hfName+"ln_2.weight", i, v.hidden, 0)
		v.linear(name+"ffn_gate", hfName+"mlp.w2", i, v.ffn/2, v.hidden, false)
		v.linear(name+"ffn_up", hfName+"mlp.w1", i, v.ffn/2, v.hidden, false)
		v.linear(name+"ffn_down", hfName+"mlp.c_proj", i, v.hidden, v.ffn/2, false)
	})
}

// slidingTail publishes Qwen's optional sliding window, which the first max_window_layers layers do not have.
func (v *view) slidingTail() {
	sliding := v.layerTypes()
	if !v.cfg.boolOr("use_sliding_window", false) {
		return
	}
	if sliding == nil {
		first := v.cfg.intOr("max_window_layers", 28, 0, 1<<20)
		sliding = make([]bool, v.layers)
		for i := range sliding {
			sliding[i] = i >= first
		}
	}
	v.window(4096)
	v.slidingLayers(sliding)
}

func qwen2Figures(v *view) {
	if !v.figures(usualNames, defaults{kvHeads: 32, context: 32768, eps: 1e-6}) {
		return
	}
	v.activation("hidden_act", "silu")
	v.rope(10000)
	v.slidingTail()
}

func qwen2Tensors(v *view) {
	v.outer(0)
	v.eachLayer("model.layers.", func(i int, name, hfName string) {
		v.attention(i, name, hfName, true, false)
		v.blockNorms(i, name, hfName, 0)
		v.gatedFFN(i, name, hfName+"mlp.", v.ffn, false)
	})
}

func qwen3Figures(v *view) {
	if !v.figures(usualNames, defaults{kvHeads: 32, headDim: 128, context: 32768, eps: 1e-6}) {
		return
	}
	v.activation("hidden_act", "silu")
	v.rope(10000)
	v.slidingTail()
}

func qwen3MoeFigures(v *view) {
	if !v.figures(usualNames, defaults{kvHeads: 4, context: 32768, eps: 1e-6}) {
		return
	}
	v.activation("hidden_act", "silu")
	v.rope(10000)
	if v.cfg.boolOr("use_sliding_window", false) {
		v.window(4096)
	}
	v.experts(128, 8)
	v.setInt("expert_feed_forward_length", v.cfg.intOr("moe_intermediate_size", 768, 1, maxWidth))
	v.set("expert_weights_norm", v.cfg.boolOr("norm_topk_prob", false))
	v.moeLayers()
}

// moeLayers publishes which layers are mixtures, where dense ones are mixed in.
func (v *view) moeLayers() {
	step := v.cfg.period("decoder_sparse_step", 1, maxLayers)
	list := make([]int32, v.layers)
	dense := 0
	for i := range list {
		if (i+1)%step == 0 {
			list[i] = 1
		}
	}
	if only, ok := v.cfg.values["mlp_only_layers"].([]any); ok {
		for _, x := range v.cfg.numbers("mlp_only_layers", len(only), 0, maxLayers) {
			if i := int(x); i < v.layers {
				list[i] = 0
			}
		}
	}
	for _, x := range list {
		if x == 0 {
			dense++
		}
	}
	if dense > 0 {
		v.setOurs("moe.layers", list)
	}
}

func qwen3Tensors(v *view) {
	bias := v.cfg.boolOr("attention_bias", false)
	experts, _ := v.meta.Int("qwen3moe.expert_count") // absent: no mixture
	width, _ := v.meta.Int("qwen3moe.expert_feed_forward_length")
	moe, _ := v.meta.Ints("terrace.moe.layers")
	v.outer(0)
	v.eachLayer("model.layers.", func(i int, name, hfName string) {
		v.attention(i, name, hfName, bias, bias)
		v.qkNorms(i, name, hfName, 0)
		v.blockNorms(i, name, hfName, 0)
		if experts == 0 || (moe != nil && moe[i] == 0) {
			v.gatedFFN(i, name, hfName+"mlp.", v.ffn, false)
			return
		}
		mlp := hfName + "mlp."
		v.matrix(name+"ffn_gate_inp.weight", mlp+"gate.weight", i, experts, v.hidden)
		v.stack(name+"ffn_gate_exps.weight", mlp+"experts.%d.gate_proj.weight", i, experts, width, v.hidden)
		v.stack(name+"ffn_down_exps.weight", mlp+"experts.%d.down_proj.weight", i, experts, v.hidden, width)
		v.stack(name+"ffn_up_exps.weight", mlp+"experts.%d.up_proj.weight", i, experts, width, v.hidden)
	})
}
