package hf

import "terrace/weights/gguf"

// Falcon-H1: attention and Mamba-2 side by side. Its multipliers of projections are folded into the weights, which become F32 for that.
func init() { register("falcon_h1", family{"falcon-h1", falconH1Figures, falconH1Tensors}) }

const leastMultiplier, mostMultiplier = -1e6, 1e6

func falconH1Figures(v *view) {
	if !v.figures(usualNames, defaults{heads: 32, kvHeads: 8, context: 8192, eps: 1e-5}) {
		return
	}
	c := v.cfg
	v.activation("hidden_act", "silu")
	v.siluConvolution()
	v.rope(10000)
	v.setFloat("embedding_scale", v.multiplier("embedding_multiplier"))
	v.setFloat("logit_scale", v.multiplier("lm_head_multiplier"))
	inner := int(c.floatOr("mamba_expand", 2, 0.01, 64) * float64(v.hidden))
	if !c.null("mamba_d_ssm") {
		inner = c.intOr("mamba_d_ssm", 1024, 1, maxWidth)
	}
	v.ssmFigures(ssm{heads: "mamba_n_heads", headDim: "mamba_d_head", state: "mamba_d_state", groups: "mamba_n_groups", kernel: "mamba_d_conv",
		defHeads: 128, defDim: max(1, inner/128), defState: 256, defGroups: 1}, inner)
	v.timeStepLimit()
	v.setOurs("ssm.norm_before_gate", c.boolOr("mamba_norm_before_gate", true))
	for _, key := range []string{"ssm_in_multiplier", "ssm_out_multiplier", "attention_in_multiplier", "attention_out_multiplier", "key_multiplier"} {
		v.multiplier(key)
	}
	v.multipliers("ssm_multipliers", 5)
	v.multipliers("mlp_multipliers", 2)
}

func (v *view) multiplier(key string) float64 {
	return v.cfg.floatOr(key, 1, leastMultiplier, mostMultiplier)
}

// multipliers reads a list of n factors; ones where it is absent.
func (v *view) multipliers(key string, n int) []float32 {
	if v.cfg.has(key) {
		return v.cfg.numbers(key, n, leastMultiplier, mostMultiplier)
	}
	out := make([]float32, n)
	for i := range out {
		out[i] = 1
	}
	return out
}

func falconH1Tensors(v *view) {
	c := v.cfg
	bias, mlpBias, inBias, outBias := c.boolOr("attention_bias", false), c.boolOr("mlp_bias", false), c.boolOr("mamba_proj_bias", false), c.boolOr("projectors_bias", false)
	in, out, key, mlp := v.multiplier("attention_in_multiplier"), v.multiplier("attention_out_multiplier"), v.multiplier("key_multiplier"), v.multipliers("mlp_multipliers", 2)
	q, kv := v.heads*v.headDim, v.kvHeads*v.headDim
	v.matrix("token_embd.weight", "model.embed_tokens.weight", -1, v.vocab, v.hidden)
	v.vector("output_norm.weight", "model.final_layernorm.weight", -1, v.hidden, 0)
	v.head("lm_head.weight", "model.embed_tokens.weight", v.hidden)
	v.eachLayer("model.layers.", func(i int, name, hfName string) {
		v.vector(name+"attn_norm.weight", hfName+"input_layernorm.weight", i, v.hidden, 0)
		v.vector(name+"ffn_norm.weight", hfName+"pre_ff_layernorm.weight", i, v.hidden, 0)
		at := hfName + "self_attn."
		v.scaled(name+"attn_q", at+"q_proj", i, q, v.hidden, bias, all(in), all(1))
		v.scaled(name+"attn_k", at+"k_proj", i, kv, v.hidden, bias, all(in*key), all(key))
		v.scaled(name+"attn_v", at+"v_proj", i, kv, v.hidden, bias, all(in), all(1))
		v.scaled(name+"attn_output", at+"o_proj", i, v.hidden, q, bias, all(out), all(out))
		v.falconMamba(i, name, hfName+"mamba.", inBias, outBias)
		ff := hfName + "feed_forward."
		gate, down := all(float64(mlp[0])), all(float64(mlp[1]))
		v.scaled(name+"ffn_gate", ff+"gate_proj", i, v.ffn, v.hidden, mlpBias, gate, gate)
		v.linear(name+"ffn_up", ff+"up_proj", i, v.ffn, v.hidden, mlpBias)
		v.scaled(name+"ffn_down", ff+"down_proj", i, v.hidden, v.ffn, mlpBias, down, down)
	})
}

// falconMamba presents a mixer whose input's parts z, u, B, C and dt have factors of their own.
func (v *view) falconMamba(i int, name, hfName string, inBias, outBias bool) {
	inner, heads, kernel := v.published("ssm.inner_size"), v.published("ssm.time_step_rank"), v.published("ssm.conv_kernel")
	bc := v.published("ssm.group_count") * v.published("ssm.state_size")
	parts, in, out := v.multipliers("ssm_multipliers", 5), v.multiplier("ssm_in_multiplier"), all(v.multiplier("ssm_out_multiplier"))
	ends := []int{inner, 2 * inner, 2*inner + bc, 2*inner + 2*bc}
	part := func(row int) float64 {
		p := 0
		for p < len(ends) && row >= ends[p] {
			p++
		}
		return float64(parts[p])
	}
	v.scaled(name+"ssm_in", hfName+"in_proj", i, 2*inner+2*bc+heads, v.hidden, inBias, func(row int) float64 { return in * part(row) }, part)
	v.convolution(name+"ssm_conv1d.weight", hfName+"conv1d.weight", i, inner+2*bc, kernel)
	if v.cfg.boolOr("mamba_conv_bias", true) {
		v.vector(name+"ssm_conv1d.bias", hfName+"conv1d.bias", i, inner+2*bc, 0)
	}
	v.decay(name+"ssm_a", hfName+"A_log", i, heads)
	v.vector(name+"ssm_dt.bias", hfName+"dt_bias", i, heads, 0)
	v.vector(name+"ssm_d", hfName+"D", i, heads, 0)
	if v.cfg.boolOr("mamba_rms_norm", false) {
		v.vector(name+"ssm_norm.weight", hfName+"norm.weight", i, inner, 0)
	}
	v.scaled(name+"ssm_out", hfName+"out_proj", i, v.hidden, inner, outBias, out, out)
}

// all is one factor for all rows.
func all(factor float64) func(int) float64 { return func(int) float64 { return factor } }

// scaled presents a weight [rows, cols] and its bias as F32, each row times a factor.
func (v *view) scaled(name, hfName string, layer, rows, cols int, bias bool, weight, add func(row int) float64) {
	present := func(name, hfName string, width int, factor func(int) float64, shape ...int) {
		t := v.find(hfName, layer, shape...)
		if t == nil {
			return
		}
		v.add(gguf.NewTensor(name, f32, shape, func() ([]byte, error) {
			x, err := floatsOf(t)
			if err != nil {
				return nil, err
			}
			for i := range x {
				x[i] = float32(float64(x[i]) * factor(i/width))
			}
			return floatBytes(x), nil
		}))
	}
	present(name+".weight", hfName+".weight", cols, weight, rows, cols)
	if bias {
		present(name+".bias", hfName+".bias", 1, add, rows)
	}
}
