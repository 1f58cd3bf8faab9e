package hf

// Phi-3 and Phi-4 (text): fused q|k|v and gate|up projections, longrope for the long-context versions.
func init() { register("phi3", family{"phi3", phi3Figures, phi3Tensors}) }

func phi3Figures(v *view) {
	n := usualNames
	n.headDim = "" // always hidden/heads
	if !v.figures(n, defaults{context: 4096, eps: 1e-5}) {
		return
	}
	v.activation("hidden_act", "silu")
	v.rope(10000)
	v.window(0)
}

func phi3Tensors(v *view) {
	q, kv := v.heads*v.headDim, v.kvHeads*v.headDim
	v.outer(0)
	v.eachLayer("model.layers.", func(i int, name, hfName string) {
		v.linear(name+"attn_qkv", hfName+"self_attn.qkv_proj", i, q+2*kv, v.hidden, false)
		v.linear(name+"attn_output", hfName+"self_attn.o_proj", i, v.hidden, q, false)
		v.blockNorms(i, name, hfName, 0)
		v.linear(name+"ffn_up", hfName+"mlp.gate_up_proj", i, 2*v.ffn, v.hidden, false)
		v.linear(name+"ffn_down", hfName+"mlp.down_proj", i, v.hidden, v.ffn, false)
	})
}
