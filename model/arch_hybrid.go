package model

// Granite 4 hybrids and Nemotron-H: Mamba-2, and attention in the layers whose head_count_kv is not 0. Granite has a feed-forward network in
// each layer and its four multipliers; Nemotron-H has one mixer a layer, of which the networks without a gate, of squared ReLU, are some.
func init() {
	registerArchitecture(architecture{config: graniteHybridConfig, params: graniteHybridParams}, "granitehybrid")
	registerArchitecture(architecture{config: nemotronConfig, params: nemotronParams}, "nemotron_h", "nemotron_h_moe")
}

// hybridConfig begins the Config of a model whose layers attend where head_count_kv is not 0; it returns that list.
func hybridConfig(r *reader) (c *Config, kv []int) {
	c = outerConfig(r)
	heads := r.perLayer("attention.head_count", c.Layers)
	if heads < 1 || c.Hidden < 1 {
		r.fail("metadata %q is %d and %q is %d, want 1 or more: %w", r.key("attention.head_count"), heads, r.key("embedding_length"), c.Hidden, ErrConfig)
	}
	r.layers(c)
	kv = r.eachInt("attention.head_count_kv", c.Layers, heads)
	for i, n := range kv {
		if n != 0 {
			dim := c.Hidden / heads
			c.Layer[i].Attention = Attention{Heads: heads, KVHeads: n, KeyDim: r.intOr("attention.key_length", dim), ValDim: r.intOr("attention.value_length", dim), Owner: i, Rope: -1}
		}
	}
	return c, kv
}

func graniteHybridConfig(r *reader) *Config {
	c, kv := hybridConfig(r)
	r.rmsEps(c)
	r.activation(c, SiLU)
	ssm := r.ssmFigures()
	rotates := r.boolOr("rope.scaling.finetuned", true)
	for i, n := range kv {
		if n == 0 {
			c.Layer[i].SSM = ssm
		} else if rotates {
			c.Layer[i].Rope = 0
		}
	}
	if rotates {
		r.rope(c)
	}
	r.graniteScales(c)
	r.router(c, SoftmaxRouter, true)
	return c
}

func graniteHybridParams(r *reader, c *Config) *Params {
	return eachLayer(r, outerParams(r, c), func(i int, n string) LayerParams {
		l := mambaOrAttention(r, c, i, n)
		l.FFNNorm = r.norm(n+"ffn_norm", c.Hidden)
		r.feedForward(c, &l, n, c.Layer[i].MoE)
		return l
	})
}

// mambaOrAttention is the mixer of a layer with the norm before it.
func mambaOrAttention(r *reader, c *Config, i int, n string) LayerParams {
	var l LayerParams
	if s := c.Layer[i].SSM; s != nil {
		l = LayerParams{Recurrent: ssmParams(r, c, s, n), O: r.linear(n+"ssm_out", c.Hidden, s.inner())}
	} else {
		l = attentionLayer(r, c, i, n)
	}
	l.AttnNorm = r.norm(n+"attn_norm", c.Hidden)
	return l
}

func nemotronConfig(r *reader) *Config {
	c, kv := hybridConfig(r)
	eps := "attention.layer_norm_rms_epsilon"
	if !r.meta.Has(r.key(eps)) {
		eps = "attention.layer_norm_epsilon"
	}
	c.Norm, c.NormEps, c.Act, c.Gated = RMSNorm, r.float(eps), SquaredReLU, false
	r.router(c, SigmoidRouter, true)
	c.Router.Bias = c.Experts > 0
	c.MoELatent = r.intOr("moe_latent_size", 0)
	ssm := r.ssmFigures()
	widths := r.eachInt("feed_forward_length", c.Layers, 0)
	for i := range c.Layer {
		l := &c.Layer[i]
		switch network := widths[i] != 0 && kv[i] == 0; {
		case network:
			l.MoE = c.Experts > 0 && !r.file.Has(layerTensor(i, "ffn_up.weight"))
		case kv[i] == 0:
			l.SSM, l.NoFFN, l.MoE = ssm, true, false
		default:
			l.NoFFN, l.MoE = true, false
		}
	}
	return c
}

func nemotronParams(r *reader, c *Config) *Params {
	widths := r.eachInt("feed_forward_length", c.Layers, 0)
	return eachLayer(r, outerParams(r, c), func(i int, n string) LayerParams {
		if c.Layer[i].NoFFN {
			return mambaOrAttention(r, c, i, n)
		}
		l := LayerParams{FFNNorm: r.norm(n+"attn_norm", c.Hidden)}
		if c.Layer[i].MoE {
			r.expertWeights(c, &l, n)
		} else {
			l.Up, l.Down = r.linear(n+"ffn_up", widths[i], c.Hidden), r.linear(n+"ffn_down", c.Hidden, widths[i])
		}
		return l
	})
}
