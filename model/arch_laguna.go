package model

// Laguna: heads by layer, a softplus gate on the output of attention (a number a head, or each its own), norms on each head of q and k, windows
// in three of four layers, whose rotation is not scaled, and experts chosen by sigmoids with a bias beside a network that every token uses.
func init() {
	registerArchitecture(architecture{config: lagunaConfig, params: lagunaParams}, "laguna")
}

func lagunaConfig(r *reader) *Config {
	c := headsByLayer(r)
	r.rmsEps(c)
	r.activation(c, SiLU)
	r.rope(c)
	r.lagunaWindows(c)
	r.slidingRope(c)
	r.router(c, SigmoidRouter, true)
	c.Router.Bias = c.Experts > 0
	c.Router.Softcap = r.floatKeyOr("terrace.router.softcap", 0)
	c.Router.OnInput = r.boolKeyOr("terrace.router.on_input", false)
	gated := r.file.Has("blk.0.attn_gate.weight")
	c.EachAttention(func(a *Attention) {
		if gated {
			a.Gate = SoftplusGate
		}
	})
	return c
}

// lagunaWindows sets windows by the file's list, else in all layers but the first of each period, by default of four.
func (r *reader) lagunaWindows(c *Config) {
	period, key := 4, "attention.sliding_window_pattern"
	if r.meta.Len(r.key(key)) > 0 {
		r.windows(c, 0, 0)
		return
	}
	if period = r.intOr(key, period); period < 0 {
		r.fail("metadata %q is %d, want 0 or more: %w", r.key(key), period, ErrConfig)
		return
	}
	for i := range c.Layer {
		if period == 0 || i%period != 0 {
			c.Layer[i].Window = r.intOr("attention.sliding_window", 0)
		}
	}
}

// headsByLayer is decoderConfig of a model whose layers have query heads of their own number.
func headsByLayer(r *reader) *Config {
	c := outerConfig(r)
	r.layers(c)
	heads := r.eachInt("attention.head_count", c.Layers, 0)
	kv := r.eachInt("attention.head_count_kv", c.Layers, 0)
	key, value := r.int("attention.key_length"), r.int("attention.value_length")
	for i := range c.Layer {
		c.Layer[i].Attention = Attention{Heads: max(heads[i], 1), KVHeads: kv[i], KeyDim: key, ValDim: value, Owner: i}
		if heads[i] < 1 {
			r.fail("metadata %q is %d in layer %d, want 1 or more: %w", r.key("attention.head_count"), heads[i], i, ErrConfig)
		}
	}
	return c
}

func lagunaParams(r *reader, c *Config) *Params {
	p := qwen3Params(r, c)
	return eachLayer(r, p, func(i int, n string) LayerParams {
		l, a := p.Layers[i], &c.Layer[i]
		if a.Attention.Gate == NoGate {
			return l
		}
		rows := a.Heads
		if t := r.tensorNamed(n + "attn_gate.weight"); t != nil && len(t.Shape) == 2 && t.Shape[0] != rows {
			rows = a.Heads * a.ValDim
		}
		l.OutGate = r.linear(n+"attn_gate", rows, c.Hidden)
		return l
	})
}
