package hf

import "math"

// LFM2 and its mixture: gated short convolutions and attention in turn.
func init() {
	register("lfm2", family{"lfm2", lfm2Figures, lfm2Tensors})
	register("lfm2_moe", family{"lfm2moe", lfm2MoeFigures, lfm2Tensors})
}

// lfm2Basics reads what the family shares; false after a fault.
func lfm2Basics(v *view) bool {
	n := usualNames
	n.ffn, n.eps = "", "norm_eps"
	if !v.figures(n, defaults{heads: 32, kvHeads: 8, vocab: 65536, context: 128000, eps: 1e-5, tied: v.cfg.boolOr("tie_embedding", true)}) {
		return false
	}
	v.rope(1e6)
	v.setInt("shortconv.l_cache", v.cfg.intOr("conv_L_cache", 3, 1, maxKernel))
	attends := map[int]bool{}
	if only, ok := v.cfg.values["full_attn_idxs"].([]any); ok {
		for _, x := range v.cfg.numbers("full_attn_idxs", len(only), 0, maxLayers) {
			attends[int(x)] = true
		}
	} else {
		for i := range v.layers {
			attends[i] = true
		}
	}
	recurs := v.recurrentLayers(map[string]bool{"conv": true, "full_attention": false}, func(i int) bool { return !attends[i] })
	v.kvHeadsOf(recurs)
	return len(v.faults.list) == 0
}

func lfm2Figures(v *view) {
	if !lfm2Basics(v) {
		return
	}
	c := v.cfg
	v.ffn = c.intOr("block_ff_dim", c.intOr("intermediate_size", 12288, 1, maxWidth), 1, maxWidth)
	if c.boolOr("block_auto_adjust_ff_dim", true) {
		v.ffn = 2 * v.ffn / 3
		v.ffn = int(c.floatOr("block_ffn_dim_multiplier", 1, 1e-3, 1e3) * float64(v.ffn))
		of := max(1, c.intOr("block_multiple_of", 256, 1, maxWidth))
		v.ffn = of * int(math.Ceil(float64(v.ffn)/float64(of)))
	}
	v.refuseUnless(v.ffn >= 1 && v.ffn <= maxWidth, "intermediate_size makes a feed-forward network %d wide, want 1 to %d", v.ffn, maxWidth)
	v.setInt("feed_forward_length", v.ffn)
}

func lfm2MoeFigures(v *view) {
	if !lfm2Basics(v) {
		return
	}
	v.ffn = v.cfg.intOr("intermediate_size", 7168, 1, maxWidth)
	v.setInt("feed_forward_length", v.ffn)
	v.experts(32, 4)
	v.expertWidth("moe_intermediate_size", 1792)
	v.setInt("leading_dense_block_count", v.cfg.intOr("num_dense_layers", 2, 0, v.layers))
	v.weighing(true, 1)
}

func lfm2Tensors(v *view) {
	bias, kernel, experts := v.cfg.boolOr("conv_bias", false), v.published("shortconv.l_cache"), v.published("expert_count")
	q, kv := v.heads*v.headDim, v.kvHeads*v.headDim
	v.matrix("token_embd.weight", "model.embed_tokens.weight", -1, v.vocab, v.hidden)
	v.vector("token_embd_norm.weight", "model.embedding_norm.weight", -1, v.hidden, 0)
	v.head("lm_head.weight", "model.embed_tokens.weight", v.hidden)
	v.eachLayer("model.layers.", func(i int, name, hfName string) {
		v.vector(name+"attn_norm.weight", hfName+"operator_norm.weight", i, v.hidden, 0)
		v.vector(name+"ffn_norm.weight", hfName+"ffn_norm.weight", i, v.hidden, 0)
		if v.recurs(i) {
			v.shortConv(i, name, hfName+"conv.", kernel, bias)
		} else {
			v.linear(name+"attn_q", hfName+"self_attn.q_proj", i, q, v.hidden, false)
			v.linear(name+"attn_k", hfName+"self_attn.k_proj", i, kv, v.hidden, false)
			v.linear(name+"attn_v", hfName+"self_attn.v_proj", i, kv, v.hidden, false)
			v.linear(name+"attn_output", hfName+"self_attn.out_proj", i, v.hidden, q, false)
			v.vector(name+"attn_q_norm.weight", hfName+"self_attn.q_layernorm.weight", i, v.headDim, 0)
			v.vector(name+"attn_k_norm.weight", hfName+"self_attn.k_layernorm.weight", i, v.headDim, 0)
		}
		mlp := hfName + "feed_forward."
		if !v.mixes(i) {
			v.numberedFFN(i, name, mlp)
			return
		}
		v.matrix(name+"ffn_gate_inp.weight", mlp+"gate.weight", i, experts, v.hidden)
		if v.cfg.boolOr("use_expert_bias", true) {
			v.choiceBias(i, name, mlp+"expert_bias")
		}
		v.expertStacks(i, name, mlp+"experts.", numbered3)
	})
}

// shortConv presents a gated short convolution.
func (v *view) shortConv(i int, name, hfName string, kernel int, bias bool) {
	v.linear(name+"shortconv.in_proj", hfName+"in_proj", i, 3*v.hidden, v.hidden, bias)
	v.convolution(name+"shortconv.conv.weight", hfName+"conv.weight", i, v.hidden, kernel)
	if bias {
		v.vector(name+"shortconv.conv.bias", hfName+"conv.bias", i, v.hidden, 0)
	}
	v.linear(name+"shortconv.out_proj", hfName+"out_proj", i, v.hidden, v.hidden, bias)
}

// numberedFFN presents a gated network whose matrices are named w1 (gate), w3 (up) and w2 (down).
func (v *view) numberedFFN(i int, name, hfName string) {
	v.linear(name+"ffn_gate", hfName+"w1", i, v.ffn, v.hidden, false)
	v.linear(name+"ffn_up", hfName+"w3", i, v.ffn, v.hidden, false)
	v.linear(name+"ffn_down", hfName+"w2", i, v.hidden, v.ffn, false)
}
