package hf

import "terrace/weights/gguf"

// The llama family: what llama.cpp files under "llama" (Llama 1 to 3.x, LongChat, SmolLM 1 and 2, Mistral, Mixtral), and
// Granite and SmolLM3, which share its tensors. GGUF files of these have permuted q and k rows; this view has not.
func init() {
	register("llama", family{"llama", llamaFigures, llamaTensors})
	register("mistral", family{"llama", mistralFigures, llamaTensors})
	register("mixtral", family{"llama", mixtralFigures, mixtralTensors})
	register("granite", family{"granite", graniteFigures, llamaTensors})
	register("smollm3", family{"smollm3", smollm3Figures, llamaTensors})
}

// llamaBasics reads what the family shares; false after a fault.
func llamaBasics(v *view, d defaults, theta float64) bool {
	if !v.figures(usualNames, d) {
		return false
	}
	if gguf.PermutesRotary(v.arch) {
		v.setOurs("rope.layout", "neox")
	}
	v.activation("hidden_act", "silu")
	v.rope(theta)
	return len(v.faults.list) == 0
}

func llamaFigures(v *view) { llamaBasics(v, defaults{context: 2048, eps: 1e-6}, 10000) }

func mistralFigures(v *view) {
	if llamaBasics(v, defaults{kvHeads: 8, context: 131072, eps: 1e-6}, 10000) {
		v.window(4096)
	}
}

func mixtralFigures(v *view) {
	if !llamaBasics(v, defaults{kvHeads: 8, context: 131072, eps: 1e-5}, 1e6) {
		return
	}
	v.window(0)
	v.experts(8, 2)
}

// experts reads how many experts a layer has and how many a token uses. Transformers takes num_local_experts and
// num_experts for the same figure: it writes the first today, and wrote the second for Qwen before version 5.
func (v *view) experts(def, usedDef int) {
	const local, plain, usedKey = "num_local_experts", "num_experts", "num_experts_per_tok"
	key := local
	if !v.cfg.has(local) && v.cfg.has(plain) {
		key = plain
	}
	experts := v.cfg.intOr(key, def, 1, maxExperts)
	used := v.cfg.intOr(usedKey, usedDef, 1, maxExperts)
	if also := v.cfg.intOr(plain, experts, 1, maxExperts); also != experts {
		v.faults.add("%s: %s %d contradicts %s %d: %w", v.cfg.where, plain, also, local, experts, ErrConfig)
	}
	if used > experts {
		v.faults.add("%s: %s %d is more than %s %d: %w", v.cfg.where, usedKey, used, key, experts, ErrConfig)
	}
	v.setInt("expert_count", experts)
	v.setInt("expert_used_count", used)
}

func graniteFigures(v *view) {
	if !llamaBasics(v, defaults{context: 2048, eps: 1e-6}, 10000) {
		return
	}
	const lo, hi = 1e-6, 1e6
	v.setFloat("embedding_scale", v.cfg.floatOr("embedding_multiplier", 1, lo, hi))
	v.setFloat("attention.scale", v.cfg.floatOr("attention_multiplier", 1, lo, hi))
	v.setFloat("residual_scale", v.cfg.floatOr("residual_multiplier", 1, lo, hi))
	v.setFloat("logit_scale", v.cfg.floatOr("logits_scaling", 1, lo, hi)) // the logits are divided by it
}

func smollm3Figures(v *view) {
	if !llamaBasics(v, defaults{kvHeads: 4, context: 32768, eps: 1e-6, tied: true}, 2e6) {
		return
	}
	rotates := smollm3Rotates(v)
	if rotates == nil {
		return
	}
	v.setOurs("rope.layers", rotates)
	if !v.cfg.boolOr("use_sliding_window", false) || !v.cfg.has("sliding_window") {
		return
	}
	sliding := v.layerTypes()
	if sliding == nil {
		sliding = make([]bool, v.layers)
		for i := range sliding {
			sliding[i] = rotates[i] == 0
		}
	}
	v.window(0)
	v.slidingLayers(sliding)
}

// smollm3Rotates reads no_rope_layers, which despite its name holds 1 for the layers that rotate.
func smollm3Rotates(v *view) []int32 {
	rotates := make([]int32, v.layers)
	if !v.cfg.has("no_rope_layers") {
		interval := v.cfg.period("no_rope_layer_interval", 4, maxLayers)
		for i := range rotates {
			if (i+1)%interval != 0 {
				rotates[i] = 1
			}
		}
		return rotates
	}
	for i, x := range v.cfg.numbers("no_rope_layers", v.layers, 0, 1) {
		rotates[i] = int32(x)
	}
	if len(v.faults.list) > 0 {
		return nil
	}
	return rotates
}

func llamaTensors(v *view) {
	bias, mlpBias := false, false
	if v.cfg.stringOr("model_type", "") != "mistral" {
		bias, mlpBias = v.cfg.boolOr("attention_bias", false), v.cfg.boolOr("mlp_bias", false)
	}
	v.outer(0)
	v.eachLayer("model.layers.", func(i int, name, hfName string) {
		v.attention(i, name, hfName, bias, bias)
		v.blockNorms(i, name, hfName, 0)
		v.gatedFFN(i, name, hfName+"mlp.", v.ffn, mlpBias)
	})
}

func mixtralTensors(v *view) {
	experts, err := v.meta.Int("llama.expert_count")
	if err != nil {
		v.faults.add("%w", err)
		return
	}
	v.outer(0)
	v.eachLayer("model.layers.", func(i int, name, hfName string) {
		v.attention(i, name, hfName, false, false)
		v.blockNorms(i, name, hfName, 0)
		moe := hfName + "block_sparse_moe."
		v.matrix(name+"ffn_gate_inp.weight", moe+"gate.weight", i, experts, v.hidden)
		v.stack(name+"ffn_gate_exps.weight", moe+"experts.%d.w1.weight", i, experts, v.ffn, v.hidden)
		v.stack(name+"ffn_down_exps.weight", moe+"experts.%d.w2.weight", i, experts, v.hidden, v.ffn)
		v.stack(name+"ffn_up_exps.weight", moe+"experts.%d.w3.weight", i, experts, v.ffn, v.hidden)
	})
}

// attention presents separate q, k, v and output projections.
func (v *view) attention(i int, name, hfName string, qkvBias, outBias bool) {
	q, kv := v.heads*v.headDim, v.kvHeads*v.headDim
	v.linear(name+"attn_q", hfName+"self_attn.q_proj", i, q, v.hidden, qkvBias)
	v.linear(name+"attn_k", hfName+"self_attn.k_proj", i, kv, v.hidden, qkvBias)
	v.linear(name+"attn_v", hfName+"self_attn.v_proj", i, kv, v.hidden, qkvBias)
	v.linear(name+"attn_output", hfName+"self_attn.o_proj", i, v.hidden, q, outBias)
}

// qkNorms presents the per-head norms of q and k.
func (v *view) qkNorms(i int, name, hfName string, plus float32) {
	v.vector(name+"attn_q_norm.weight", hfName+"self_attn.q_norm.weight", i, v.headDim, plus)
	v.vector(name+"attn_k_norm.weight", hfName+"self_attn.k_norm.weight", i, v.headDim, plus)
}

// blockNorms presents the norms before attention and before the feed-forward network.
func (v *view) blockNorms(i int, name, hfName string, plus float32) {
	v.vector(name+"attn_norm.weight", hfName+"input_layernorm.weight", i, v.hidden, plus)
	v.vector(name+"ffn_norm.weight", hfName+"post_attention_layernorm.weight", i, v.hidden, plus)
}

// gatedFFN presents gate, up and down of the given inner width.
func (v *view) gatedFFN(i int, name, hfName string, width int, bias bool) {
	v.linear(name+"ffn_gate", hfName+"gate_proj", i, width, v.hidden, bias)
	v.linear(name+"ffn_up", hfName+"up_proj", i, width, v.hidden, bias)
	v.linear(name+"ffn_down", hfName+"down_proj", i, v.hidden, width, bias)
}
