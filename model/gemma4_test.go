package model_test

import (
	"math"
	"path/filepath"
	"strings"
	"testing"

	"terrace/weights/gguf"
)

// TestPublishedGemma: configs as the first published files have them mean the same as those of today.
func TestPublishedGemma(t *testing.T) {
	root := shared(t, "data", "golden", "families")
	for _, c := range []struct {
		family string
		gone   string
		keys   map[string]any
	}{
		{"gemma4", "per_layer_config", map[string]any{"global_head_dim": 16, "num_global_key_value_heads": 4}}, // the second means nothing without attention_k_eq_v
		{"gemma4_moe", "per_layer_config", map[string]any{"global_head_dim": 16, "num_global_key_value_heads": 1}},
		{"gemma4", "layer_types", map[string]any{"layer_types": []string{"sliding_attention", "sliding_attention", "full_attention", "sliding_attention", "sliding_attention", "sliding_attention"}}}, // the last never slides
		{"gemma3n", "rope_parameters", map[string]any{"rope_theta": 1e6, "rope_local_base_freq": 1e4, "rope_scaling": nil}},
		{"gemma3n", "intermediate_size", map[string]any{"intermediate_size": 32}},
	} {
		dir := filepath.Join(root, c.family)
		config, g := readConfig(t, dir), readGolden(t, filepath.Join(dir, "golden.safetensors"))
		delete(config, c.gone)
		for key, value := range c.keys {
			config[key] = value
		}
		r := newRunner(t, withConfig(t, dir, config))
		ids := g.ints("input_ids")
		if off := worst(r.pass(ids, len(ids)), g.rows("logits", r.m.Vocab)); off > 2e-4 {
			t.Errorf("%s without %s: max |Δlogit| is %.2g of the largest logit, want at most 2e-4", c.family, c.gone, off)
		}
	}
}

// TestGemmaUnified: the wrapper without encoders (12B) has a text model without per-layer inputs, and windows of its own by default.
func TestGemmaUnified(t *testing.T) {
	dir := filepath.Join(shared(t, "data", "golden", "families"), "gemma4")
	text := readConfig(t, dir)
	text["model_type"] = "gemma4_unified_text"
	for _, key := range []string{"hidden_size_per_layer_input", "sliding_window", "max_position_embeddings"} {
		delete(text, key)
	}
	m := newRunner(t, withConfig(t, dir, map[string]any{"model_type": "gemma4_unified", "text_config": text})).m
	if m.PerLayer != 0 || m.RowWidth() != m.Hidden || m.Layer[0].Window != 1024 || m.Context != 262144 {
		t.Errorf("%d numbers of per-layer input, rows of %d, a window of %d, a context of %d", m.PerLayer, m.RowWidth(), m.Layer[0].Window, m.Context)
	}
}

// TestGemmaMetadata: figures of GGUF files that contradict each other are refused in one line that says which.
func TestGemmaMetadata(t *testing.T) {
	root := shared(t, "data", "golden", "families")
	for _, c := range []struct {
		family, key string
		value       any
		drop, want  string
	}{
		{"gemma4", "attention.shared_kv_layers", uint32(6), "", "shared_kv_layers"},
		{"gemma4", "attention.shared_kv_layers", uint32(5), "", "layer 2 finds no earlier layer"},
		{"gemma4", "attention.shared_kv_layers", uint32(2), "", "blk.3.attn_k"},
		{"gemma4", "attention.shared_kv_layers", nil, "", "shared_kv_layers"},
		{"gemma4", "attention.head_count_kv", []int32{1, 1, 1, 1, 2, 1}, "", "layer 4 shares the keys and values of layer 1"},
		{"gemma4", "attention.head_count_kv", []int32{1, 1, 1}, "", "head_count_kv"},
		{"gemma4", "attention.head_count", []int32{4, 4, 0, 4, 4, 4}, "", "head_count"},
		{"gemma4", "attention.key_length_swa", uint32(16), "", "blk.0.attn_q"},
		{"gemma4", "feed_forward_length", []int32{32, 32, 32, 64, 64, -64}, "", "ffn_gate"},
		{"gemma4", "embedding_length_per_layer_input", uint32(1 << 20), "", "embedding_length_per_layer_input"},
		{"gemma4", "embedding_length_per_layer_input", uint32(7), "", "per_layer_token_embd"},
		{"gemma4", "attention.sliding_window", uint32(0), "", "sliding_window"},
		{"gemma4", "rope.dimension_count_swa", uint32(16), "", "rope.dimension_count"},
		{"gemma4", "", nil, "blk.1.attn_v.weight", ""}, // values are keys
		{"gemma4", "", nil, "blk.1.post_norm.weight", "blk.1.post_norm"},
		{"gemma4", "", nil, "per_layer_proj_norm.weight", "per_layer_proj_norm"},
		{"gemma4_moe", "expert_count", uint32(5), "", "ffn_gate_inp"},
		{"gemma4_moe", "expert_feed_forward_length", uint32(13), "", "ffn_gate_up_exps"},
		{"gemma4_moe", "", nil, "blk.0.ffn_gate_inp.scale", "ffn_gate_inp.scale"},
		{"gemma3n", "altup.num_inputs", uint32(0), "", "altup.num_inputs"},
		{"gemma3n", "altup.num_inputs", uint32(5), "", "altup_proj"},
		{"gemma3n", "altup.active_idx", uint32(4), "", "altup.active_idx"},
		{"gemma3n", "activation_sparsity_scale", []float32{1, 1}, "", "activation_sparsity_scale"},
		{"gemma3n", "activation_sparsity_scale", []float32{1, 1, float32(math.NaN()), 0, 0}, "", "activation_sparsity_scale"},
		{"gemma3n", "activation_sparsity_scale", []float32{1, 1, float32(math.Inf(1)), 0, 0}, "", "activation_sparsity_scale"},
		{"gemma3n", "", nil, "blk.2.laurel_l.weight", "laurel_l"},
	} {
		f, err := gguf.Open(filepath.Join(root, c.family, "model.gguf"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		change := map[string]any{}
		if c.key != "" {
			change[strings.TrimSuffix(c.family, "_moe")+"."+c.key] = c.value
		}
		err = openFile(source{f.Meta(), f.Tensors()}.with(change, c.drop).write(t))
		switch {
		case c.want == "" && err != nil, c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %s %v without %q: error %v, want one with %q in it", c.family, c.key, c.value, c.drop, err, c.want)
		case err != nil && refused(err) != "":
			t.Errorf("%s: %s %v: error %v is %s", c.family, c.key, c.value, err, refused(err))
		}
	}
}
