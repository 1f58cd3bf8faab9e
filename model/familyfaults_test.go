package model_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"terrace/model"
	"terrace/weights"
	"terrace/weights/gguf"
	"terrace/weights/hf"
)

// refused reports what is wrong with an error about a changed file: it must be of a known kind (a command prints it on one line).
func refused(err error) string {
	kinds := []error{model.ErrConfig, model.ErrFeature, model.ErrUnknownArchitecture, weights.ErrFormat, weights.ErrMissingTensor, hf.ErrConfig, hf.ErrShape, hf.ErrMissingTensor}
	if !slices.ContainsFunc(kinds, func(kind error) bool { return errors.Is(err, kind) }) {
		return "of no known kind"
	}
	return ""
}

// withConfig is a golden's folder with another config.json.
func withConfig(t *testing.T, dir string, config map[string]any) string {
	t.Helper()
	text, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	to := t.TempDir()
	data, err := os.ReadFile(filepath.Join(dir, "model.safetensors"))
	if err == nil {
		err = os.WriteFile(filepath.Join(to, "model.safetensors"), data, 0o600)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(to, "config.json"), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return to
}

func readConfig(t *testing.T, dir string) (config map[string]any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err == nil {
		err = json.Unmarshal(text, &config)
	}
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// TestFamilyConfigs: a config with one key absurd is refused in one line that names the key.
func TestFamilyConfigs(t *testing.T) {
	root := shared(t, "data", "golden", "families")
	for _, c := range []struct {
		family, key string
		value       any
		want        string
	}{
		{"gpt_oss", "num_local_experts", 0, "num_local_experts"},
		{"gpt_oss", "num_experts_per_tok", 99, "num_experts_per_tok"},
		{"gpt_oss", "layer_types", []string{"full_attention"}, "layer_types"},
		{"gpt_oss", "layer_types", []string{"full_attention", "cube", "full_attention", "full_attention"}, "layer_types[1]"},
		{"gpt_oss", "swiglu_limit", 0, "swiglu_limit"},
		{"gpt_oss", "swiglu_alpha", "x", "swiglu_alpha"},
		{"gpt_oss", "sliding_window", -1, "sliding_window"},
		{"gpt_oss", "num_key_value_heads", 3, "num_key_value_heads"},
		{"gpt_oss", "intermediate_size", 13, "gate_up_proj"},
		{"gpt_oss_mxfp4", "intermediate_size", 33, "_blocks"},
		{"gpt_oss_mxfp4", "hidden_size", 96, "embed_tokens"},
		{"gpt_oss_mxfp4", "quantization_config", map[string]any{"quant_method": "cube"}, "cube"},
		{"ministral3", "rope_parameters", map[string]any{"rope_type": "yarn", "factor": 4, "llama_4_scaling_beta": -1}, "llama_4_scaling_beta"},
		{"ministral3", "rope_parameters", map[string]any{"rope_type": "yarn", "factor": 0}, "factor"},
		{"olmo3", "rope_parameters", map[string]any{"sliding_attention": map[string]any{"rope_type": "yarn", "factor": 2}, "full_attention": map[string]any{"rope_type": "default"}}, "rope_type"},
		{"exaone4", "sliding_window_pattern", "LLLL?", ""},
		{"glm4", "rope_parameters", map[string]any{"partial_rotary_factor": 0}, "partial_rotary_factor"},
		{"glm4_moe", "first_k_dense_replace", 3, "first_k_dense_replace"},
		{"glm4_moe", "n_group", 4, "expert_group_count"},
		{"glm4_moe", "topk_group", 0, "topk_group"},
		{"glm4_moe", "n_routed_experts", 5, "mlp.gate.weight"},
		{"glm4_moe", "n_shared_experts", 2, "shared_experts"},
		{"glm4_moe", "routed_scaling_factor", "x", "routed_scaling_factor"},
		{"qwen2_moe", "shared_expert_intermediate_size", 21, "shared_expert"},
		{"qwen2_moe", "moe_intermediate_size", 0, "moe_intermediate_size"},
		{"ernie4_5_moe", "moe_layer_interval", 0, "moe_layer_interval"},
		{"ernie4_5_moe", "moe_k", 7, "moe_k"},
		{"granite_swa", "layer_rope_theta", []float64{0, 1e4}, "layer_rope_theta"},
		{"granite_swa", "layer_rope_theta", []float64{0.5, 1e4, 1e4, 1e4}, "layer_rope_theta"},
		{"granitemoe", "num_local_experts", 4, "router"},
		{"minimax_m2", "rope_parameters", map[string]any{"partial_rotary_factor": 2}, "partial_rotary_factor"},
		{"minimax_m2", "scoring_func", "softmax", "scoring_func"},
		{"mellum", "mlp_layer_types", []string{"sparse"}, "mlp_layer_types"},
		{"mellum", "mlp_layer_types", []string{"sparse", "cube", "sparse", "sparse"}, "mlp_layer_types[1]"},
		{"laguna", "num_attention_heads_per_layer", []int{4, 8, 8}, "num_attention_heads_per_layer"},
		{"laguna", "num_attention_heads_per_layer", []int{4, 8, 7, 8}, "num_attention_heads_per_layer[2]"},
		{"laguna", "num_attention_heads_per_layer", []int{4, 8, 6, 8}, "q_proj"},
		{"laguna", "moe_router_logit_softcapping", -1, "moe_router_logit_softcapping"},
		{"apertus", "hidden_act", "silu", "hidden_act"},
		{"starcoder2", "norm_epsilon", 0, "norm_epsilon"},
		{"stablelm", "qk_layernorm", true, "q_layernorm"},
		{"cohere2", "logit_scale", "x", "logit_scale"},
		{"llama4", "attention_chunk_size", 0, "attention_chunk_size"},
		{"llama4", "no_rope_layers", []int{1, 2, 1, 0}, "no_rope_layers"},
		{"llama4", "layer_types", []string{"linear_attention", "full_attention", "full_attention", "full_attention"}, "layer_types[0]"},
		{"llama4", "floor_scale", 0, "floor_scale"},
		{"llama4", "moe_layers", []int{-1}, "moe_layers"},
		{"phimoe", "router_jitter_noise", 2, "router_jitter_noise"},
		{"deepseek_v2", "kv_lora_rank", 0, "kv_lora_rank"},
		{"deepseek_v2", "topk_method", "best", "topk_method"},
		{"deepseek_v3", "qk_rope_head_dim", 3, "qk_rope_head_dim"},
		{"deepseek_v3", "topk_group", 5, "expert_group"},
		{"deepseek_v32", "index_topk", 0, "index_topk"},
		{"deepseek_v32", "index_topk", "x", "index_topk"},
		{"deepseek_v32", "index_n_heads", 15, "wq_b"},
		{"deepseek_v32", "index_n_heads", 1 << 20, "index_n_heads"},
		{"deepseek_v32", "index_head_dim", 4, "index_head_dim"},
		{"deepseek_v32", "index_head_dim", 16, "wq_b"},
		{"deepseek_v32", "q_lora_rank", nil, "q_lora_rank"},
		{"deepseek_v32", "layer_types", []string{"indexed_attention", "full_attention"}, "layer_types[1]"},
		{"qwen4_exp", "hc_count", 1, "hc_count"},
		{"qwen4_exp", "hc_count", 4, "hc_norm"},
		{"qwen4_exp", "hc_lowrank", 0, "hc_lowrank"},
		{"qwen4_exp", "hc_lowrank", 9, "input_mix_weight_down"},
		{"qwen4_exp", "indexer_budget", 15, "indexer_budget"},
		{"qwen4_exp", "indexer_budget", nil, "indexer_budget"},
		{"qwen4_exp", "indexer_compress_ratio", 0, "indexer_compress_ratio"},
		{"qwen4_exp", "indexer_compress_ratio", 32, "indexer_budget"},
		{"qwen4_exp", "indexer_kv_heads", 2, "indexer_kv_heads"},
		{"qwen4_exp", "indexer_head_dim", 2, "indexer_head_dim"},
		{"qwen4_exp", "indexer_n_heads", nil, "indexer_n_heads"},
		{"qwen4_exp", "indexer_n_heads", 9, "index_qk_proj"},
		{"qwen4_exp", "layer_types", []string{"linear_attention", "linear_attention", "linear_attention", "cube"}, "layer_types[3]"},
		{"qwen4_exp", "output_gate_type", "tanh", "output_gate_type"},
		{"qwen4_exp", "ple_layer_ids", []int{0}, "ple_layer_ids"},
		{"qwen4_exp", "ple_layer_ids", []int{4}, "ple_layer_ids"},
		{"qwen4_exp", "ple_layer_ids", []int{3}, "layer_multipliers"},
		{"qwen4_exp", "ple_layer_ids", []int{2, 2}, ""},
		{"qwen4_exp", "ple_layer_ids", 2, "ple_layer_ids"},
		{"qwen4_exp", "ple_embed_dim", 39, "ple_embed_dim"},
		{"qwen4_exp", "ple_embed_dim", 20, "key_proj"},
		{"qwen4_exp", "ple_conv_kernel_size", 3, "conv1d"},
		{"qwen4_exp", "ngram_size", 5, "layer_multipliers"},
		{"qwen4_exp", "ngram_size", 1, "ngram_size"},
		{"qwen4_exp", "heads_per_ngram", 1 << 20, "heads_per_ngram"},
		{"qwen4_exp", "split_ngram_parts", 3, "shard_2"},
		{"qwen4_exp", "split_ngram_parts", 1, "of a table of 212"},
		{"qwen4_exp", "eos_token_id", nil, "eos_token_id"},
		{"qwen4_exp", "eos_token_id", 256, "eos_token_id"},
		{"glm4_moe_lite", "mlp_layer_types", []string{"dense"}, "mlp_layer_types"},
		{"granitemoehybrid", "position_embedding_type", "alibi", "position_embedding_type"},
		{"granitemoehybrid", "mamba_n_heads", 7, "mamba_n_heads"},
		{"kimi_linear", "linear_num_heads", 3, "q_proj"},
		{"nemotron_h", "layers_block_type", []string{"mamba", "cube"}, "layers_block_type"},
		{"nemotron_h_moe", "moe_latent_size", 8, "fc1_latent_proj"},
		{"nemotron_h_moe", "moe_latent_size", 0, "moe_latent_size"},
		{"nemotron_h_moe", "moe_latent_size", "x", "moe_latent_size"},
		{"falcon_h1", "ssm_multipliers", []int{1, 1}, "ssm_multipliers"},
		{"falcon_h1", "mamba_d_ssm", 50, "mamba_n_heads"},
		{"mistral4", "v_head_dim", 0, "v_head_dim"},
		{"qwen3_5", "layer_types", []string{"conv", "linear_attention", "linear_attention", "full_attention"}, "layer_types[0]"},
		{"qwen3_5", "linear_num_value_heads", 3, "linear_num_value_heads"},
		{"qwen3_next", "full_attention_interval", 0, "full_attention_interval"},
		{"lfm2", "conv_L_cache", 0, "conv_L_cache"},
		{"lfm2", "block_ffn_dim_multiplier", 1e3, "w1"},
		{"lfm2_moe", "num_dense_layers", 9, "num_dense_layers"},
		{"gemma4", "num_kv_shared_layers", 6, "num_kv_shared_layers"},
		{"gemma4", "num_kv_shared_layers", 4, "num_kv_shared_layers 4: layer 2 finds no earlier layer"},
		{"gemma4", "num_kv_shared_layers", 2, "layers.3.self_attn.k_proj"},
		{"gemma4", "per_layer_config", map[string]any{"6": map[string]any{"head_dim": 16}}, "number of a layer"},
		{"gemma4", "per_layer_config", map[string]any{"2": 3}, "number of a layer"},
		{"gemma4", "per_layer_config", map[string]any{"2": map[string]any{"head_dim": 16}}, "head_dim is 16"},
		{"gemma4", "per_layer_config", map[string]any{"2": map[string]any{"rank": 16}}, "rank"},
		{"gemma4", "per_layer_config", map[string]any{"2": map[string]any{"head_dim": 16, "num_key_value_heads": 3}, "5": map[string]any{"head_dim": 16}}, "num_key_value_heads 3 in layer 2"},
		{"gemma4", "per_layer_config", map[string]any{"2": map[string]any{"head_dim": 16, "num_key_value_heads": 2}, "5": map[string]any{"head_dim": 16}}, "k_proj"},
		{"gemma4", "per_layer_config", nil, "q_proj"},
		{"gemma4", "layer_types", []string{"full_attention"}, "layer_types"},
		{"gemma4", "hidden_size_per_layer_input", 9, "embed_tokens_per_layer"},
		{"gemma4", "hidden_size_per_layer_input", -8, "hidden_size_per_layer_input"},
		{"gemma4", "vocab_size_per_layer_input", 255, "embed_tokens_per_layer"},
		{"gemma4", "use_double_wide_mlp", false, "layers.3.mlp"},
		{"gemma4", "attention_k_eq_v", true, ""},
		{"gemma4", "use_bidirectional_attention", "all", "use_bidirectional_attention"},
		{"gemma4", "sliding_window", 0, "sliding_window"},
		{"gemma4", "rope_parameters", map[string]any{"full_attention": map[string]any{"rope_type": "proportional"}, "sliding_attention": map[string]any{"rope_type": "proportional", "partial_rotary_factor": 0.5}}, "rope_type"},
		{"gemma4_moe", "num_experts", nil, "num_experts"},
		{"gemma4_moe", "top_k_experts", 7, "top_k_experts"},
		{"gemma4_moe", "moe_intermediate_size", 13, "gate_up_proj"},
		{"gemma3n", "altup_num_inputs", 1, "altup_num_inputs"},
		{"gemma3n", "altup_num_inputs", 3, "altup"},
		{"gemma3n", "altup_active_idx", 4, "altup_active_idx"},
		{"gemma3n", "activation_sparsity_pattern", []float64{0.95, 0.95}, "activation_sparsity_pattern"},
		{"gemma3n", "activation_sparsity_pattern", []float64{0.95, 1, 0, 0, 0}, "activation_sparsity_pattern"},
		{"gemma3n", "intermediate_size", []int{32, 32, 32, 32}, "intermediate_size"},
		{"gemma3n", "intermediate_size", []int{32, 32, 33, 32, 32}, "layers.2.mlp"},
		{"gemma3n", "laurel_rank", 9, "laurel"},
		{"gemma3n", "num_kv_shared_layers", 3, "num_kv_shared_layers 3: layer 2 finds no earlier layer"},
		{"gemma3n", "num_kv_shared_layers", -1, "num_kv_shared_layers"},
		{"lfm3", "layer_types", []string{"conv", "cube", "full_attention", "conv", "sliding_attention"}, "layer_types[1]"},
		{"lfm3", "layer_types", []string{"conv"}, "layer_types"},
		{"lfm3", "sliding_window", 0, "sliding_window"},
		{"lfm3", "head_dim", nil, "head_dim"},
		{"lfm3", "conv_L_cache", 6, "conv.conv.weight"},
		{"lfm3", "rope_parameters", map[string]any{"full_attention": map[string]any{"rope_type": "proportional", "partial_rotary_factor": 0.01}}, "partial_rotary_factor"},
		{"lfm3", "use_attention_gate", "x", "use_attention_gate"},
		{"mamba2", "num_heads", 7, "num_heads"},
		{"mamba2", "n_groups", 3, "n_groups"},
		{"mamba2", "time_step_limit", []int{3, 1}, "time_step_limit"},
	} {
		dir := filepath.Join(root, c.family)
		config := readConfig(t, dir)
		config[c.key] = c.value
		err := openFile(withConfig(t, dir, config))
		if c.want == "" && err == nil { // the key says nothing beside one that says it better
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %s %v: error %v, want one with %q in it", c.family, c.key, c.value, err, c.want)
		} else if what := refused(err); what != "" {
			t.Errorf("%s: %s %v: error %v is %s", c.family, c.key, c.value, err, what)
		}
	}
}

// absurd are values that no key has in a good file, but those that a key does not care for.
var absurd = []any{-1, 0, 1 << 40, "cube", []int{}, []int{7}, map[string]any{}, true}

// TestFamilyConfigsNeverPanic changes each key of each family's config to each absurd value: what is refused is refused in one line.
func TestFamilyConfigsNeverPanic(t *testing.T) {
	root, names := families(t)
	for _, family := range names {
		t.Run(family, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(root, family)
			config := readConfig(t, dir)
			text, nested := config["text_config"].(map[string]any)
			if !nested {
				text = config
			}
			to := withConfig(t, dir, config)
			for _, key := range slices.Sorted(maps.Keys(text)) {
				if key == "quantization_config" {
					continue
				}
				good := text[key]
				for _, value := range absurd {
					text[key] = value
					changed, err := json.Marshal(config)
					if err == nil {
						err = os.WriteFile(filepath.Join(to, "config.json"), changed, 0o600)
					}
					if err != nil {
						t.Fatal(err)
					}
					if err := openFile(to); err != nil {
						if what := refused(err); what != "" {
							t.Errorf("%s %v: error %v is %s", key, value, err, what)
						}
					}
				}
				text[key] = good
			}
		})
	}
}

// TestFamilyMetadata is the same for the keys of GGUF files.
func TestFamilyMetadata(t *testing.T) {
	root, names := families(t)
	for _, family := range names {
		path := filepath.Join(root, family, "model.gguf")
		if _, err := os.Stat(path); err != nil {
			continue // no GGUF form
		}
		t.Run(family, func(t *testing.T) {
			t.Parallel()
			f, err := gguf.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			src := source{f.Meta(), f.Tensors()}
			arch, err := src.meta.String("general.architecture")
			if err != nil {
				t.Fatal(err)
			}
			for _, key := range src.meta.Keys() {
				if !strings.HasPrefix(key, arch+".") {
					continue
				}
				for _, value := range []any{int32(-1), uint32(0), uint64(1) << 40, "cube", []int32{7}, float32(-3)} {
					err := openFile(src.with(map[string]any{key: value}, "").write(t))
					if err != nil {
						if what := refused(err); what != "" {
							t.Errorf("%s %v: error %v is %s", key, value, err, what)
						}
						continue
					}
					if s := fmt.Sprint(value); s == "cube" && !strings.HasSuffix(key, "vocab_size") && mustKnow(arch, key) {
						t.Errorf("%s %v is taken", key, value)
					}
				}
			}
		})
	}
}

// unread are keys that mean nothing to architectures that do not attend or do not rotate.
var unread = map[string][]string{"mamba2": {"head_count"}, "nemotron_h": {"dimension_count"}, "nemotron_h_moe": {"dimension_count"},
	"granitehybrid": {"freq_base", "dimension_count"}}

// mustKnow reports whether a key is one that every architecture reads.
func mustKnow(arch, key string) bool {
	for _, name := range unread[arch] {
		if strings.HasSuffix(key, "."+name) {
			return false
		}
	}
	for _, known := range []string{"block_count", "embedding_length", "context_length", "head_count", "head_count_kv", "expert_count", "expert_used_count", "sliding_window", "freq_base", "dimension_count"} {
		if strings.HasSuffix(key, "."+known) {
			return true
		}
	}
	return false
}
