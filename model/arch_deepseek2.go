package model

import "math"

// DeepSeek V2 and V3 and what is built alike (GLM-4.7-Flash, Mistral 4): latent keys and values, and behind the first layers experts beside a
// network that every token uses. V2 chooses by a softmax, its groups by their best expert; V3 by sigmoids with a bias, its groups by their
// best two.
func init() {
	registerArchitecture(architecture{config: deepseek2Config, params: deepseek2Params}, "deepseek2")
}

func deepseek2Config(r *reader) *Config {
	c := outerConfig(r)
	r.rmsEps(c)
	r.activation(c, SiLU)
	all := r.latentAttention(r.perLayer("attention.head_count", c.Layers))
	if kv := r.perLayerOr("attention.head_count_kv", c.Layers, 1); kv != 1 {
		r.fail("metadata %q is %d, want 1: keys and values are one latent: convert the model again: %w", r.key("attention.head_count_kv"), kv, ErrConfig)
	}
	r.layers(c)
	for i := range c.Layer {
		c.Layer[i].Attention, c.Layer[i].Owner = all, i
	}
	r.rope(c)
	r.latentScale(c)
	r.temperature(c)
	r.latentRouter(c, SoftmaxRouter, false)
	return c
}

// latentAttention reads the figures of latent keys and values; its layers rotate by the first table.
func (r *reader) latentAttention(heads int) Attention {
	x := &Latent{Rank: r.int("attention.kv_lora_rank"), Rope: r.int("rope.dimension_count"), Value: r.int("attention.value_length_mla")}
	x.Nope = r.int("attention.key_length_mla") - x.Rope
	if x.Rope < 0 || x.Nope < 1 {
		r.fail("metadata %q is %d of %q %d, want a part of it: %w", r.key("rope.dimension_count"), x.Rope, r.key("attention.key_length_mla"), x.Nope+x.Rope, ErrConfig)
		x.Nope = 1
	}
	return Attention{Heads: heads, KVHeads: 1, KeyDim: x.Rank + x.Rope, ValDim: x.Rank + x.Rope, Latent: x, Scale: float32(1 / math.Sqrt(float64(x.Nope+max(x.Rope, 0))))}
}

// latentScale multiplies scores by YaRN's amplitude for all dimensions, squared, where the file gives its multiplier; rotation has none then.
func (r *reader) latentScale(c *Config) {
	m := r.floatOr("rope.scaling.yarn_log_multiplier", 0)
	if m == 0 || len(c.Ropes) == 0 {
		return
	}
	scale := yarnScale(r.floatOr("rope.scaling.factor", 1), 10*m)
	c.EachAttention(func(a *Attention) { a.Scale *= scale * scale })
	if !r.meta.Has("terrace.rope.scaling.attention_factor") {
		c.Ropes[0].Amplitude = 1
	}
}

// temperature reads the factor on queries by position.
func (r *reader) temperature(c *Config) {
	t := Temperature{Scale: r.floatOr("attention.temperature_scale", 0), Every: r.intOr("attention.temperature_length", c.Context)}
	if t.Scale != 0 {
		c.EachAttention(func(a *Attention) { a.Temperature = t })
	}
}

// latentRouter is router with the biases that the file has, and groups scored as the architecture does.
func (r *reader) latentRouter(c *Config, own RouterScore, normalised bool) {
	r.router(c, own, normalised)
	c.Router.Bias = c.Experts > 0 && r.anyLayerHas(c, "exp_probs_b.bias")
	if x := &c.Router; x.Groups > 1 {
		best := 2
		if x.Score == SoftmaxRouter {
			best = 1
		}
		x.GroupBest = r.intKeyOr("terrace.router.group_best", best, maxExperts)
	}
}

func deepseek2Params(r *reader, c *Config) *Params {
	return eachLayer(r, outerParams(r, c), func(i int, n string) LayerParams {
		l := latentLayer(r, c, i, n)
		r.feedForward(c, &l, n, c.Layer[i].MoE)
		return l
	})
}

// latentLayer is a layer of latent attention without its feed-forward weights.
func latentLayer(r *reader, c *Config, i int, n string) LayerParams {
	a := &c.Layer[i].Attention
	x := a.Latent
	l := LayerParams{AttnNorm: r.norm(n+"attn_norm", c.Hidden), FFNNorm: r.norm(n+"ffn_norm", c.Hidden),
		KeyDown: r.linear(n+"attn_kv_a_mqa", a.KeyDim, c.Hidden), KeyNorm: r.norm(n+"attn_kv_a_norm", x.Rank),
		KeyUp: r.experts(n+"attn_k_b", a.Heads, x.Rank, x.Nope), ValueUp: r.experts(n+"attn_v_b", a.Heads, x.Value, x.Rank),
		O: r.linear(n+"attn_output", c.Hidden, a.Heads*x.Value)}
	width := a.Heads * (x.Nope + x.Rope)
	if rank := r.intOr("attention.q_lora_rank", 0); rank > 0 {
		l.QueryDown, l.QueryNorm = r.linear(n+"attn_q_a", rank, c.Hidden), r.norm(n+"attn_q_a_norm", rank)
		l.Q = r.linear(n+"attn_q_b", width, rank)
	} else {
		l.Q = r.linear(n+"attn_q", width, c.Hidden)
	}
	return l
}
