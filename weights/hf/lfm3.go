package hf

// LFM3: LFM2's layers with norms behind each block, gates on heads, windows and a rotation of a part of each head where there is none.
func init() {
	register("lfm3", family{"lfm3", lfm3Figures, lfm3Tensors})
}

func lfm3Figures(v *view) {
	n := usualNames
	n.eps = "norm_eps"
	for _, key := range []string{n.eps, n.headDim, "layer_types", "conv_L_cache", "rope_parameters"} { // without defaults that are known here
		if !v.cfg.has(key) {
			v.cfg.wrong(key, "the model's own")
		}
	}
	if !v.figures(n, defaults{context: 128000, tied: true, numbers: true}) {
		return
	}
	v.publishRope(v.rotary("full_attention", "rope_theta", 1e6))
	v.slidingRope(10000)
	v.setInt("shortconv.l_cache", v.cfg.int("conv_L_cache", 1, maxKernel))
	v.kvHeadsOf(v.recurrentLayers(map[string]bool{"conv": true, "full_attention": false, "sliding_attention": false}, func(int) bool { return false }))
	if len(v.faults.list) > 0 {
		return
	}
	sliding, any := make([]bool, v.layers), false
	for i, kind := range v.cfg.list("layer_types", v.layers) {
		sliding[i] = kind == "sliding_attention"
		any = any || sliding[i]
	}
	if any {
		v.setInt("attention.sliding_window", v.cfg.int("sliding_window", 1, maxContext))
		v.slidingLayers(sliding)
	}
}

func lfm3Tensors(v *view) {
	bias, convBias, kernel := v.cfg.boolOr("attention_bias", false), v.cfg.boolOr("conv_bias", false), v.published("shortconv.l_cache")
	gated, sandwich := v.cfg.boolOr("use_attention_gate", true), v.cfg.boolOr("use_sandwich_norm", true)
	v.matrix("token_embd.weight", "model.embed_tokens.weight", -1, v.vocab, v.hidden)
	v.vector("token_embd_norm.weight", "model.embedding_norm.weight", -1, v.hidden, 0)
	v.head("lm_head.weight", "model.embed_tokens.weight", v.hidden)
	v.eachLayer("model.layers.", func(i int, name, hfName string) {
		v.vector(name+"attn_norm.weight", hfName+"operator_norm.weight", i, v.hidden, 0)
		v.vector(name+"ffn_norm.weight", hfName+"ffn_norm.weight", i, v.hidden, 0)
		if sandwich {
			v.vector(name+"post_attention_norm.weight", hfName+"post_operator_norm.weight", i, v.hidden, 0)
			v.vector(name+"post_ffw_norm.weight", hfName+"post_ffn_norm.weight", i, v.hidden, 0)
		}
		if v.recurs(i) {
			v.shortConv(i, name, hfName+"conv.", kernel, convBias)
		} else {
			v.attention(i, name, hfName, bias, bias)
			v.qkNorms(i, name, hfName, 0)
			if gated {
				v.matrix(name+"attn_gate.weight", hfName+"self_attn.gate_proj.weight", i, v.heads, v.hidden)
			}
		}
		v.numberedFFN(i, name, hfName+"feed_forward.")
	})
}
