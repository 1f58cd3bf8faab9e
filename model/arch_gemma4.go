package model

import "math"

// Gemma 4 (text): layers with windows and layers without, each kind with heads and a rotation of its own; scores are not scaled, q, k and v are normed (v
// without weight); in layers without v the values are the keys' projection. The last layers read the keys and values of the last layer of their kind
// that has some. Per-layer inputs, a factor on each layer's output, experts beside the feed-forward network.
func init() {
	registerArchitecture(architecture{config: gemma4Config, params: gemma4Params}, "gemma4")
}

func gemma4Config(r *reader) *Config {
	c := gemmaShared(r, 6)
	c.LogitSoftcap = r.floatOr("final_logit_softcapping", 0)
	r.router(c, SoftmaxRouter, true)
	return c
}

// gemmaShared is what Gemma 3n and 4 have in common; each period-th layer has no window where the file does not say which.
func gemmaShared(r *reader, period int) *Config {
	c := outerConfig(r)
	r.rmsEps(c)
	r.activation(c, GELUTanh)
	c.EmbedScale = float32(math.Sqrt(float64(c.Hidden)))
	c.PerLayer = r.intOr("embedding_length_per_layer_input", 0)
	r.layers(c)
	heads, kv := r.eachInt("attention.head_count", c.Layers, 0), r.eachInt("attention.head_count_kv", c.Layers, 0)
	key, value := r.int("attention.key_length"), r.int("attention.value_length")
	near := Attention{KeyDim: r.intOr("attention.key_length_swa", key), ValDim: r.intOr("attention.value_length_swa", value), Window: r.int("attention.sliding_window"), Scale: 1}
	if near.Window < 1 {
		r.fail("metadata %q is %d, want 1 or more: %w", r.key("attention.sliding_window"), near.Window, ErrConfig)
	}
	far := Attention{KeyDim: key, ValDim: value, Scale: 1}
	for i, sliding := range r.slidingPattern(c.Layers, period) {
		a := &c.Layer[i].Attention
		if *a = far; sliding {
			*a = near
		}
		if a.Heads, a.KVHeads, a.Owner = heads[i], kv[i], i; heads[i] < 1 {
			r.fail("metadata %q is %d in layer %d, want 1 or more: %w", r.key("attention.head_count"), heads[i], i, ErrConfig)
		}
	}
	r.sharedTail(c)
	r.rope(c)
	r.localRope(c, 10000)
	return c
}

// sharedTail has the last layers read the keys and values of the last layer before them that has a window as they do, or none.
func (r *reader) sharedTail(c *Config) {
	const key = "attention.shared_kv_layers"
	n := r.int(key)
	if n < 0 || n > max(c.Layers-1, 0) {
		r.fail("metadata %q is %d, want 0 to %d of %d layers: %w", r.key(key), n, c.Layers-1, c.Layers, ErrConfig)
		return
	}
	own := c.Layers - n
	for i := own; i < c.Layers; i++ {
		owner := own - 1
		for owner >= 0 && (c.Layer[owner].Window > 0) != (c.Layer[i].Window > 0) {
			owner--
		}
		if owner < 0 {
			r.fail("metadata %q is %d: layer %d finds no earlier layer of its kind that keeps keys and values: %w", r.key(key), n, i, ErrConfig)
			return
		}
		c.Layer[i].Owner = owner
	}
}

func gemma4Params(r *reader, c *Config) *Params {
	widths, p := r.eachInt("feed_forward_length", c.Layers, 0), outerParams(r, c)
	r.perLayerOuter(c, p)
	return eachLayer(r, p, func(i int, n string) LayerParams {
		l := sandwichedLayer(r, c, i, n, widths[i])
		l.OutScale = r.optionalVector(n+"layer_output_scale.weight", 1)
		if c.Layer[i].MoE {
			r.expertWeights(c, &l, n)
			l.ExpertScale = r.optionalVector(n+"ffn_down_exps.scale", c.Experts)
			l.Beside = &BesideParams{RouterNorm: NormParams{W: r.vector(n+"ffn_gate_inp.scale", c.Hidden)}, ExpertNorm: r.norm(n+"pre_ffw_norm_2", c.Hidden),
				DensePost: r.norm(n+"post_ffw_norm_1", c.Hidden), ExpertPost: r.norm(n+"post_ffw_norm_2", c.Hidden)}
			if w := l.Beside.RouterNorm.W; w != nil {
				w.Factor = float32(1 / math.Sqrt(float64(c.Hidden)))
			}
		}
		return l
	})
}

// sandwichedLayer is a layer of Gemma 3n or 4 with what both have.
func sandwichedLayer(r *reader, c *Config, i int, n string, width int) LayerParams {
	a := &c.Layer[i].Attention
	l := LayerParams{AttnNorm: r.norm(n+"attn_norm", c.Hidden), PostAttnNorm: r.norm(n+"post_attention_norm", c.Hidden),
		FFNNorm: r.norm(n+"ffn_norm", c.Hidden), PostFFNNorm: r.norm(n+"post_ffw_norm", c.Hidden), O: r.linear(n+"attn_output", c.Hidden, a.Heads*a.ValDim), QNorm: r.norm(n+"attn_q_norm", a.KeyDim)}
	fused := a.Owner == i && r.file.Has(n+"attn_qkv.weight")
	if fused {
		l.Q, l.K, l.V = projections(r, c, i, n, false)
	} else {
		l.Q = r.linear(n+"attn_q", a.Heads*a.KeyDim, c.Hidden)
	}
	if a.Owner == i {
		l.KNorm, l.VNorm = r.norm(n+"attn_k_norm", a.KeyDim), NormParams{W: onesVector(a.ValDim)}
	}
	if a.Owner == i && !fused {
		l.K = r.linear(n+"attn_k", a.KVHeads*a.KeyDim, c.Hidden)
		if l.V = r.optionalLinear(n+"attn_v", a.KVHeads*a.ValDim, c.Hidden); l.V == nil && a.KeyDim != a.ValDim {
			r.fail("tensor %q is missing, and values of %d numbers cannot be the keys of %d: %w", n+"attn_v.weight", a.ValDim, a.KeyDim, ErrConfig)
		}
	}
	r.denseWeights(c, &l, n, width)
	if p := c.PerLayer; p > 0 {
		l.PerLayer = &PerLayerParams{Proj: r.part("per_layer_model_proj", c.Layers*p, i*p, p, c.Hidden), Gate: r.linear(n+"inp_gate", p, c.Hidden),
			Up: r.linear(n+"proj", c.Hidden, p), Norm: r.norm(n+"post_norm", c.Hidden)}
	}
	return l
}

// perLayerOuter adds the table of per-layer inputs, which may have fewer rows than the vocabulary.
func (r *reader) perLayerOuter(c *Config, p *Params) {
	if c.PerLayer == 0 {
		return
	}
	const name = "per_layer_token_embd.weight"
	t := r.tensorNamed(name)
	if t == nil {
		return
	}
	if width := c.Layers * c.PerLayer; len(t.Shape) != 2 || t.Shape[0] < 1 || t.Shape[1] != width {
		r.fail("tensor %q has shape %v, want rows of %d layers × %d numbers: %w", name, t.Shape, c.Layers, c.PerLayer, ErrConfig)
		return
	}
	p.PerLayerTable = &Linear{Tensor: t, Rows: t.Shape[0], Cols: t.Shape[1]}
	p.PerLayerNorm = r.norm("per_layer_proj_norm", c.PerLayer)
}
