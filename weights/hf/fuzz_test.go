package hf_test

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"terrace/weights/gguf"
	"terrace/weights/hf"
	"terrace/weights/hf/hftest"
)

// FuzzStored opens quantised checkpoints with an arbitrary quantization_config: an error or a model whose matrices can be read, or are
// refused as a bad file.
func FuzzStored(f *testing.F) {
	forms := hftest.Forms(f)
	names := slices.Sorted(maps.Keys(forms))
	var dirs []string
	for i, name := range names {
		dirs = append(dirs, forms[name].Write(f).Folder(f, forms[name].Config))
		text, err := json.Marshal(forms[name].Config)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(i, text)
		f.Add(i+1, text)
	}
	f.Fuzz(func(t *testing.T, which int, text []byte) {
		dir := dirs[uint(which)%uint(len(dirs))]
		raw, err := json.Marshal(hftest.StoredConfig.With(config{"quantization_config": json.RawMessage(text)}))
		if err != nil {
			return // no JSON
		}
		if err := os.WriteFile(filepath.Join(dir, configFile), raw, 0o600); err != nil {
			t.Fatal(err)
		}
		_, tensors, closer, err := hf.Open(dir)
		if err != nil {
			return
		}
		defer closer.Close()
		for _, x := range tensors {
			if _, err := x.Bytes(); err != nil && !errors.Is(err, gguf.ErrFormat) && !errors.Is(err, gguf.ErrNotFinite) {
				t.Errorf("tensor %q: %v", x.Name, err)
			}
		}
	})
}

const configFile = "config.json"

// FuzzConfig opens a folder with an arbitrary config.json: an error or a model, never a panic, and whatever opens can be
// read to the last byte.
func FuzzConfig(f *testing.F) {
	for _, c := range []config{
		tiny,
		tiny.With(config{"rope_scaling": config{"type": "yarn", "factor": 4}}),
		tiny.With(config{"rope_scaling": config{"type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4}}),
		tiny.With(config{"rope_parameters": config{"rope_type": "longrope", "rope_theta": 1e4, "long_factor": []int{1, 2}, "short_factor": []int{1, 1}}}),
		tiny.With(config{"model_type": "gemma3_text", "head_dim": 4, "layer_types": []string{"sliding_attention"}}),
		tiny.With(config{"model_type": "gemma3", "text_config": tiny}),
		tiny.With(config{"model_type": "qwen3_moe", "num_experts": 2, "mlp_only_layers": []int{0}}),
		tiny.With(config{"model_type": "gemma4_text", "head_dim": 4, "hidden_size_per_layer_input": 4, "vocab_size_per_layer_input": 16, "per_layer_config": config{"0": config{"head_dim": 8}}}),
		tiny.With(config{"model_type": "gemma4", "text_config": tiny.With(config{"enable_moe_block": true, "num_experts": 2, "top_k_experts": 1, "moe_intermediate_size": 8, "attention_k_eq_v": true})}),
		tiny.With(config{"model_type": "gemma3n_text", "num_kv_shared_layers": 0, "intermediate_size": []int{24}, "activation_sparsity_pattern": []float64{0.95}, "laurel_rank": 2}),
		{"model_type": "gemma3n", "num_hidden_layers": 1, "hidden_size": 1},
		tiny.With(config{"model_type": "lfm3", "head_dim": 4, "norm_eps": 1e-6, "conv_L_cache": 3, "layer_types": []string{"sliding_attention"}, "sliding_window": 4,
			"rope_parameters": config{"full_attention": config{"rope_type": "proportional", "partial_rotary_factor": 0.5}}}),
		tiny.With(config{"model_type": "deepseek_v32", "q_lora_rank": 8, "index_n_heads": 2, "index_head_dim": 8, "index_topk": 4, "layer_types": []string{"indexed_attention"}}),
		tiny.With(config{"quantization_config": config{"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": true}}),
		tiny.With(config{"quantization_config": config{"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": config{}}}),
		tiny.With(config{"model_type": "qwen4_exp_text", "head_dim": 4, "layer_types": []string{"linear_attention"}, "linear_num_value_heads": 2, "linear_num_key_heads": 2, "linear_key_head_dim": 4,
			"linear_value_head_dim": 4, "num_experts": 2, "hc_count": 2, "hc_lowrank": 2, "indexer_n_heads": 2, "indexer_head_dim": 4, "indexer_kv_heads": 1, "indexer_compress_ratio": 2, "indexer_budget": 4,
			"ple_layer_ids": []int{1}, "ple_embed_dim": 8, "heads_per_ngram": 2, "ngram_size": 3, "eos_token_id": []int{1}}),
		tiny.With(config{"model_type": "nemotron_h", "layers_block_type": []string{"moe"}, "n_routed_experts": 2, "moe_latent_size": 4}),
		{"model_type": "gpt2", "n_layer": 1, "n_embd": 8, "n_head": 2, "vocab_size": 16},
		{"model_type": "opt", "num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 2, "ffn_dim": 12, "vocab_size": 16},
		{"model_type": "qwen", "num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 2, "kv_channels": 4, "intermediate_size": 24, "vocab_size": 16},
	} {
		text, err := json.Marshal(c)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	corpus, err := filepath.Glob(filepath.Join("..", "..", "..", "shared", "data", "bad", "*", configFile))
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range corpus { // none where the shared material is not there
		if text, err := os.ReadFile(path); err == nil && len(text) < 1<<16 {
			f.Add(text)
		}
	}
	dir := hftest.Folder(f, tiny, tinyTensors())
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(filepath.Join(dir, configFile), text, 0o600); err != nil {
			t.Fatal(err)
		}
		meta, tensors, closer, err := hf.Open(dir)
		if err != nil {
			return
		}
		defer closer.Close()
		if arch, err := meta.String("general.architecture"); err != nil || arch == "" {
			t.Errorf("a model without architecture: %v", err)
		}
		for _, x := range tensors {
			if _, err := x.Bytes(); err != nil {
				t.Errorf("tensor %q: %v", x.Name, err)
			}
		}
	})
}
