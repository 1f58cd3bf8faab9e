package hf

import (
	"encoding/json"
	"strconv"
)

// Granite 4 hybrids and Nemotron-H: Mamba-2 and attention.
func init() {
	register("granitemoehybrid", family{"granitehybrid", graniteHybridFigures, graniteHybridTensors})
	register("nemotron_h", family{"nemotron_h_moe", nemotronFigures, nemotronTensors})
}

func graniteHybridFigures(v *view) {
	graniteFigures(v)
	if len(v.faults.list) > 0 {
		return
	}
	v.siluConvolution()
	c := v.cfg
	kind := c.stringOr("position_embedding_type", "nope")
	v.refuseUnless(kind == "rope" || kind == "nope", "position_embedding_type is %q, want rope or nope", kind)
	v.set("rope.scaling.finetuned", kind == "rope")
	recurs := v.recurrentLayers(map[string]bool{"mamba": true, "linear_attention": true, "attention": false, "full_attention": false}, func(int) bool { return true })
	v.kvHeadsOf(recurs)
	inner := int(c.floatOr("mamba_expand", 2, 0.01, 64) * float64(v.hidden))
	v.ssmFigures(ssm{heads: "mamba_n_heads", headDim: "mamba_d_head", state: "mamba_d_state", groups: "mamba_n_groups", kernel: "mamba_d_conv",
		defHeads: 128, defDim: max(1, inner/128), defState: 256, defGroups: 1}, inner)
	v.timeStepLimit()
	shared := c.intOr("shared_intermediate_size", 1024, 1, maxWidth)
	if experts := c.intOr("num_local_experts", 8, 0, maxExperts); experts == 0 {
		v.setInt("feed_forward_length", shared)
		return
	}
	v.experts(8, 2)
	v.setInt("expert_feed_forward_length", v.ffn)
	v.setInt("expert_shared_feed_forward_length", shared)
}

func graniteHybridTensors(v *view) {
	bias, mambaBias, convBias := v.cfg.boolOr("attention_bias", false), v.cfg.boolOr("mamba_proj_bias", false), v.cfg.boolOr("mamba_conv_bias", true)
	experts, shared, suffix := v.published("expert_count"), v.published("expert_shared_feed_forward_length"), "_shexp"
	if experts == 0 {
		shared, suffix = v.published("feed_forward_length"), ""
	}
	v.outer(0)
	v.eachLayer("model.layers.", func(i int, name, hfName string) {
		v.blockNorms(i, name, hfName, 0)
		if v.recurs(i) {
			v.ssmTensors(i, name, hfName+"mamba.", mambaBias, convBias, true)
		} else {
			v.attention(i, name, hfName, bias, bias)
		}
		if moe := hfName + "block_sparse_moe."; experts > 0 {
			v.matrix(name+"ffn_gate_inp.weight", moe+"router.layer.weight", i, experts, v.hidden)
			v.packedExperts(i, name, moe+"input_linear.weight", moe+"output_linear.weight", experts, v.ffn)
		}
		both := hfName + "shared_mlp.input_linear.weight"
		v.rowsPicked(name+"ffn_gate"+suffix+".weight", both, i, 2*shared, v.hidden, span(0, shared))
		v.rowsPicked(name+"ffn_up"+suffix+".weight", both, i, 2*shared, v.hidden, span(shared, shared))
		v.matrix(name+"ffn_down"+suffix+".weight", hfName+"shared_mlp.output_linear.weight", i, v.hidden, shared)
	})
}

// span is n numbers from first on.
func span(first, n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = first + i
	}
	return out
}

// nemotronKinds are the layers' words and letters.
var nemotronKinds = map[string]byte{"mamba": 'M', "linear_attention": 'M', "M": 'M', "attention": '*', "full_attention": '*', "*": '*', "mlp": '-', "-": '-', "moe": 'E', "E": 'E'}

// nemotronPattern reads what each layer is, a letter each, from layers_block_type or hybrid_override_pattern; "" after a fault.
func (v *view) nemotronPattern() string {
	key := "layers_block_type"
	var words []string
	if list, ok := v.cfg.values[key].([]any); ok {
		for _, x := range list {
			word, _ := x.(string) // another type is no kind of layer
			words = append(words, word)
		}
	} else {
		key = "hybrid_override_pattern"
		for _, letter := range v.cfg.stringOr(key, "") {
			words = append(words, string(letter))
		}
	}
	pattern := make([]byte, 0, len(words))
	for _, word := range words {
		if kind, ok := nemotronKinds[word]; ok {
			pattern = append(pattern, kind)
		}
	}
	if n := len(pattern); n == 0 || n != len(words) || n > maxLayers || v.cfg.intOr("num_hidden_layers", n, 1, maxLayers) != n {
		v.cfg.wrong(key, "a list of each layer's kind (mamba, attention, mlp, moe) or letters M, *, - and E, as many as num_hidden_layers")
		return ""
	}
	return string(pattern)
}

func nemotronFigures(v *view) {
	c := v.cfg
	pattern := v.nemotronPattern()
	if pattern == "" {
		return
	}
	c.values["num_hidden_layers"] = json.Number(strconv.Itoa(len(pattern)))
	n := usualNames
	if n.eps = ""; c.has("attention_head_dim") && !c.has("head_dim") {
		n.headDim = "attention_head_dim"
	}
	if !v.figures(n, defaults{heads: 32, kvHeads: 8, headDim: 128, context: 4096}) {
		return
	}
	v.setFloat("attention.layer_norm_epsilon", c.floatOr("layer_norm_epsilon", 1e-5, 1e-20, 0.5))
	for key, want := range map[string]string{"mlp_hidden_act": "relu2", "mamba_hidden_act": "silu"} {
		v.refuseUnless(c.stringOr(key, want) == want, "%s is %q, want %s", key, c.values[key], want)
	}
	v.refuseUnless(!c.has("sliding_window"), "sliding_window is not null")
	kv, widths, recurs, experts := make([]int32, v.layers), make([]int32, v.layers), make([]int32, v.layers), 0
	for i, kind := range []byte(pattern) {
		switch kind {
		case '*':
			kv[i] = int32(v.kvHeads)
		case 'M':
			recurs[i] = 1
		case 'E':
			experts++
			widths[i] = int32(c.intOr("moe_intermediate_size", 7688, 1, maxWidth))
		default:
			widths[i] = int32(v.ffn)
		}
	}
	v.set("attention.head_count_kv", kv)
	v.set("attention.recurrent_layers", recurs)
	v.set("feed_forward_length", widths)
	v.ssmFigures(ssm{heads: "mamba_num_heads", headDim: "mamba_head_dim", state: "ssm_state_size", groups: "n_groups", kernel: "conv_kernel",
		defHeads: 128, defDim: 64, defState: 128, defGroups: 8}, 0)
	v.setOurs("ssm.dt_min", float32(c.floatOr("time_step_min", 0.001, 0, 1e3)))
	if experts > 0 {
		v.expertsFrom("n_routed_experts", "num_experts_per_tok", 8, 2)
		v.expertWidth("moe_intermediate_size", 7688)
		v.setInt("expert_shared_feed_forward_length", c.intOr("moe_shared_expert_intermediate_size", 7688, 1, maxWidth))
		v.groups(1, 1)
		v.weighing(true, 1)
		if c.has("moe_latent_size") {
			v.setInt("moe_latent_size", c.int("moe_latent_size", 1, maxWidth))
		}
	}
}

func nemotronTensors(v *view) {
	c := v.cfg
	mlpBias, convBias := c.boolOr("mlp_bias", false), c.boolOr("use_conv_bias", true)
	experts, width, shared := v.published("expert_count"), v.published("expert_feed_forward_length"), v.published("expert_shared_feed_forward_length")
	q, kv, pattern := v.heads*v.headDim, v.kvHeads*v.headDim, v.nemotronPattern()
	v.matrix("token_embd.weight", "backbone.embeddings.weight", -1, v.vocab, v.hidden)
	v.vector("output_norm.weight", "backbone.norm_f.weight", -1, v.hidden, 0)
	v.head("lm_head.weight", "backbone.embeddings.weight", v.hidden)
	v.eachLayer("backbone.layers.", func(i int, name, hfName string) {
		v.vector(name+"attn_norm.weight", hfName+"norm.weight", i, v.hidden, 0)
		mixer := hfName + "mixer."
		switch pattern[i] {
		case 'M':
			v.ssmTensors(i, name, mixer, c.boolOr("use_bias", false), convBias, true)
		case '*':
			bias := c.boolOr("attention_bias", false) && v.has(mixer+"q_proj.bias") // the class has none
			v.linear(name+"attn_q", mixer+"q_proj", i, q, v.hidden, bias)
			v.linear(name+"attn_k", mixer+"k_proj", i, kv, v.hidden, bias)
			v.linear(name+"attn_v", mixer+"v_proj", i, kv, v.hidden, bias)
			v.linear(name+"attn_output", mixer+"o_proj", i, v.hidden, q, bias)
		case 'E':
			v.matrix(name+"ffn_gate_inp.weight", mixer+"gate.weight", i, experts, v.hidden)
			v.choiceBias(i, name, mixer+"gate.e_score_correction_bias")
			wide := v.hidden
			if latent := v.published("moe_latent_size"); latent > 0 {
				wide = latent
				v.linear(name+"ffn_latent_down", mixer+"fc1_latent_proj", i, latent, v.hidden, mlpBias)
				v.linear(name+"ffn_latent_up", mixer+"fc2_latent_proj", i, v.hidden, latent, mlpBias)
			}
			v.stack(name+"ffn_up_exps.weight", mixer+"experts.%d.up_proj.weight", i, experts, width, wide)
			v.stack(name+"ffn_down_exps.weight", mixer+"experts.%d.down_proj.weight", i, experts, wide, width)
			v.linear(name+"ffn_up_shexp", mixer+"shared_experts.up_proj", i, shared, v.hidden, mlpBias)
			v.linear(name+"ffn_down_shexp", mixer+"shared_experts.down_proj", i, v.hidden, shared, mlpBias)
		default:
			v.linear(name+"ffn_up", mixer+"up_proj", i, v.ffn, v.hidden, mlpBias)
			v.linear(name+"ffn_down", mixer+"down_proj", i, v.hidden, v.ffn, mlpBias)
		}
	})
}
