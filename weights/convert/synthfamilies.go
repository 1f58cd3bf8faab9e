package convert

import (
	"math"

	"terrace/internal/kernels/quant"
	"terrace/weights/gguf"
)

// family is an architecture whose layers differ.
type family struct {
	outer func(l *layout)                      // tensors outside of layers, beside embedding, last norm and head
	layer func(l *layout, i int, b string)     // those of layer i, whose names begin with b
	meta  func(s *Spec, set func(string, any)) // keys beside those of every decoder, which they replace
	fits  func(s *Spec) bool                   // whether its models can have the spec's experts, inputs and shared keys
	tied  bool                                 // the head is always the embedding
	norm  string                               // the last norm
}

var families = map[string]family{
	"gemma4":  {gemma4Outer, gemma4Layer, gemma4Meta, func(*Spec) bool { return true }, true, "output_norm"},
	"gpt-oss": {func(*layout) {}, gptOSSLayer, gptOSSMeta, func(s *Spec) bool { return s.Experts > 0 && mixed(s) }, false, "output_norm"},
	"qwen35":  {func(*layout) {}, qwen35Layer, qwen35Meta, plain, false, "output_norm"},
	"lfm2":    {func(*layout) {}, lfm2Layer, lfm2Meta, plain, true, "token_embd_norm"},

	"granitehybrid": {func(*layout) {}, graniteLayer, graniteMeta, mixed, false, "output_norm"},
	"nemotron_h":    {func(*layout) {}, nemotronLayer, nemotronMeta, mixed, false, "output_norm"},
	"deepseek2":     {func(*layout) {}, latentLayer, latentMeta, mixed, false, "output_norm"},
	"mistral3":      {func(*layout) {}, func(l *layout, _ int, b string) { l.decoder(b) }, ministralMeta, plain, false, "output_norm"},
	"olmo2":         {func(*layout) {}, olmoLayer, olmoMeta, plain, false, "output_norm"},
}

// family is that of the spec's architecture: its own, or what architectures of equal layers have in common.
func (s *Spec) family() family {
	if f, own := families[s.Arch]; own {
		return f
	}
	return family{func(*layout) {}, func(l *layout, _ int, b string) { l.decoder(b) }, func(*Spec, func(string, any)) {}, plain, s.Arch == "gemma3", "output_norm"}
}

func plain(s *Spec) bool { return s.Experts == 0 && mixed(s) }

// mixed allows experts.
func mixed(s *Spec) bool { return s.PerLayer == 0 && s.SharedKV == 0 }

// Gemma 4: one layer of nearLayers has no window, and heads twice as wide; the last SharedKV layers have no keys of their own and a network twice as wide.
const nearLayers = 5

func far(i int) bool { return i%nearLayers == nearLayers-1 }

func (s *Spec) shares(i int) bool { return i >= s.Layers-s.SharedKV }

func gemma4Outer(l *layout) {
	still := make([]float32, l.HeadDim) // of a wide head's pairs the first quarter turns
	for i := range still {
		if still[i] = 1; i >= l.HeadDim/4 {
			still[i] = 1e30
		}
	}
	l.list = append(l.list, random{Info: gguf.Info{Name: "rope_freqs.weight", Type: quant.F32, Shape: []int{l.HeadDim}}, given: still})
	if p := l.PerLayer; p > 0 {
		l.matrix("per_layer_token_embd.weight", 1, l.Vocab, l.Layers*p)
		l.matrix("per_layer_model_proj.weight", 1, l.Layers*p, l.Hidden)
		l.norm("per_layer_proj_norm", p)
	}
}

func gemma4Layer(l *layout, i int, b string) {
	dim, width := l.HeadDim, l.FFN
	if far(i) {
		dim *= 2
	}
	l.norm(b+"attn_norm", l.Hidden)
	l.norm(b+"ffn_norm", l.Hidden)
	l.vector(b+"post_attention_norm.weight", l.Hidden, l.out, 0.1*l.out)
	l.vector(b+"post_ffw_norm.weight", l.Hidden, l.out, 0.1*l.out)
	even := math.Sqrt(inverseRoot(dim)) // scores have no scale of their own
	l.vector(b+"attn_q_norm.weight", dim, even, 0.1*even)
	if l.shares(i) {
		width *= 2
		l.matrix(b+"attn_q.weight", 1, l.Heads*dim, l.Hidden)
		l.matrix(b+"attn_output.weight", l.out, l.Hidden, l.Heads*dim)
	} else {
		l.vector(b+"attn_k_norm.weight", dim, even, 0.1*even)
		l.attention(b, l.KVHeads, dim)
	}
	l.network(b, width)
	l.vector(b+"layer_output_scale.weight", 1, 1, 0)
	if p := l.PerLayer; p > 0 {
		l.matrix(b+"inp_gate.weight", 1, p, l.Hidden)
		l.matrix(b+"proj.weight", l.out, l.Hidden, p)
		l.vector(b+"post_norm.weight", l.Hidden, l.out, 0.1*l.out)
	}
	if l.Experts == 0 {
		return
	}
	l.experts(b, false)
	for _, name := range []string{"ffn_gate_inp.scale", "pre_ffw_norm_2.weight", "post_ffw_norm_1.weight", "post_ffw_norm_2.weight"} {
		l.vector(b+name, l.Hidden, 1, 0.1)
	}
	l.vector(b+"ffn_down_exps.scale", l.Experts, 1, 0.1)
}

// experts adds a router and its experts, with biases or without.
func (l *layout) experts(b string, biases bool) {
	l.matrix(b+"ffn_gate_inp.weight", 1, l.Experts, l.Hidden)
	l.matrix(b+"ffn_gate_exps.weight", 1, l.Experts, l.ExpertFFN, l.Hidden)
	l.matrix(b+"ffn_up_exps.weight", 1, l.Experts, l.ExpertFFN, l.Hidden)
	l.matrix(b+"ffn_down_exps.weight", l.out, l.Experts, l.Hidden, l.ExpertFFN)
	if !biases {
		return
	}
	small := func(name string, shape ...int) {
		l.numbers(b+name, 0, 0.1, shape...)
	}
	small("ffn_gate_inp.bias", l.Experts)
	small("ffn_gate_exps.bias", l.Experts, l.ExpertFFN)
	small("ffn_up_exps.bias", l.Experts, l.ExpertFFN)
	small("ffn_down_exps.bias", l.Experts, l.Hidden)
}

func gemma4Meta(s *Spec, set func(string, any)) {
	widths, windows := make([]int32, s.Layers), make([]int32, s.Layers)
	for i := range widths {
		if widths[i] = int32(s.FFN); s.shares(i) {
			widths[i] *= 2
		}
		if !far(i) {
			windows[i] = 1
		}
	}
	set("feed_forward_length", widths)
	set("attention.sliding_window_pattern", windows)
	set("attention.sliding_window", uint32(512))
	set("attention.shared_kv_layers", uint32(s.SharedKV))
	set("embedding_length_per_layer_input", uint32(s.PerLayer))
	set("final_logit_softcapping", float32(30))
	for _, key := range []string{"attention.key_length", "attention.value_length", "rope.dimension_count"} {
		set(key, uint32(2*s.HeadDim))
		set(key+"_swa", uint32(s.HeadDim))
	}
	set("rope.freq_base_swa", float32(10000))
	expertMeta(s, set)
}

func expertMeta(s *Spec, set func(string, any)) {
	if s.Experts > 0 {
		set("expert_count", uint32(s.Experts))
		set("expert_used_count", uint32(s.ExpertsUsed))
		set("expert_feed_forward_length", uint32(s.ExpertFFN))
	}
}

// gpt-oss: every other layer has a window.
func gptOSSLayer(l *layout, _ int, b string) {
	l.norm(b+"attn_norm", l.Hidden)
	l.norm(b+"post_attention_norm", l.Hidden)
	l.attention(b, l.KVHeads, l.HeadDim)
	l.vector(b+"attn_q.bias", l.Heads*l.HeadDim, 0, 0.1)
	l.vector(b+"attn_k.bias", l.KVHeads*l.HeadDim, 0, 0.1)
	l.vector(b+"attn_v.bias", l.KVHeads*l.HeadDim, 0, 0.1)
	l.vector(b+"attn_output.bias", l.Hidden, 0, 0.1)
	l.vector(b+"attn_sinks.weight", l.Heads, 0, 1)
	l.experts(b, true)
}

func gptOSSMeta(s *Spec, set func(string, any)) {
	set("attention.sliding_window", uint32(128))
	set("rope.freq_base", float32(150000))
	set("rope.scaling.type", "yarn")
	set("rope.scaling.factor", float32(32))
	set("rope.scaling.original_context_length", uint32(4096))
	expertMeta(s, set)
}

// Qwen 3.5: one layer of four attends, the others keep state: heads of 128, one for each 64 of the width and 16 at most, from a width of 2,560 on
// twice as many of values.
const deltaDim = 128

func (s *Spec) deltaHeads() (keys, values int) {
	keys = min(16, max(1, s.Hidden/64))
	if values = keys; s.Hidden >= 2560 {
		values *= 2
	}
	return keys, values
}

func qwen35Layer(l *layout, i int, b string) {
	l.norm(b+"attn_norm", l.Hidden)
	l.norm(b+"post_attention_norm", l.Hidden)
	l.network(b, l.FFN)
	if i%4 == 3 {
		l.matrix(b+"attn_q.weight", 1, 2*l.Heads*l.HeadDim, l.Hidden) // with its gates
		l.matrix(b+"attn_k.weight", 1, l.KVHeads*l.HeadDim, l.Hidden)
		l.matrix(b+"attn_v.weight", 1, l.KVHeads*l.HeadDim, l.Hidden)
		l.matrix(b+"attn_output.weight", l.out, l.Hidden, l.Heads*l.HeadDim)
		l.norm(b+"attn_q_norm", l.HeadDim)
		l.norm(b+"attn_k_norm", l.HeadDim)
		return
	}
	keys, values := l.deltaHeads()
	channels, inner := (2*keys+values)*deltaDim, values*deltaDim
	l.matrix(b+"attn_qkv.weight", 1, channels, l.Hidden)
	l.matrix(b+"attn_gate.weight", 1, inner, l.Hidden)
	l.matrix(b+"ssm_alpha.weight", 1, values, l.Hidden)
	l.matrix(b+"ssm_beta.weight", 1, values, l.Hidden)
	l.matrix(b+"ssm_conv1d.weight", 1, channels, 4)
	l.vector(b+"ssm_a", values, -0.5, 0.1)
	l.vector(b+"ssm_dt.bias", values, 0, 1)
	l.norm(b+"ssm_norm", deltaDim)
	l.matrix(b+"ssm_out.weight", l.out, l.Hidden, inner)
}

func qwen35Meta(s *Spec, set func(string, any)) {
	keys, values := s.deltaHeads()
	set("full_attention_interval", uint32(4))
	set("ssm.conv_kernel", uint32(4))
	set("ssm.state_size", uint32(deltaDim))
	set("ssm.group_count", uint32(keys))
	set("ssm.time_step_rank", uint32(values))
	set("ssm.inner_size", uint32(values*deltaDim))
	pairs := max(1, s.HeadDim/8)
	set("rope.dimension_count", uint32(2*pairs))
	set("rope.dimension_sections", []int32{int32(pairs+2) / 3, int32(pairs+1) / 3, int32(pairs) / 3, 0})
}

// LFM2: the third of each three layers attends, the others convolve.
func attends(i int) bool { return i%3 == 2 }

func lfm2Layer(l *layout, i int, b string) {
	l.norm(b+"attn_norm", l.Hidden)
	l.norm(b+"ffn_norm", l.Hidden)
	l.network(b, l.FFN)
	if attends(i) {
		l.attention(b, l.KVHeads, l.HeadDim)
		l.norm(b+"attn_q_norm", l.HeadDim)
		l.norm(b+"attn_k_norm", l.HeadDim)
		return
	}
	l.matrix(b+"shortconv.in_proj.weight", 1, 3*l.Hidden, l.Hidden)
	l.matrix(b+"shortconv.conv.weight", 1, l.Hidden, 3)
	l.matrix(b+"shortconv.out_proj.weight", l.out, l.Hidden, l.Hidden)
}

func lfm2Meta(s *Spec, set func(string, any)) {
	set("attention.head_count_kv", s.attending(attends))
	set("shortconv.l_cache", uint32(3))
}

// ministralMeta: YaRN, and queries that grow beyond the context of the first training.
func ministralMeta(_ *Spec, set func(string, any)) {
	set("rope.scaling.type", "yarn")
	set("rope.scaling.factor", float32(16))
	set("rope.scaling.original_context_length", uint32(16384))
	set("attention.temperature_scale", float32(0.1))
	set("attention.temperature_length", uint32(16384))
}

// OLMo 3: norms behind the blocks, of q and k over all heads; the last of each four layers has no window.
func olmoLayer(l *layout, _ int, b string) {
	l.attention(b, l.KVHeads, l.HeadDim)
	l.norm(b+"attn_q_norm", l.Heads*l.HeadDim)
	l.norm(b+"attn_k_norm", l.KVHeads*l.HeadDim)
	l.vector(b+"post_attention_norm.weight", l.Hidden, l.out, 0.1*l.out)
	l.vector(b+"post_ffw_norm.weight", l.Hidden, l.out, 0.1*l.out)
	l.network(b, l.FFN)
}

func olmoMeta(_ *Spec, set func(string, any)) { set("attention.sliding_window", uint32(4096)) }
