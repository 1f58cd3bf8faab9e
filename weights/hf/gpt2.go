package hf

// GPT-2: learned positions, LayerNorm, fused c_attn stored transposed (Conv1D), the tanh form of GELU.
func init() { register("gpt2", family{"gpt2", gpt2Figures, gpt2Tensors}) }

func gpt2Figures(v *view) {
	n := names{layers: "n_layer", hidden: "n_embd", heads: "n_head", context: "n_positions", eps: "layer_norm_epsilon"}
	if !v.figures(n, defaults{context: 1024, eps: 1e-5, tied: true}) {
		return
	}
	v.ffn = v.cfg.intOr("n_inner", 4*v.hidden, 1, maxWidth)
	v.setInt("feed_forward_length", v.ffn)
	v.activation("activation_function", "gelu_new")
	if !v.cfg.boolOr("scale_attn_weights", true) {
		v.setFloat("attention.scale", 1)
	}
	if v.cfg.boolOr("scale_attn_by_inverse_layer_idx", false) {
		v.setOurs("attention.layer_scale", true)
	}
	if v.cfg.boolOr("add_cross_attention", false) {
		v.faults.add("%s: add_cross_attention is not supported: %w", v.cfg.where, ErrConfig)
	}
}

func gpt2Tensors(v *view) {
	v.prefix = v.files.stem("wte.weight", "transformer.", "")
	v.matrix("token_embd.weight", "wte.weight", -1, v.vocab, v.hidden)
	v.matrix("position_embd.weight", "wpe.weight", -1, v.context, v.hidden)
	v.layerNorm("output_norm", "ln_f", -1)
	v.head("lm_head.weight", "wte.weight", v.hidden)
	conv := func(name, hfName string, i, rows, cols int) {
		v.transposed(name+".weight", hfName+".weight", i, rows, cols)
		v.vector(name+".bias", hfName+".bias", i, rows, 0)
	}
	v.eachLayer("h.", func(i int, name, hfName string) {
		v.layerNorm(name+"attn_norm", hfName+"ln_1", i)
		conv(name+"attn_qkv", hfName+"attn.c_attn", i, 3*v.hidden, v.hidden)
		conv(name+"attn_output", hfName+"attn.c_proj", i, v.hidden, v.hidden)
		v.layerNorm(name+"ffn_norm", hfName+"ln_2", i)
		conv(name+"ffn_up", hfName+"mlp.c_fc", i, v.ffn, v.hidden)
		conv(name+"ffn_down", hfName+"mlp.c_proj", i, v.hidden, v.ffn)
	})
}
