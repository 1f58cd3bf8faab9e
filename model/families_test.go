package model_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// families are the models of the goldens that load.
var families = []string{
	"apertus", "cohere2", "ernie4_5", "ernie4_5_moe", "exaone4", "glm4", "glm4_moe", "gpt_oss", "gpt_oss_mxfp4", "granite_swa", "granitemoe",
	"hunyuan_v1_dense", "laguna", "llama4", "mellum", "minimax_m2", "ministral3", "ministral3_vl", "olmo2", "olmo3", "phimoe", "qwen2_moe",
	"seed_oss", "stablelm", "starcoder2",
	"deepseek_v2", "deepseek_v3", "falcon_h1", "glm4_moe_lite", "granitemoehybrid", "kimi_linear", "mistral4", "nemotron_h", "nemotron_h_moe",
	"gemma3n", "gemma4", "gemma4_moe", "gemma4_vl", "lfm2", "lfm2_moe", "lfm3", "mamba2", "qwen3_5", "qwen3_5_moe", "qwen3_5_moe_vl", "qwen3_5_vl", "qwen3_next",
}

// indexedFamilies attend to what an indexer chooses: package engine compares them.
var indexedFamilies = []string{"deepseek_v32", "qwen4_exp"}

// TestFamilies compares each family, as a folder and as a GGUF file, with Hugging Face's float32 logits of two prompts and its greedy
// continuation of the first, which is read in one pass and in two.
func TestFamilies(t *testing.T) {
	root := shared(t, "data", "golden", "families")
	for _, name := range families {
		dir := filepath.Join(root, name)
		g := readGolden(t, filepath.Join(dir, "golden.safetensors"))
		for _, path := range []string{dir, filepath.Join(dir, "model.gguf")} {
			if _, err := os.Stat(path); err != nil {
				continue // no GGUF form
			}
			t.Run(name+"/"+filepath.Base(path), func(t *testing.T) {
				r := newRunner(t, path)
				ids, want := g.ints("input_ids"), g.rows("logits", r.m.Vocab)
				got := r.pass(ids, len(ids))
				if off := worst(got, want); off > 2e-4 {
					t.Errorf("max |Δlogit| is %.2g of the largest logit, want at most 2e-4", off)
				}
				greedy := g.ints("greedy_ids")
				if have := r.greedy(got[len(got)-1], len(greedy)); !slices.Equal(have, greedy) {
					t.Errorf("greedy ids %v, want %v", have, greedy)
				}
				r = newRunner(t, path)
				chunked := append(r.pass(ids[:17], len(ids)), r.pass(ids[17:], len(ids))...)
				if off := worst(chunked, want); off > 2e-4 {
					t.Errorf("in two chunks: max |Δlogit| is %.2g of the largest logit, want at most 2e-4", off)
				}
				r = newRunner(t, path)
				second := g.ints("input_ids_2")
				if off := worst(r.pass(second, len(second)), g.rows("logits_2", r.m.Vocab)); off > 2e-4 {
					t.Errorf("second prompt: max |Δlogit| is %.2g of the largest logit, want at most 2e-4", off)
				}
			})
		}
	}
}
