package hf

// Llama 4 (text): chunks of attention with rotation, layers without either, experts packed with the inputs before the outputs.
func init() { register("llama4_text", family{"llama4", llama4Figures, llama4Tensors}) }

func llama4Figures(v *view) {
	n := usualNames
	n.ffn = ""
	if !v.figures(n, defaults{heads: 40, kvHeads: 8, headDim: 128, context: 131072, eps: 1e-5}) {
		return
	}
	v.activation("hidden_act", "silu")
	v.rope(500000)
	v.ffn = v.cfg.intOr("intermediate_size_mlp", 16384, 1, maxWidth)
	v.setInt("feed_forward_length", v.ffn)
	v.experts(16, 1)
	v.setInt("expert_shared_feed_forward_length", v.expertWidth("intermediate_size", 8192))
	rotates, chunked := v.llama4Rotates(), make([]int32, v.layers)
	if rotates == nil {
		return
	}
	list := v.cfg.list("layer_types", v.layers)
	for i := range chunked {
		chunked[i] = rotates[i]
		if list == nil {
			continue
		}
		switch list[i] {
		case "chunked_attention":
			chunked[i] = 1
		case "full_attention":
			chunked[i] = 0
		default:
			v.faults.add("%s: layer_types[%d] is %v, want chunked_attention or full_attention: %w", v.cfg.where, i, list[i], ErrConfig)
			return
		}
	}
	v.setOurs("rope.layers", rotates)
	v.setOurs("attention.chunked", chunked)
	chunk := v.cfg.intOr("attention_chunk_size", 8192, 1, maxContext)
	if v.cfg.null("attention_chunk_size") {
		chunk = 0
	}
	v.setOurs("attention.chunk", uint32(chunk))
	scale := v.cfg.floatOr("attn_scale", 0.1, 0, 1e3)
	if !v.cfg.boolOr("attn_temperature_tuning", true) {
		scale = 0
	}
	v.setOurs("attention.temperature_scale", float32(scale))
	v.setOurs("attention.temperature_length", uint32(v.cfg.intOr("floor_scale", 8192, 1, maxContext)))
	v.setOurs("attention.norm", v.cfg.boolOr("use_qk_norm", true))
	v.llama4Mixes()
}

// llama4Rotates reads no_rope_layers, which despite its name holds 1 for the layers that rotate.
func (v *view) llama4Rotates() []int32 {
	if list, ok := v.cfg.values["no_rope_layers"].([]any); ok && len(list) == 0 {
		delete(v.cfg.values, "no_rope_layers")
	}
	return smollm3Rotates(v)
}

// llama4Mixes publishes which layers have experts: moe_layers, else each interleave_moe_layer_step-th.
func (v *view) llama4Mixes() {
	step := v.cfg.period("interleave_moe_layer_step", 1, maxLayers)
	mixes := make([]bool, v.layers)
	for i := range mixes {
		mixes[i] = (i+1)%step == 0
	}
	if only, ok := v.cfg.values["moe_layers"].([]any); ok {
		clear(mixes)
		for _, x := range v.cfg.numbers("moe_layers", len(only), 0, maxLayers) {
			if i := int(x); i < v.layers {
				mixes[i] = true
			}
		}
	}
	v.mixingLayers(func(i int) bool { return mixes[i] })
}

func llama4Tensors(v *view) {
	bias, experts, width := v.cfg.boolOr("attention_bias", false), v.published("expert_count"), v.published("expert_feed_forward_length")
	v.outer(0)
	v.eachLayer("model.layers.", func(i int, name, hfName string) {
		v.attention(i, name, hfName, bias, bias)
		v.blockNorms(i, name, hfName, 0)
		mlp := hfName + "feed_forward."
		if !v.mixes(i) {
			v.gatedFFN(i, name, mlp, v.ffn, false)
			return
		}
		v.matrix(name+"ffn_gate_inp.weight", mlp+"router.weight", i, experts, v.hidden)
		both := mlp + "experts.gate_up_proj"
		v.columnsOf(name+"ffn_gate_exps.weight", both, i, experts, v.hidden, 2*width, 0, 1, width)
		v.columnsOf(name+"ffn_up_exps.weight", both, i, experts, v.hidden, 2*width, width, 1, width)
		v.columnsOf(name+"ffn_down_exps.weight", mlp+"experts.down_proj", i, experts, width, v.hidden, 0, 1, v.hidden)
		v.sharedExpert(i, name, mlp+"shared_expert.", width, false)
	})
}
