package hf

// gpt-oss: experts packed with gate and up in turn, as bf16 or MXFP4, biases everywhere, attention sinks.
func init() { register("gpt_oss", family{"gpt-oss", gptOSSFigures, gptOSSTensors}) }

func gptOSSFigures(v *view) {
	if !v.figures(usualNames, defaults{heads: 64, kvHeads: 8, headDim: 64, context: 131072, eps: 1e-5}) {
		return
	}
	v.ropeOfClass(`{"rope_type": "yarn", "factor": 32, "beta_fast": 32, "beta_slow": 1, "truncate": false, "original_max_position_embeddings": 4096}`)
	v.rope(150000)
	v.setOurs("rope.scaling.truncate", v.ropeParameters("full_attention").boolOr("truncate", true))
	v.window(128)
	v.windowLayers(func(i int) bool { return i%2 == 0 })
	v.experts(128, 4)
	v.setInt("expert_feed_forward_length", v.ffn)
	v.setOurs("swiglu.alpha", float32(v.cfg.floatOr("swiglu_alpha", 1.702, -1e3, 1e3)))
	v.setOurs("swiglu.limit", float32(v.cfg.floatOr("swiglu_limit", 7, 1e-3, 1e6)))
}

func gptOSSTensors(v *view) {
	bias, experts := v.cfg.boolOr("attention_bias", true), v.published("expert_count")
	v.outer(0)
	v.eachLayer("model.layers.", func(i int, name, hfName string) {
		v.attention(i, name, hfName, bias, bias)
		v.vector(name+"attn_sinks.weight", hfName+"self_attn.sinks", i, v.heads, 0)
		v.vector(name+"attn_norm.weight", hfName+"input_layernorm.weight", i, v.hidden, 0)
		v.vector(name+"post_attention_norm.weight", hfName+"post_attention_layernorm.weight", i, v.hidden, 0)
		v.linear(name+"ffn_gate_inp", hfName+"mlp.router", i, experts, v.hidden, true)
		stem := hfName + "mlp.experts."
		both, down := stem+"gate_up_proj", stem+"down_proj"
		if v.files.tensor(v.prefix+both) == nil {
			v.mxfp4Rows(name+"ffn_gate_exps.weight", both, i, experts, 2*v.ffn, v.hidden, 0, 2, v.ffn)
			v.mxfp4Rows(name+"ffn_up_exps.weight", both, i, experts, 2*v.ffn, v.hidden, 1, 2, v.ffn)
			v.mxfp4Rows(name+"ffn_down_exps.weight", down, i, experts, v.hidden, v.ffn, 0, 1, v.hidden)
		} else {
			v.columnsOf(name+"ffn_gate_exps.weight", both, i, experts, v.hidden, 2*v.ffn, 0, 2, v.ffn)
			v.columnsOf(name+"ffn_up_exps.weight", both, i, experts, v.hidden, 2*v.ffn, 1, 2, v.ffn)
			v.columnsOf(name+"ffn_down_exps.weight", down, i, experts, v.ffn, v.hidden, 0, 1, v.hidden)
		}
		v.flat(name+"ffn_gate_exps.bias", both+"_bias", i, []int{experts, 2 * v.ffn}, 2*v.ffn, 0, 2, experts, v.ffn)
		v.flat(name+"ffn_up_exps.bias", both+"_bias", i, []int{experts, 2 * v.ffn}, 2*v.ffn, 1, 2, experts, v.ffn)
		v.flat(name+"ffn_down_exps.bias", down+"_bias", i, []int{experts, v.hidden}, v.hidden, 0, 1, experts, v.hidden)
	})
}
