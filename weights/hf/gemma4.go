package hf

import (
	"maps"
	"slices"
	"strconv"
)

// Gemma 4 (text): norm weights are stored as they are. Layers with a window and layers without differ in heads, and the last ones have no keys and
// values of their own.
func init() {
	register("gemma4_text", family{"gemma4", gemma4Figures, gemma4Tensors})
	register("gemma4_unified_text", family{"gemma4", gemma4UnifiedFigures, gemma4Tensors})
	aliases["gemma4"], aliases["gemma4_unified"] = "gemma4_text", "gemma4_unified_text"
}

const maxPerLayer = 1 << 14

func gemma4Figures(v *view) {
	if gemmaLate(v, defaults{heads: 8, kvHeads: 4, headDim: 256, vocab: 262144, context: 131072}, usualNames, 512, 256) {
		gemma4Rest(v)
	}
}

// gemma4UnifiedFigures is for the model without encoders of images and sound (12B): it has no per-layer inputs and no experts.
func gemma4UnifiedFigures(v *view) {
	if gemmaLate(v, defaults{heads: 8, kvHeads: 4, headDim: 256, vocab: 262144, context: 262144}, usualNames, 1024, 0) {
		gemma4Rest(v)
	}
}

// gemma4Rest reads what gemmaLate does not.
func gemma4Rest(v *view) {
	c := v.cfg
	v.softcap("final_logit_softcapping", 0)
	layers := gemma4Layers(v)
	if len(v.faults.list) > 0 {
		return
	}
	dim, kv, widths := [2]int{}, make([]int32, v.layers), make([]int32, v.layers) // dim: of layers without a window and with one
	for i, l := range layers {
		kind := 0
		if l.sliding {
			kind = 1
		}
		v.refuseUnless(dim[kind] == 0 || dim[kind] == l.dim, "head_dim is %d and, in layer %d of the same kind, %d: want one for each kind of layer", dim[kind], i, l.dim)
		v.refuseUnless(v.heads%l.kv == 0, "num_attention_heads %d is not a multiple of num_key_value_heads %d in layer %d", v.heads, l.kv, i)
		dim[kind], kv[i], widths[i] = l.dim, int32(l.kv), int32(l.ffn)
	}
	for kind := range dim {
		if dim[kind] == 0 {
			dim[kind] = dim[1-kind]
		}
	}
	v.set("attention.head_count_kv", kv)
	v.set("feed_forward_length", widths)
	for key, n := range map[string]int{"attention.key_length": dim[0], "attention.value_length": dim[0], "attention.key_length_swa": dim[1], "attention.value_length_swa": dim[1]} {
		v.setInt(key, n)
	}
	v.headDim = dim[0]
	full := v.rotary("full_attention", "rope_theta", 1e6)
	if !c.has("rope_parameters") { // the class's own
		full.method, full.dim, full.turns = "proportional", v.headDim, v.headDim/8
	}
	v.publishRope(full)
	v.headDim = dim[1]
	v.nearRope(v.rotary("sliding_attention", "rope_theta", 10000))
	if c.boolOr("enable_moe_block", false) {
		experts, used := c.int("num_experts", 1, maxExperts), c.int("top_k_experts", 1, maxExperts)
		v.refuseUnless(used <= experts, "top_k_experts %d is more than num_experts %d", used, experts)
		v.setInt("expert_count", experts)
		v.setInt("expert_used_count", used)
		v.expertWidth("moe_intermediate_size", 0)
	}
}

// nearRope publishes the rotary embedding of layers with a window.
func (v *view) nearRope(r rotary) {
	if r.method != "default" {
		r.params.wrong("rope_type", "default (the only one supported for sliding layers)")
	}
	v.setFloat("rope.freq_base_swa", r.theta)
	v.setInt("rope.dimension_count_swa", r.dim)
}

// gemmaLate reads what Gemma 3n and 4 have in common; window and perLayer are the class's. False after a fault.
func gemmaLate(v *view, d defaults, n names, window, perLayer int) bool {
	c := v.cfg
	d.eps, d.tied, d.numbers = 1e-6, true, true
	if !v.figures(n, d) {
		return false
	}
	v.activation("hidden_activation", "gelu_pytorch_tanh")
	const both = "use_bidirectional_attention"
	if c.has(both) && c.values[both] != "vision" && c.values[both] != false { // "vision" is for images alone
		c.wrong(both, `null or "vision" (an encoder is not read)`)
	}
	v.setInt("attention.sliding_window", c.intOr("sliding_window", window, 1, maxContext))
	v.setInt("embedding_length_per_layer_input", c.intOr("hidden_size_per_layer_input", perLayer, 0, maxPerLayer))
	return len(v.faults.list) == 0
}

// slides reads and publishes which layers have a window; each period-th has none where the config does not say. forced: the last never has one.
func (v *view) slides(period int, forced bool) []bool {
	sliding := v.layerTypes()
	if sliding == nil {
		sliding = make([]bool, v.layers)
		for i := range sliding {
			sliding[i] = (i+1)%period != 0
		}
	}
	if forced {
		sliding[v.layers-1] = false
	}
	v.slidingLayers(sliding)
	return sliding
}

// shared reads and publishes how many of the last layers read an earlier layer's keys and values.
func (v *view) shared(def int, sliding []bool) int {
	const key = "num_kv_shared_layers"
	n := v.cfg.intOr(key, def, 0, v.layers-1)
	if n >= v.layers { // the default of a larger model
		v.refuseUnless(false, "%s is not given, and %d, its default, leaves none of %d layers keys and values of its own", key, n, v.layers)
		return 0
	}
	own := v.layers - n
	for i := own; i < v.layers; i++ {
		v.refuseUnless(slices.Contains(sliding[:own], sliding[i]), "%s %d: layer %d finds no earlier layer of its kind that keeps keys and values", key, n, i)
	}
	v.setInt("attention.shared_kv_layers", n)
	return n
}

// gemma4Layer is what layers of Gemma 4 differ in.
type gemma4Layer struct {
	sliding, shares, values bool // values: a projection of values of its own
	dim, kv, ffn            int
}

// gemma4Layers reads them. Today's files say which layers differ (per_layer_config), the first ones had a key for all layers without a window.
func gemma4Layers(v *view) []gemma4Layer {
	c, layers := v.cfg, make([]gemma4Layer, v.layers)
	equal, wide, sliding := c.boolOr("attention_k_eq_v", false), c.boolOr("use_double_wide_mlp", false), v.slides(6, true)
	sharing := v.shared(0, sliding)
	near := c.intOr("head_dim", 256, 1, maxHeadDim)
	far, farKV := near, v.kvHeads
	if !c.has("per_layer_config") {
		far = c.intOr("global_head_dim", 512, 1, maxHeadDim)
		if equal {
			farKV = c.intOr("num_global_key_value_heads", v.kvHeads, 1, maxHeads)
		}
	}
	for i := range layers {
		l := &layers[i]
		*l = gemma4Layer{sliding: sliding[i], shares: i >= v.layers-sharing, values: sliding[i] || !equal, dim: near, kv: v.kvHeads, ffn: v.ffn}
		if !l.sliding {
			l.dim, l.kv = far, farKV
		}
		if l.shares && wide {
			l.ffn = 2 * v.ffn
		}
	}
	overrides, _ := c.object("per_layer_config")
	for _, key := range slices.Sorted(maps.Keys(overrides.values)) {
		i, err := strconv.Atoi(key)
		one, isObject := overrides.object(key)
		if err != nil || i < 0 || i >= v.layers || !isObject {
			overrides.wrong(key, "an object under the number of a layer")
			return layers
		}
		for name := range one.values {
			if name != "head_dim" && name != "num_key_value_heads" {
				one.wrong(name, "nothing (head_dim and num_key_value_heads may differ by layer)")
			}
		}
		layers[i].dim, layers[i].kv = one.intOr("head_dim", layers[i].dim, 1, maxHeadDim), one.intOr("num_key_value_heads", layers[i].kv, 1, maxHeads)
	}
	return layers
}

func gemma4Tensors(v *view) {
	layers, bias, experts := gemma4Layers(v), v.cfg.boolOr("attention_bias", false), v.published("expert_count")
	v.outer(0)
	v.perLayerOuter()
	v.eachLayer("model.layers.", func(i int, name, hfName string) {
		l := &layers[i]
		v.headDim, v.kvHeads = l.dim, l.kv
		v.sharingAttention(i, name, hfName, bias, !l.shares, l.values)
		v.gatedFFN(i, name, hfName+"mlp.", l.ffn, false)
		v.perLayerInputs(i, name, hfName)
		v.vector(name+"layer_output_scale.weight", hfName+"layer_scalar", i, 1, 0)
		if experts == 0 {
			return
		}
		v.matrix(name+"ffn_gate_inp.weight", hfName+"router.proj.weight", i, experts, v.hidden)
		v.vector(name+"ffn_gate_inp.scale", hfName+"router.scale", i, v.hidden, 0)
		v.vector(name+"ffn_down_exps.scale", hfName+"router.per_expert_scale", i, experts, 0)
		v.vector(name+"post_ffw_norm_1.weight", hfName+"post_feedforward_layernorm_1.weight", i, v.hidden, 0)
		v.vector(name+"post_ffw_norm_2.weight", hfName+"post_feedforward_layernorm_2.weight", i, v.hidden, 0)
		v.vector(name+"pre_ffw_norm_2.weight", hfName+"pre_feedforward_layernorm_2.weight", i, v.hidden, 0)
		v.expertStacks(i, name, hfName+"experts.", projections)
	})
}

// sharingAttention presents the norms of a layer's blocks and its attention, with keys and values where it has some of its own.
func (v *view) sharingAttention(i int, name, hfName string, bias, keys, values bool) {
	at, q, kv := hfName+"self_attn.", v.heads*v.headDim, v.kvHeads*v.headDim
	v.vector(name+"attn_norm.weight", hfName+"input_layernorm.weight", i, v.hidden, 0)
	v.vector(name+"post_attention_norm.weight", hfName+"post_attention_layernorm.weight", i, v.hidden, 0)
	v.vector(name+"ffn_norm.weight", hfName+"pre_feedforward_layernorm.weight", i, v.hidden, 0)
	v.vector(name+"post_ffw_norm.weight", hfName+"post_feedforward_layernorm.weight", i, v.hidden, 0)
	v.linear(name+"attn_q", at+"q_proj", i, q, v.hidden, bias)
	v.vector(name+"attn_q_norm.weight", at+"q_norm.weight", i, v.headDim, 0)
	v.linear(name+"attn_output", at+"o_proj", i, v.hidden, q, bias)
	if !keys {
		return
	}
	v.linear(name+"attn_k", at+"k_proj", i, kv, v.hidden, bias)
	v.vector(name+"attn_k_norm.weight", at+"k_norm.weight", i, v.headDim, 0)
	if values {
		v.linear(name+"attn_v", at+"v_proj", i, kv, v.hidden, bias)
	}
}

// perLayerOuter presents the table of inputs of all layers and what is made of a token's embedding for them.
func (v *view) perLayerOuter() {
	size := v.published("embedding_length_per_layer_input")
	if size == 0 {
		return
	}
	rows := v.cfg.intOr("vocab_size_per_layer_input", 262144, 1, maxVocab)
	v.matrix("per_layer_token_embd.weight", "model.embed_tokens_per_layer.weight", -1, rows, v.layers*size)
	v.matrix("per_layer_model_proj.weight", "model.per_layer_model_projection.weight", -1, v.layers*size, v.hidden)
	v.vector("per_layer_proj_norm.weight", "model.per_layer_projection_norm.weight", -1, size, 0)
}

// perLayerInputs presents what a layer does with its input.
func (v *view) perLayerInputs(i int, name, hfName string) {
	size := v.published("embedding_length_per_layer_input")
	if size == 0 {
		return
	}
	v.matrix(name+"inp_gate.weight", hfName+"per_layer_input_gate.weight", i, size, v.hidden)
	v.matrix(name+"proj.weight", hfName+"per_layer_projection.weight", i, v.hidden, size)
	v.vector(name+"post_norm.weight", hfName+"post_per_layer_input_norm.weight", i, v.hidden, 0)
}
