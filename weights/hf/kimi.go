package hf

// Kimi Linear: DeltaNet with decays by channel, and latent attention that does not rotate.
func init() { register("kimi_linear", family{"kimi-linear", kimiFigures, kimiTensors}) }

func kimiFigures(v *view) {
	c := v.cfg
	if !c.has("max_position_embeddings") && c.has("model_max_length") {
		c.values["max_position_embeddings"] = c.values["model_max_length"]
	}
	if !v.latentWidths(defaults{heads: 32, context: endless, eps: 1e-5}, latent{512, 0, 128, 64, 128}) {
		return
	}
	v.activation("hidden_act", "silu")
	v.siluConvolution()
	own, published := c.object("linear_attn_config") // the form of published files
	heads, width, kernel := own.intOr("num_heads", v.heads, 1, maxHeads), own.intOr("head_dim", 128, 1, maxHeadDim), own.intOr("short_conv_kernel_size", 4, 1, maxKernel)
	v.setOurs("kda.heads", uint32(c.intOr("linear_num_heads", heads, 1, maxHeads)))
	v.setInt("kda.head_dim", c.intOr("linear_head_dim", width, 1, maxHeadDim))
	v.setInt("ssm.conv_kernel", c.intOr("linear_conv_kernel_dim", kernel, 1, maxKernel))
	attends := map[int]bool{}
	if list, ok := own.values["full_attn_layers"].([]any); ok { // counted from 1
		for _, x := range own.numbers("full_attn_layers", len(list), 1, maxLayers) {
			attends[int(x)-1] = true
		}
	}
	recurs := v.recurrentLayers(map[string]bool{"linear_attention": true, "full_attention": false}, func(i int) bool {
		if published {
			return !attends[i]
		}
		return (i+1)%4 != 0
	})
	kv := make([]int32, v.layers)
	for i := range kv {
		if i < len(recurs) && !recurs[i] {
			kv[i] = 1
		}
	}
	v.set("attention.head_count_kv", kv)
	usedKey := "num_experts_per_token"
	if !c.has(usedKey) && c.has("num_experts_per_tok") {
		usedKey = "num_experts_per_tok"
	}
	v.expertsFrom("num_experts", usedKey, 256, 8)
	v.expertWidth("moe_intermediate_size", 1024)
	v.setInt("expert_shared_count", c.intOr("num_shared_experts", 1, 0, maxExperts))
	v.setInt("leading_dense_block_count", c.intOr("first_k_dense_replace", 1, 0, v.layers))
	v.setInt("expert_group_count", c.intOr("num_expert_group", 1, 1, maxExperts))
	v.setInt("expert_group_used_count", c.intOr("topk_group", 1, 1, maxExperts))
	v.setInt("expert_gating_func", sigmoidGating)
	v.set("expert_weights_norm", c.boolOr("moe_renormalize", true))
	v.setFloat("expert_weights_scale", c.floatOr("routed_scaling_factor", 2.446, 1e-6, 1e6))
	v.refuseUnless(c.stringOr("moe_router_activation_func", "sigmoid") == "sigmoid", "moe_router_activation_func is not sigmoid")
	if c.has("mlp_layer_types") {
		v.setInt("leading_dense_block_count", 0)
		v.mlpLayerTypes()
	}
}

func kimiTensors(v *view) {
	experts, shared := v.published("expert_count"), v.published("expert_shared_count")*v.published("expert_feed_forward_length")
	v.outer(0)
	v.eachLayer("model.layers.", func(i int, name, hfName string) {
		v.blockNorms(i, name, hfName, 0)
		if v.recurs(i) {
			v.channelDelta(i, name, hfName+"self_attn.")
		} else {
			v.latentTensors(i, name, hfName+"self_attn.", v.cfg.boolOr("attention_bias", false))
		}
		if !v.mixes(i) {
			v.gatedFFN(i, name, hfName+"mlp.", v.ffn, false)
			return
		}
		moe := hfName + "block_sparse_moe."
		v.matrix(name+"ffn_gate_inp.weight", moe+"gate.weight", i, experts, v.hidden)
		v.choiceBias(i, name, moe+"gate.e_score_correction_bias")
		v.expertStacks(i, name, moe+"experts.", numbered3)
		if shared > 0 {
			v.sharedExpert(i, name, moe+"shared_experts.", shared, false)
		}
	})
}

// channelDelta presents a layer of DeltaNet with decays by channel.
func (v *view) channelDelta(i int, name, hfName string) {
	heads, _ := v.meta.Int("terrace.kda.heads") // the figures have set it
	width, kernel := v.published("kda.head_dim"), v.published("ssm.conv_kernel")
	inner := heads * width
	for _, of := range []string{"q", "k", "v"} {
		v.linear(name+"attn_"+of, hfName+of+"_proj", i, inner, v.hidden, false)
		v.convolution(name+"ssm_conv1d_"+of+".weight", hfName+of+"_conv1d.weight", i, inner, kernel)
	}
	v.linear(name+"ssm_f_a", hfName+"f_a_proj", i, width, v.hidden, false)
	v.linear(name+"ssm_f_b", hfName+"f_b_proj", i, inner, width, false)
	v.linear(name+"ssm_g_a", hfName+"g_a_proj", i, width, v.hidden, false)
	v.linear(name+"ssm_g_b", hfName+"g_b_proj", i, inner, width, false)
	v.linear(name+"ssm_beta", hfName+"b_proj", i, heads, v.hidden, false)
	v.decay(name+"ssm_a", hfName+"A_log", i, heads, 1, 1, heads, 1)
	v.vector(name+"ssm_dt.bias", hfName+"dt_bias", i, inner, 0)
	v.vector(name+"ssm_norm.weight", hfName+"o_norm.weight", i, width, 0)
	v.linear(name+"attn_output", hfName+"o_proj", i, v.hidden, inner, false)
}
