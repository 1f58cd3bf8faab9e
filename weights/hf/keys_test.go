package hf_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"terrace/weights/gguf"
	"terrace/weights/hf"
	"terrace/weights/hf/hftest"
)

// value prints a metadata value of whatever kind.
func value(m *gguf.Meta, key string) string {
	if !m.Has(key) {
		return "absent"
	}
	if list, err := m.Ints(key); err == nil {
		return fmt.Sprint(list)
	}
	if n, err := m.Int(key); err == nil {
		return fmt.Sprint(n)
	}
	if x, err := m.Float(key); err == nil {
		return fmt.Sprintf("%.6g", x)
	}
	if b, err := m.Bool(key); err == nil {
		return fmt.Sprint(b)
	}
	s, _ := m.String(key)
	return s
}

// TestKeys checks what configs turn into where no golden has it.
func TestKeys(t *testing.T) {
	type keys map[string]string
	null := json.RawMessage("null")
	qkvBias := map[string][]int{"self_attn.q_proj.bias": {16}, "self_attn.k_proj.bias": {16}, "self_attn.v_proj.bias": {16},
		"self_attn.k_proj.weight": {16, 16}, "self_attn.v_proj.weight": {16, 16}}
	gemmaNorms := map[string][]int{"pre_feedforward_layernorm.weight": {16}, "post_feedforward_layernorm.weight": {16},
		"self_attn.q_norm.weight": {8}, "self_attn.k_norm.weight": {8}}
	for name, c := range map[string]struct {
		change config
		extra  map[string][]int // tensors added to every layer
		want   keys
	}{
		"llama": {config{}, nil, keys{"general.architecture": "llama", "llama.block_count": "2", "llama.attention.head_count_kv": "1",
			"llama.attention.layer_norm_rms_epsilon": "1e-06", "llama.rope.freq_base": "10000", "llama.rope.dimension_count": "8",
			"terrace.rope.layout": "neox", "terrace.activation": "absent", "llama.attention.sliding_window": "absent"}},
		"mistral without window":      {config{"model_type": "mistral", "sliding_window": nil}, nil, keys{"llama.attention.sliding_window": "4096"}},
		"mistral's biases do nothing": {config{"model_type": "mistral", "attention_bias": true}, nil, keys{"llama.attention.sliding_window": "4096"}},
		"other activation":            {config{"hidden_act": "gelu_new"}, nil, keys{"terrace.activation": "gelu_tanh"}},
		"yarn": {config{"rope_scaling": config{"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 16, "beta_fast": 16}}, nil,
			keys{"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": "4", "llama.rope.scaling.original_context_length": "16",
				"llama.rope.scaling.yarn_beta_fast": "16", "llama.rope.scaling.attn_factor": "absent",
				"terrace.rope.scaling.attention_factor": fmt.Sprintf("%.6g", 0.1*math.Log(4)+1)}},
		"yarn with mscale": {config{"rope_scaling": config{"type": "yarn", "factor": 4, "mscale": 1, "mscale_all_dim": 1, "truncate": false}}, nil,
			keys{"terrace.rope.scaling.attention_factor": "1", "terrace.rope.scaling.truncate": "false",
				"llama.rope.scaling.attn_factor": fmt.Sprintf("%.6g", 1/(0.1*math.Log(4)+1))}},
		"dynamic": {config{"rope_scaling": config{"type": "dynamic", "factor": 2}}, nil,
			keys{"llama.rope.scaling.type": "absent", "terrace.rope.scaling.type": "dynamic", "terrace.rope.scaling.original_context_length": "64"}},
		"transformers 5": {config{"rope_parameters": config{"rope_type": "linear", "factor": 2, "rope_theta": 5e5}}, nil,
			keys{"llama.rope.freq_base": "500000", "llama.rope.scaling.factor": "2"}},
		"longchat": {config{"rope_condense_ratio": 8}, nil, keys{"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": "8"}},
		"mistral with null": {config{"model_type": "mistral", "sliding_window": json.RawMessage("null")}, nil,
			keys{"llama.attention.sliding_window": "absent"}},
		"gemma's default heads": {config{"model_type": "gemma", "num_key_value_heads": 1, "head_dim": json.RawMessage("8")}, nil,
			keys{"gemma.attention.key_length": "8"}},
		"empty rope_scaling": {config{"rope_scaling": nil, "rope_theta": 1e6}, nil, keys{"llama.rope.freq_base": "1e+06", "llama.rope.scaling.type": "absent"}},
		"smollm3 window": {config{"model_type": "smollm3", "no_rope_layer_interval": 2, "use_sliding_window": true, "sliding_window": 7}, nil,
			keys{"terrace.rope.layers": "[1 0]", "smollm3.attention.sliding_window": "7", "smollm3.attention.sliding_window_pattern": "[0 1]",
				"smollm3.rope.freq_base": "2e+06"}},
		"granite": {config{"model_type": "granite", "logits_scaling": 4, "attention_multiplier": 0.5}, nil,
			keys{"granite.logit_scale": "4", "granite.attention.scale": "0.5", "granite.residual_scale": "1"}},
		"qwen3 window": {config{"model_type": "qwen3", "use_sliding_window": true, "sliding_window": 5, "max_window_layers": 1},
			map[string][]int{"self_attn.q_norm.weight": {8}, "self_attn.k_norm.weight": {8}},
			keys{"qwen3.attention.sliding_window": "5", "qwen3.attention.sliding_window_pattern": "[0 1]", "terrace.rope.layout": "absent"}},
		"kv heads of null":           {config{"model_type": "qwen2", "num_key_value_heads": null, "head_dim": nil}, qkvBias, keys{"qwen2.attention.head_count_kv": "2"}},
		"mistral's kv heads of null": {config{"model_type": "mistral", "num_key_value_heads": null}, qkvBias, keys{"llama.attention.head_count_kv": "2"}},
		"gemma3 without caps on scores": {config{"model_type": "gemma3_text", "tie_word_embeddings": nil, "attn_logit_softcapping": 50, "final_logit_softcapping": 30}, gemmaNorms,
			keys{"gemma3.attn_logit_softcapping": "absent", "gemma3.final_logit_softcapping": "30"}},
		"gemma3's activation":             {config{"model_type": "gemma3_text", "tie_word_embeddings": nil, "hidden_activation": "silu"}, gemmaNorms, keys{"terrace.activation": "silu"}},
		"gemma3 does not read hidden_act": {config{"model_type": "gemma3_text", "tie_word_embeddings": nil, "hidden_act": "silu"}, gemmaNorms, keys{"terrace.activation": "absent"}},
		"gemma's gelu": {config{"model_type": "gemma", "hidden_act": "gelu", "tie_word_embeddings": nil}, nil,
			keys{"terrace.activation": "absent", "terrace.tie_word_embeddings": "true"}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := hftest.Llama().With(c.change)
			shapes := hftest.Decoder(cfg)
			for n, shape := range c.extra {
				shapes.EachLayer("model.layers.%d.", 2, n, shape...)
			}
			meta, _, err := open(t, hftest.Folder(t, cfg, shapes))
			if err != nil {
				t.Fatal(err)
			}
			for key, want := range c.want {
				if got := value(meta, key); got != want {
					t.Errorf("%s is %s, want %s", key, got, want)
				}
			}
		})
	}
}

// gemma3 lists the tensors of a Gemma 3 under a prefix.
func gemma3(c config, prefix string) hftest.Shapes {
	out := hftest.Shapes{}
	for name, shape := range hftest.Decoder(c) {
		out[prefix+name] = shape
	}
	for _, n := range []string{"pre_feedforward_layernorm.weight", "post_feedforward_layernorm.weight"} {
		out.EachLayer(prefix+"model.layers.%d.", 2, n, 16)
	}
	for _, n := range []string{"self_attn.q_norm.weight", "self_attn.k_norm.weight"} {
		out.EachLayer(prefix+"model.layers.%d.", 2, n, 8)
	}
	return out
}

// TestGemma3 reads Gemma 3 as transformers 5 writes it (rope a layer type), and inside a multimodal config.
func TestGemma3(t *testing.T) {
	text := hftest.Llama().With(config{"model_type": "gemma3_text", "tie_word_embeddings": nil, "sliding_window": 9,
		"layer_types": []string{"sliding_attention", "full_attention"},
		"rope_parameters": config{"full_attention": config{"rope_type": "linear", "factor": 8, "rope_theta": 1e6},
			"sliding_attention": config{"rope_type": "default", "rope_theta": 2e4}}})
	for name, dir := range map[string]string{
		"text":       hftest.Folder(t, text, gemma3(text, "")),
		"multimodal": hftest.Folder(t, config{"model_type": "gemma3", "text_config": text}, gemma3(text, "language_model.")),
		"newer":      hftest.Folder(t, config{"model_type": "gemma3", "text_config": text}, gemma3(text, "model.language_")),
	} {
		meta, tensors, err := open(t, dir)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for key, want := range map[string]string{"gemma3.rope.freq_base": "1e+06", "gemma3.rope.freq_base_swa": "20000",
			"gemma3.rope.scaling.factor": "8", "gemma3.attention.sliding_window_pattern": "2"} {
			if got := value(meta, key); got != want {
				t.Errorf("%s: %s is %s, want %s", name, key, got, want)
			}
		}
		if len(tensors) != len(gemma3(text, "")) {
			t.Errorf("%s: %d tensors", name, len(tensors))
		}
	}
}

// TestQwenAndOPT opens the families that have no golden or whose golden lacks a variant.
func TestQwenAndOPT(t *testing.T) {
	c, shapes := hftest.Qwen()
	meta, tensors, err := open(t, hftest.Folder(t, c, shapes))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(tensors["blk.1.attn_qkv.weight"].Shape, []int{48, 16}) || value(meta, "qwen.feed_forward_length") != "48" ||
		value(meta, "terrace.qwen.seq_length") != "64" || value(meta, "terrace.qwen.use_logn_attn") != "true" {
		t.Errorf("qwen: attn_qkv %v, feed_forward_length %s", tensors["blk.1.attn_qkv.weight"].Shape, value(meta, "qwen.feed_forward_length"))
	}
	c, shapes = hftest.OPT(8, true)
	if meta, tensors, err = open(t, hftest.Folder(t, c, shapes)); err != nil {
		t.Fatal(err)
	}
	if tensors["project_in.weight"] == nil || tensors["output_norm.weight"] != nil || value(meta, "terrace.norm_after") != "true" {
		t.Error("opt: projections or places of the norms are wrong")
	}
	for name, tensor := range tensors {
		if b, err := tensor.Bytes(); err != nil || len(b) == 0 {
			t.Errorf("opt: %s: %d bytes, %v", name, len(b), err)
		}
	}
}

// TestOPTWithoutAffine presents norms without learned weights as ones and zeros.
func TestOPTWithoutAffine(t *testing.T) {
	c, shapes := hftest.OPT(16, false)
	maps.DeleteFunc(shapes, func(name string, _ []int) bool { return strings.Contains(name, "layer_norm") })
	_, tensors, err := open(t, hftest.Folder(t, c.With(config{"layer_norm_elementwise_affine": false}), shapes))
	if err != nil {
		t.Fatal(err)
	}
	w, err := tensors["blk.0.ffn_norm.weight"].Bytes()
	if err != nil || len(w) != 64 || math.Float32frombits(binary.LittleEndian.Uint32(w[60:])) != 1 {
		t.Errorf("norm weight %v, error %v", w, err)
	}
}

// TestGPT2 covers the flags that no golden sets, and the names of the first checkpoints (no prefix, a mask that is no
// weight, an odd dtype where a weight should be).
func TestGPT2(t *testing.T) {
	c := config{"model_type": "gpt2", "n_layer": 1, "n_embd": 8, "n_head": 2, "n_positions": 16, "vocab_size": 32}
	shapes := hftest.Shapes{"wte.weight": {32, 8}, "wpe.weight": {16, 8}, "ln_f.weight": {8}, "ln_f.bias": {8}}
	for name, shape := range map[string][]int{"ln_1": {8}, "ln_2": {8}, "attn.c_attn": {8, 24}, "attn.c_proj": {8, 8},
		"mlp.c_fc": {8, 32}, "mlp.c_proj": {32, 8}} {
		shapes["h.0."+name+".weight"], shapes["h.0."+name+".bias"] = shape, shape[len(shape)-1:]
	}
	meta, tensors, err := open(t, hftest.Folder(t, c.With(config{"scale_attn_weights": false, "scale_attn_by_inverse_layer_idx": true}), shapes))
	if err != nil {
		t.Fatal(err)
	}
	if value(meta, "gpt2.attention.scale") != "1" || value(meta, "terrace.attention.layer_scale") != "true" {
		t.Errorf("scale %s, layer_scale %s", value(meta, "gpt2.attention.scale"), value(meta, "terrace.attention.layer_scale"))
	}
	if got := tensors["blk.0.ffn_up.weight"].Shape; !slices.Equal(got, []int{32, 8}) {
		t.Errorf("ffn_up is %v, want [32 8]", got)
	}
	_, _, err = open(t, hftest.Folder(t, c.With(config{"add_cross_attention": true}), shapes))
	if !errors.Is(err, hf.ErrConfig) {
		t.Errorf("cross attention: %v", err)
	}
}

// TestDType names the dtype of a weight that is not a float of 16 or 32 bits.
func TestDType(t *testing.T) {
	dir := hftest.Folder(t, tiny, tinyTensors())
	path := filepath.Join(dir, "model.safetensors")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(b, []byte(`"model.norm.weight":{`))
	off := at + bytes.Index(b[at:], []byte(`"F32"`))
	copy(b[off:], `"I32"`)
	write(t, path, b)
	if _, _, err := open(t, dir); !errors.Is(err, hf.ErrConfig) || !strings.Contains(err.Error(), "I32") || !strings.Contains(err.Error(), "model.norm.weight") {
		t.Errorf("error %v, want one that names tensor and dtype", err)
	}
}

// qwen3MoE is a mixture of four experts that names their number under key.
func qwen3MoE(key string) (config, hftest.Shapes) {
	c := hftest.Llama().With(config{"model_type": "qwen3_moe", "num_experts_per_tok": 2, "moe_intermediate_size": 8, key: 4})
	s := hftest.Decoder(c).EachLayer("model.layers.%d.", 2, "self_attn.q_norm.weight", 8).EachLayer("model.layers.%d.", 2, "self_attn.k_norm.weight", 8)
	s.EachLayer("model.layers.%d.", 2, "mlp.gate.weight", 4, 16)
	for l := range 2 {
		stem := fmt.Sprintf("model.layers.%d.mlp.experts.%%d.", l)
		s.EachLayer(stem, 4, "gate_proj.weight", 8, 16).EachLayer(stem, 4, "up_proj.weight", 8, 16).EachLayer(stem, 4, "down_proj.weight", 16, 8)
	}
	return c, s
}

// TestNumberOfExperts reads the number of experts under the name that transformers 5 writes and under the older one, and
// refuses two that differ.
func TestNumberOfExperts(t *testing.T) {
	for _, key := range []string{"num_local_experts", "num_experts"} {
		c, shapes := qwen3MoE(key)
		meta, _, err := open(t, hftest.Folder(t, c, shapes))
		if err != nil {
			t.Fatal(err)
		}
		if got := value(meta, "qwen3moe.expert_count"); got != "4" {
			t.Errorf("%s 4: expert_count is %s", key, got)
		}
	}
	c, shapes := qwen3MoE("num_local_experts")
	if _, _, err := open(t, hftest.Folder(t, c.With(config{"num_experts": 4}), shapes)); err != nil {
		t.Errorf("both names with one number: %v", err)
	}
	_, _, err := open(t, hftest.Folder(t, c.With(config{"num_experts": 8}), shapes))
	if !errors.Is(err, hf.ErrConfig) || !strings.Contains(err.Error(), "num_experts 8") || !strings.Contains(err.Error(), "num_local_experts 4") {
		t.Errorf("two names with two numbers: %v", err)
	}
}

// TestTiedWithAnotherHead accepts a tied checkpoint that holds its embedding twice, and refuses one with another head.
func TestTiedWithAnotherHead(t *testing.T) {
	tied := tiny.With(config{"tie_word_embeddings": true})
	dir := hftest.Folder(t, tied, tinyTensors())
	_, _, err := open(t, dir)
	if !errors.Is(err, hf.ErrConfig) || !strings.Contains(err.Error(), "lm_head.weight") || !strings.Contains(err.Error(), "tie_word_embeddings") {
		t.Errorf("another head: %v", err)
	}
	path := filepath.Join(dir, "model.safetensors")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	size := int(binary.LittleEndian.Uint64(b))
	var header map[string]struct {
		Offsets [2]int `json:"data_offsets"`
	}
	if err := json.Unmarshal(b[8:8+size], &header); err != nil {
		t.Fatal(err)
	}
	data, head, embed := b[8+size:], header["lm_head.weight"].Offsets, header["model.embed_tokens.weight"].Offsets
	copy(data[head[0]:head[1]], data[embed[0]:embed[1]])
	write(t, path, b)
	if _, tensors, err := open(t, dir); err != nil || tensors["output.weight"] != nil {
		t.Errorf("the embedding once more as the head: %v, output.weight %v", err, tensors["output.weight"])
	}
}

// TestUnreadBias: a bias that the family's tensors have no place for is refused where the config has biases at all.
func TestUnreadBias(t *testing.T) {
	for bias, want := range map[bool]error{true: hf.ErrConfig, false: nil} {
		cfg := hftest.Llama().With(config{"attention_bias": false, "mlp_bias": bias})
		shapes := hftest.Decoder(cfg)
		for n, rows := range map[string]int{"mlp.gate_proj": 24, "mlp.up_proj": 24, "mlp.down_proj": 16} {
			shapes.EachLayer("model.layers.%d.", 2, n+".bias", rows)
		}
		shapes.EachLayer("model.layers.%d.", 2, "self_attn.o_proj.bias", 16)
		_, _, err := open(t, hftest.Folder(t, cfg, shapes))
		if !errors.Is(err, want) || bias && !strings.Contains(err.Error(), `"model.layers.0.self_attn.o_proj.bias"`) {
			t.Errorf("mlp_bias %v: %v, want %v", bias, err, want)
		}
	}
}

// TestSiluConvolution: what convolutions of recurrent layers are not computed with is refused by name.
func TestSiluConvolution(t *testing.T) {
	for _, kind := range []string{"qwen3_5_text", "qwen3_next", "granitemoehybrid", "falcon_h1", "mamba2", "kimi_linear"} {
		data, err := os.ReadFile(filepath.Join(shared(t, "data", "golden", "families"), strings.TrimSuffix(kind, "_text"), "config.json"))
		if err != nil {
			t.Fatal(err)
		}
		cfg := config{}
		if err := json.Unmarshal(data, &cfg); err != nil {
			t.Fatal(err)
		}
		cfg["hidden_act"] = "gelu"
		_, _, err = open(t, hftest.Folder(t, cfg, hftest.Shapes{}))
		if !errors.Is(err, hf.ErrConfig) || !strings.Contains(err.Error(), "hidden_act is gelu") {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// TestClassDefaults: what a config leaves out is what its class in transformers 5.24 has.
func TestClassDefaults(t *testing.T) {
	alternating := []any{"sliding_attention", "full_attention", "sliding_attention", "full_attention"}
	for _, c := range []struct {
		model, without, key, want string
		instead                   any
	}{
		{"laguna", "layer_types", "laguna.attention.sliding_window_pattern", "[1 0 1 0]", alternating},
		{"mellum", "layer_types", "mellum.attention.sliding_window_pattern", "2", alternating},
	} {
		atDefault(t, c.model, c.without, c.instead, c.key, c.want)
	}
	for _, c := range []struct{ model, without, key, want string }{
		{"apertus", "rope_parameters", "apertus.rope.freq_base", "1.2e+07"},
		{"falcon_h1", "rope_parameters", "falcon-h1.rope.freq_base", "10000"},
		{"glm4", "attention_bias", "blk.0.attn_q.bias", "[64]"},
		{"gpt_oss", "rope_parameters", "gpt-oss.rope.scaling.factor", "32"},
		{"gpt_oss", "rope_parameters", "terrace.rope.scaling.truncate", "false"},
		{"granite_swa", "sliding_window", "granite_swa.attention.sliding_window", "128"},
		{"granite_swa", "layer_types", "granite_swa.attention.sliding_window_pattern", "[0 1 1 1]"},
		{"kimi_linear", "routed_scaling_factor", "kimi-linear.expert_weights_scale", "2.446"},
		{"laguna", "layer_types", "laguna.attention.sliding_window_pattern", "[0 0 0 0]"},
		{"laguna", "rope_parameters", "laguna.rope.scaling.type", "absent"},
		{"mellum", "layer_types", "mellum.attention.sliding_window_pattern", "1"},
		{"mellum", "rope_parameters", "mellum.rope.freq_base_swa", "10000"},
		{"ministral3", "rope_parameters", "mistral3.rope.scaling.factor", "16"},
		{"mistral4", "rope_parameters", "deepseek2.rope.scaling.factor", "128"},
		{"olmo3", "rope_parameters", "olmo2.rope.freq_base", "500000"},
	} {
		atDefault(t, c.model, c.without, nil, c.key, c.want)
	}
}

// atDefault opens a golden without a key of its configuration, or with another value instead, and compares what the view has.
func atDefault(t *testing.T, model, without string, instead any, key, want string) {
	t.Helper()
	c := struct{ model, without, key, want string }{model, without, key, want}
	dir := shared(t, "data", "golden", "families", c.model)
	data, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	cfg := config{}
	if err := json.Unmarshal(data, &cfg); err != nil {
		t.Fatal(err)
	}
	if cfg[c.without] == nil {
		t.Fatalf("%s has no %s", c.model, c.without)
	}
	if delete(cfg, c.without); instead != nil {
		cfg[c.without] = instead
	}
	folder := hftest.Folder(t, cfg, hftest.Shapes{})
	if data, err = os.ReadFile(filepath.Join(dir, "model.safetensors")); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(folder, "model.safetensors"), data)
	meta, tensors, err := open(t, folder)
	if err != nil {
		t.Errorf("%s without %s: %v", c.model, c.without, err)
		return
	}
	got := value(meta, c.key)
	if x := tensors[c.key]; x != nil {
		got = fmt.Sprint(x.Shape)
	}
	if got != c.want {
		t.Errorf("%s without %s: %s is %s, want %s", c.model, c.without, c.key, got, c.want)
	}
}
