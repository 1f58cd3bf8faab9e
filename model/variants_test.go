package model_test

import (
	"math"
	"slices"
	"testing"

	"terrace/internal/kernels"
	"terrace/model"
	"terrace/weights/hf"
	"terrace/weights/hf/hftest"
)

// variants are models that no golden has; the slow forward pass of hftest is their reference.
func variants() map[string]func() (hftest.Config, hftest.Shapes) {
	type config = hftest.Config
	decoder := func(change config, extra map[string][]int) func() (config, hftest.Shapes) {
		return func() (config, hftest.Shapes) {
			c := hftest.Llama().With(change)
			s := hftest.Decoder(c)
			for name, shape := range extra {
				s.EachLayer("model.layers.%d.", 2, name, shape...)
			}
			return c, s
		}
	}
	qkNorm := map[string][]int{"self_attn.q_norm.weight": {8}, "self_attn.k_norm.weight": {8}}
	gemmaNorms := map[string][]int{"pre_feedforward_layernorm.weight": {16}, "post_feedforward_layernorm.weight": {16},
		"self_attn.q_norm.weight": {8}, "self_attn.k_norm.weight": {8}}
	yarn := func(p config) config {
		return config{"rope_scaling": config{"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 16}.With(p)}
	}
	return map[string]func() (config, hftest.Shapes){
		"qwen v1":   hftest.Qwen,
		"opt-350m":  func() (config, hftest.Shapes) { return hftest.OPT(8, true) },
		"opt after": func() (config, hftest.Shapes) { return hftest.OPT(16, true) },
		"phi3 partial rotary": func() (config, hftest.Shapes) {
			c := hftest.Llama().With(config{"model_type": "phi3", "head_dim": nil, "partial_rotary_factor": 0.5})
			s := hftest.Decoder(c).EachLayer("model.layers.%d.", 2, "self_attn.qkv_proj.weight", 32, 16).EachLayer("model.layers.%d.", 2, "mlp.gate_up_proj.weight", 48, 16)
			return c, s
		},
		"gelu":              decoder(config{"hidden_act": "gelu"}, nil),
		"relu":              decoder(config{"hidden_act": "relu"}, nil),
		"yarn mscale":       decoder(yarn(config{"mscale": 0.7, "mscale_all_dim": 1.0}), nil),
		"yarn no truncate":  decoder(yarn(config{"truncate": false, "beta_fast": 8}), nil),
		"yarn attention":    decoder(yarn(config{"attention_factor": 1.25}), nil),
		"longrope in llama": decoder(config{"rope_scaling": config{"type": "longrope", "factor": 4, "original_max_position_embeddings": 8, "long_factor": []float64{1, 2, 3, 4}, "short_factor": []float64{1, 1, 1.5, 2}}}, nil),
		"mistral":           decoder(config{"model_type": "mistral", "sliding_window": 5}, nil),
		"smollm3 sliding":   decoder(config{"model_type": "smollm3", "no_rope_layer_interval": 2, "use_sliding_window": true, "sliding_window": 6}, nil),
		"qwen2 sliding": decoder(config{"model_type": "qwen2", "head_dim": nil, "use_sliding_window": true, "sliding_window": 6, "max_window_layers": 1},
			map[string][]int{"self_attn.q_proj.bias": {16}, "self_attn.k_proj.bias": {8}, "self_attn.v_proj.bias": {8}}),
		"qwen3 sliding": decoder(config{"model_type": "qwen3", "use_sliding_window": true, "sliding_window": 6, "max_window_layers": 0}, qkNorm),
		"qwen3 dense and sparse layers": func() (config, hftest.Shapes) {
			c := hftest.Llama().With(config{"model_type": "qwen3_moe", "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8,
				"mlp_only_layers": []int{0}, "norm_topk_prob": false})
			s := hftest.Decoder(c).EachLayer("model.layers.%d.", 2, "self_attn.q_norm.weight", 8).EachLayer("model.layers.%d.", 2, "self_attn.k_norm.weight", 8)
			s["model.layers.1.mlp.gate.weight"] = []int{4, 16}
			s.EachLayer("model.layers.1.mlp.experts.%d.", 4, "gate_proj.weight", 8, 16)
			s.EachLayer("model.layers.1.mlp.experts.%d.", 4, "up_proj.weight", 8, 16)
			s.EachLayer("model.layers.1.mlp.experts.%d.", 4, "down_proj.weight", 16, 8)
			return c, s
		},
		"gemma3 linear": decoder(config{"model_type": "gemma3_text", "tie_word_embeddings": nil, "sliding_window": 6, "layer_types": []string{"sliding_attention", "full_attention"},
			"rope_scaling": config{"rope_type": "linear", "factor": 8}, "rope_theta": 1e6}, gemmaNorms),
		"gemma3 silu": decoder(config{"model_type": "gemma3_text", "tie_word_embeddings": nil, "sliding_window": 6, "hidden_activation": "silu"}, gemmaNorms),
		"gemma3 all sliding": decoder(config{"model_type": "gemma3_text", "tie_word_embeddings": nil, "sliding_window": 6, "attn_logit_softcapping": 5, "final_logit_softcapping": 9,
			"layer_types": []string{"sliding_attention", "sliding_attention"}}, gemmaNorms),
	}
}

// TestVariants compares models without a golden with the independent float64 forward pass: logits of a prompt and a greedy
// continuation with the cache.
func TestVariants(t *testing.T) {
	ids := []int{3, 31, 7, 7, 12, 0, 25, 18, 4, 9, 30, 1, 2, 22, 17, 6, 5, 11, 28, 14}
	for name, build := range variants() {
		t.Run(name, func(t *testing.T) {
			c, shapes := build()
			dir := hftest.Folder(t, c, shapes)
			meta, tensors, closer, err := hf.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer closer.Close()
			slow, err := hftest.New(meta, tensors)
			if err != nil {
				t.Fatal(err)
			}
			r := newRunner(t, dir)
			got := r.pass(ids, len(ids))
			if off := worst(got, slow.Logits(ids, 0)); off > 2e-5 || math.IsNaN(off) {
				t.Errorf("max |Δlogit| is %.2g of the largest logit, want at most 2e-5", off)
			}
			if have, want := r.greedy(got[len(got)-1], 12), slow.Greedy(ids, 12, true); !slices.Equal(have, want) {
				t.Errorf("greedy ids %v, want %v", have, want)
			}
		})
	}
}

// TestGuessQuery compares the speculated query of a layer with the one that Project computes from the same rows.
func TestGuessQuery(t *testing.T) {
	for name, build := range variants() {
		c, shapes := build()
		r := newRunner(t, hftest.Folder(t, c, shapes))
		p := &model.Pass{Phase: kernels.Exact, Pos: []int32{0, 1, 2}}
		hidden, err := r.b.Embed(p, []int32{3, 1, 4})
		if err != nil {
			t.Fatal(err)
		}
		guess, err := r.b.(model.QueryGuesser).GuessQuery(p, 1, hidden)
		if err != nil {
			t.Fatal(err)
		}
		q, _, _, err := r.b.Project(p, 1, hidden)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(model.Float32s(guess), model.Float32s(q)) {
			t.Errorf("%s: the guess differs from the query of the same hidden rows", name)
		}
	}
}

// TestGemma3HasNoCapOnScores: the key that configurations inherit from Gemma 2 changes nothing in Gemma 3, in GGUF files too.
func TestGemma3HasNoCapOnScores(t *testing.T) {
	c, shapes := variants()["gemma3 linear"]()
	src := newSource(t, c, shapes)
	ids := []int{3, 31, 7, 12, 25}
	want := newRunner(t, src.write(t)).pass(ids, len(ids))
	got := newRunner(t, src.with(map[string]any{"gemma3.attn_logit_softcapping": float32(0.5)}, "").write(t)).pass(ids, len(ids))
	if !slices.EqualFunc(got, want, slices.Equal[[]float32]) {
		t.Error("attn_logit_softcapping changes the logits of Gemma 3")
	}
}
