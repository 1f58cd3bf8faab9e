package hf

// Qwen3-Next, Qwen 3.5 and its mixture: gated DeltaNet layers between those of attention, whose output has a gate. Norms but the one inside
// DeltaNet store their weight minus 1.
func init() {
	register("qwen3_5_text", family{"qwen35", qwen35Figures, qwenDeltaTensors})
	register("qwen3_5_moe_text", family{"qwen35moe", qwen35MoeFigures, qwenDeltaTensors})
	register("qwen3_next", family{"qwen3next", qwen3NextFigures, qwenDeltaTensors})
	aliases["qwen3_5"], aliases["qwen3_5_moe"] = "qwen3_5_text", "qwen3_5_moe_text"
}

// qwenDelta reads what the three share; false after a fault.
func qwenDelta(v *view, n names, d defaults) bool {
	if !v.figures(n, d) {
		return false
	}
	v.activation("hidden_act", "silu")
	v.siluConvolution()
	v.rope(10000)
	c := v.cfg
	keys, values := c.intOr("linear_num_key_heads", 16, 1, maxHeads), c.intOr("linear_num_value_heads", 32, 1, maxHeads)
	every := c.intOr("full_attention_interval", 4, 1, maxLayers)
	if len(v.faults.list) > 0 {
		return false
	}
	v.refuseUnless(values%keys == 0, "linear_num_value_heads %d is not a multiple of linear_num_key_heads %d", values, keys)
	v.setInt("ssm.group_count", keys)
	v.setInt("ssm.time_step_rank", values)
	v.setInt("ssm.state_size", c.intOr("linear_key_head_dim", 128, 1, maxHeadDim))
	v.setInt("ssm.inner_size", values*c.intOr("linear_value_head_dim", 128, 1, maxHeadDim))
	v.setInt("ssm.conv_kernel", c.intOr("linear_conv_kernel_dim", 4, 1, maxKernel))
	v.setOurs("delta.order", "grouped")
	v.recurrentLayers(map[string]bool{"linear_attention": true, "full_attention": false}, func(i int) bool { return (i+1)%every != 0 })
	return len(v.faults.list) == 0
}

func qwen35Figures(v *view) {
	qwenDelta(v, usualNames, defaults{heads: 16, kvHeads: 4, headDim: 256, vocab: 248320, context: 32768, eps: 1e-6})
}

func qwen35MoeFigures(v *view) {
	n := usualNames
	n.ffn = ""
	if qwenDelta(v, n, defaults{heads: 16, kvHeads: 2, headDim: 256, vocab: 248320, context: 32768, eps: 1e-6}) {
		v.qwenExperts(256, 8)
	}
}

func qwen3NextFigures(v *view) {
	n := usualNames
	n.ffn = ""
	if !qwenDelta(v, n, defaults{heads: 16, kvHeads: 2, headDim: 256, vocab: 151936, context: 32768, eps: 1e-6}) {
		return
	}
	v.ffn = v.cfg.intOr("intermediate_size", 5632, 1, maxWidth)
	v.setInt("feed_forward_length", v.ffn)
	v.qwenExperts(512, 10)
	v.set("expert_weights_norm", v.cfg.boolOr("norm_topk_prob", true))
	v.moeLayers()
}

// qwenExperts publishes the experts and the weighed network beside them.
func (v *view) qwenExperts(def, usedDef int) {
	v.experts(def, usedDef)
	v.expertWidth("moe_intermediate_size", 512)
	v.setInt("expert_shared_feed_forward_length", v.cfg.intOr("shared_expert_intermediate_size", 512, 1, maxWidth))
}

func qwenDeltaTensors(v *view) {
	bias, experts, shared := v.cfg.boolOr("attention_bias", false), v.published("expert_count"), v.published("expert_shared_feed_forward_length")
	v.outer(1)
	v.eachLayer("model.layers.", func(i int, name, hfName string) {
		v.vector(name+"attn_norm.weight", hfName+"input_layernorm.weight", i, v.hidden, 1)
		v.vector(name+"post_attention_norm.weight", hfName+"post_attention_layernorm.weight", i, v.hidden, 1)
		if v.recurs(i) {
			v.deltaTensors(i, name, hfName+"linear_attn.")
		} else {
			kv := v.kvHeads * v.headDim
			v.linear(name+"attn_q", hfName+"self_attn.q_proj", i, 2*v.heads*v.headDim, v.hidden, bias)
			v.linear(name+"attn_k", hfName+"self_attn.k_proj", i, kv, v.hidden, bias)
			v.linear(name+"attn_v", hfName+"self_attn.v_proj", i, kv, v.hidden, bias)
			v.linear(name+"attn_output", hfName+"self_attn.o_proj", i, v.hidden, v.heads*v.headDim, bias)
			v.qkNorms(i, name, hfName, 1)
		}
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

// deltaTensors presents a gated DeltaNet layer. Qwen3-Next packs its projections by key head.
func (v *view) deltaTensors(i int, name, hfName string) {
	keys, values, dk, kernel := v.published("ssm.group_count"), v.published("ssm.time_step_rank"), v.published("ssm.state_size"), v.published("ssm.conv_kernel")
	inner := v.published("ssm.inner_size")
	channels := 2*keys*dk + inner
	if v.files.tensor(v.prefix+hfName+"in_proj_qkvz.weight") != nil {
		qkv, z := unpackByKey(keys, dk, inner/keys)
		v.rowsPicked(name+"attn_qkv.weight", hfName+"in_proj_qkvz.weight", i, channels+inner, v.hidden, qkv)
		v.rowsPicked(name+"attn_gate.weight", hfName+"in_proj_qkvz.weight", i, channels+inner, v.hidden, z)
		v.linear(name+"ssm_ba", hfName+"in_proj_ba", i, 2*values, v.hidden, false)
	} else {
		v.linear(name+"attn_qkv", hfName+"in_proj_qkv", i, channels, v.hidden, false)
		v.linear(name+"attn_gate", hfName+"in_proj_z", i, inner, v.hidden, false)
		v.linear(name+"ssm_alpha", hfName+"in_proj_a", i, values, v.hidden, false)
		v.linear(name+"ssm_beta", hfName+"in_proj_b", i, values, v.hidden, false)
	}
	v.convolution(name+"ssm_conv1d.weight", hfName+"conv1d.weight", i, channels, kernel)
	v.decay(name+"ssm_a", hfName+"A_log", i, values)
	v.vector(name+"ssm_dt.bias", hfName+"dt_bias", i, values, 0)
	v.vector(name+"ssm_norm.weight", hfName+"norm.weight", i, inner/values, 0)
	v.linear(name+"ssm_out", hfName+"out_proj", i, v.hidden, inner, false)
}

// unpackByKey is where the rows of [q|k|v] and of z lie in a projection that has [q dk, k dk, v each, z each] for each key head.
func unpackByKey(keys, dk, each int) (qkv, z []int) {
	run := func(dst []int, from, n int) []int {
		for h := range keys {
			for j := range n {
				dst = append(dst, h*2*(dk+each)+from+j)
			}
		}
		return dst
	}
	qkv = run(run(run(nil, 0, dk), dk, dk), 2*dk, each)
	return qkv, run(nil, 2*dk+each, each)
}
