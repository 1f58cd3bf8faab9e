package hf

// OPT: learned positions with an offset of 2, LayerNorm before the blocks (after them in OPT-350m, which also projects its
// narrower embeddings in and out), ReLU, biases everywhere. llama.cpp has no such architecture; the keys follow its style.
func init() { register("opt", family{"opt", optFigures, optTensors}) }

func optFigures(v *view) {
	n := names{layers: "num_hidden_layers", hidden: "hidden_size", heads: "num_attention_heads", ffn: "ffn_dim",
		context: "max_position_embeddings"}
	if !v.figures(n, defaults{context: 2048, tied: true}) {
		return
	}
	v.setFloat("attention.layer_norm_epsilon", 1e-5) // torch's default; OPT has no key for it
	v.activation("activation_function", "relu")
	v.setOurs("position_offset", uint32(2))
	before := v.cfg.boolOr("do_layer_norm_before", true)
	if !before {
		v.setOurs("norm_after", true)
	}
	if !before || v.cfg.boolOr("_remove_final_layer_norm", false) {
		v.setOurs("no_final_norm", true)
	}
	if w := v.cfg.intOr("word_embed_proj_dim", v.hidden, 1, maxWidth); w != v.hidden {
		v.setOurs("embedding_in_length", uint32(w))
	}
}

func optTensors(v *view) {
	v.prefix = v.files.stem("embed_tokens.weight", "model.decoder.", "decoder.")
	width := v.cfg.intOr("word_embed_proj_dim", v.hidden, 1, maxWidth)
	bias := v.cfg.boolOr("enable_bias", true)
	norm := v.layerNorm
	if !v.cfg.boolOr("layer_norm_elementwise_affine", true) {
		norm = v.plainNorm
	}
	v.matrix("token_embd.weight", "embed_tokens.weight", -1, v.vocab, width)
	v.matrix("position_embd.weight", "embed_positions.weight", -1, v.context+2, v.hidden)
	if width != v.hidden {
		v.matrix("project_in.weight", "project_in.weight", -1, v.hidden, width)
		v.matrix("project_out.weight", "project_out.weight", -1, width, v.hidden)
	}
	if !v.meta.Has("terrace.no_final_norm") {
		norm("output_norm", "final_layer_norm", -1)
	}
	v.head("lm_head.weight", "embed_tokens.weight", width)
	v.eachLayer("layers.", func(i int, name, hfName string) {
		norm(name+"attn_norm", hfName+"self_attn_layer_norm", i)
		v.linear(name+"attn_q", hfName+"self_attn.q_proj", i, v.hidden, v.hidden, bias)
		v.linear(name+"attn_k", hfName+"self_attn.k_proj", i, v.hidden, v.hidden, bias)
		v.linear(name+"attn_v", hfName+"self_attn.v_proj", i, v.hidden, v.hidden, bias)
		v.linear(name+"attn_output", hfName+"self_attn.out_proj", i, v.hidden, v.hidden, bias)
		norm(name+"ffn_norm", hfName+"final_layer_norm", i)
		v.linear(name+"ffn_up", hfName+"fc1", i, v.ffn, v.hidden, bias)
		v.linear(name+"ffn_down", hfName+"fc2", i, v.hidden, v.ffn, bias)
	})
}

// plainNorm presents a LayerNorm without learned weights as one whose weights are 1 and biases 0.
func (v *view) plainNorm(name, _ string, _ int) {
	ones := make([]float32, v.hidden)
	for i := range ones {
		ones[i] = 1
	}
	v.values(name+".weight", ones)
	v.values(name+".bias", make([]float32, v.hidden))
}
