package hf

import (
	"fmt"

	"terrace/weights/gguf"
)

// Dense families with LayerNorm, and Apertus, whose activation has figures of its own in each layer.
func init() {
	register("cohere2", family{"cohere2", cohere2Figures, cohere2Tensors})
	register("starcoder2", family{"starcoder2", starcoder2Figures, starcoder2Tensors})
	register("stablelm", family{"stablelm", stablelmFigures, stablelmTensors})
	register("apertus", family{"apertus", apertusFigures, apertusTensors})
}

// layerNormFigures is figures of a family whose epsilon stands under a key of its own.
func (v *view) layerNormFigures(key string, d defaults) bool {
	n := usualNames
	n.eps = ""
	v.setFloat("attention.layer_norm_epsilon", v.cfg.floatOr(key, 1e-5, 1e-20, 0.5))
	return v.figures(n, d)
}

// normedOuter is outer with a LayerNorm.
func (v *view) normedOuter(bias bool) {
	v.matrix("token_embd.weight", "model.embed_tokens.weight", -1, v.vocab, v.hidden)
	v.vector("output_norm.weight", "model.norm.weight", -1, v.hidden, 0)
	if bias {
		v.vector("output_norm.bias", "model.norm.bias", -1, v.hidden, 0)
	}
	v.head("lm_head.weight", "model.embed_tokens.weight", v.hidden)
}

func cohere2Figures(v *view) {
	if !v.layerNormFigures("layer_norm_eps", defaults{heads: 64, context: 8192, tied: true}) {
		return
	}
	v.activation("hidden_act", "silu")
	v.rope(10000)
	v.setFloat("logit_scale", v.cfg.floatOr("logit_scale", 0.0625, 1e-6, 1e6))
	v.refuseUnless(!v.cfg.boolOr("use_qk_norm", false), "use_qk_norm is not supported")
	v.window(4096)
	v.windowLayers(butEach(v.cfg.period("sliding_window_pattern", 4, maxLayers)))
}

func cohere2Tensors(v *view) {
	bias := v.cfg.boolOr("attention_bias", false)
	v.normedOuter(false)
	v.eachLayer("model.layers.", func(i int, name, hfName string) {
		v.attention(i, name, hfName, bias, bias)
		v.vector(name+"attn_norm.weight", hfName+"input_layernorm.weight", i, v.hidden, 0)
		v.gatedFFN(i, name, hfName+"mlp.", v.ffn, false)
	})
}

func starcoder2Figures(v *view) {
	if !v.layerNormFigures("norm_epsilon", defaults{heads: 24, kvHeads: 2, context: 4096, tied: true}) {
		return
	}
	v.activation("hidden_act", "gelu_pytorch_tanh")
	v.rope(10000)
	v.window(0)
}

func starcoder2Tensors(v *view) {
	bias := v.cfg.boolOr("use_bias", true)
	v.normedOuter(true)
	v.eachLayer("model.layers.", func(i int, name, hfName string) {
		v.attention(i, name, hfName, bias, bias)
		v.layerNorm(name+"attn_norm", hfName+"input_layernorm", i)
		v.layerNorm(name+"ffn_norm", hfName+"post_attention_layernorm", i)
		v.linear(name+"ffn_up", hfName+"mlp.c_fc", i, v.ffn, v.hidden, bias)
		v.linear(name+"ffn_down", hfName+"mlp.c_proj", i, v.hidden, v.ffn, bias)
	})
}

func stablelmFigures(v *view) {
	if !v.layerNormFigures("layer_norm_eps", defaults{heads: 32, kvHeads: 32, context: 4096}) {
		return
	}
	v.activation("hidden_act", "silu")
	v.rope(10000)
	v.set("use_parallel_residual", v.cfg.boolOr("use_parallel_residual", false))
}

func stablelmTensors(v *view) {
	bias, headNorms := v.cfg.boolOr("use_qkv_bias", false), v.cfg.boolOr("qk_layernorm", false)
	parallel := v.cfg.boolOr("use_parallel_residual", false)
	v.normedOuter(true)
	v.eachLayer("model.layers.", func(i int, name, hfName string) {
		v.attention(i, name, hfName, bias, false)
		if headNorms {
			v.normOfEach(name+"attn_q_norm.weight", hfName+"self_attn.q_layernorm.norms.%d.weight", i, v.heads)
			v.normOfEach(name+"attn_k_norm.weight", hfName+"self_attn.k_layernorm.norms.%d.weight", i, v.kvHeads)
		}
		v.layerNorm(name+"attn_norm", hfName+"input_layernorm", i)
		if !parallel {
			v.layerNorm(name+"ffn_norm", hfName+"post_attention_layernorm", i)
		}
		v.gatedFFN(i, name, hfName+"mlp.", v.ffn, false)
	})
}

// normOfEach presents the weights of one norm a head as [heads, head_dim].
func (v *view) normOfEach(name, pattern string, layer, heads int) {
	parts := make([]*gguf.Tensor, heads)
	for h := range parts {
		if parts[h] = v.find(fmt.Sprintf(pattern, h), layer, v.headDim); parts[h] == nil {
			return
		}
	}
	v.add(gguf.NewTensor(name, f32, []int{heads, v.headDim}, func() ([]byte, error) {
		var all []float32
		for _, p := range parts {
			x, err := floatsOf(p)
			if err != nil {
				return nil, err
			}
			all = append(all, x...)
		}
		return floatBytes(all), nil
	}))
}

func apertusFigures(v *view) {
	if !v.figures(usualNames, defaults{heads: 32, context: 65536, eps: 1e-5}) {
		return
	}
	v.refuseUnless(v.cfg.stringOr("hidden_act", "xielu") == "xielu", "hidden_act is %q, want xielu", v.cfg.stringOr("hidden_act", ""))
	v.ropeOfClass(`{"rope_type": "llama3", "factor": 8, "original_max_position_embeddings": 8192, "low_freq_factor": 1, "high_freq_factor": 4}`)
	v.rope(12e6)
}

func apertusTensors(v *view) {
	bias := v.cfg.boolOr("attention_bias", false)
	curves := map[string][]float32{}
	v.outer(0)
	v.eachLayer("model.layers.", func(i int, name, hfName string) {
		v.attention(i, name, hfName, bias, bias)
		v.qkNorms(i, name, hfName, 0)
		v.vector(name+"attn_norm.weight", hfName+"attention_layernorm.weight", i, v.hidden, 0)
		v.vector(name+"ffn_norm.weight", hfName+"feedforward_layernorm.weight", i, v.hidden, 0)
		v.linear(name+"ffn_up", hfName+"mlp.up_proj", i, v.ffn, v.hidden, false)
		v.linear(name+"ffn_down", hfName+"mlp.down_proj", i, v.hidden, v.ffn, false)
		for key, def := range map[string]float32{"alpha_p": noDefault, "alpha_n": noDefault, "beta": 0.5, "eps": -1e-6} {
			curves[key] = append(curves[key], v.number(hfName+"mlp.act_fn."+key, i, def))
		}
	})
	for key, list := range curves {
		v.set("xielu."+key, list)
	}
}

const noDefault = -1e30

// number reads a tensor of one number.
func (v *view) number(hfName string, layer int, def float32) float32 {
	t := v.files.tensor(v.prefix + hfName)
	if t == nil && def != noDefault {
		return def
	}
	shape := []int{1}
	if t != nil && len(t.Shape) == 0 {
		shape = nil
	}
	if t = v.find(hfName, layer, shape...); t == nil {
		return 0
	}
	x, err := floatsOf(t)
	if err != nil {
		v.faults.add("%w", err)
		return 0
	}
	return x[0]
}
