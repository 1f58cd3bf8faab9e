package model

// LFM2: gated short convolutions, and attention with norms on each head of q and k in the layers whose head_count_kv is not 0. The final
// norm is token_embd_norm. The mixture has experts behind its first layers, chosen by sigmoids with a bias.
func init() {
	registerArchitecture(architecture{config: lfm2Config, params: lfm2Params}, "lfm2", "lfm2moe")
}

func lfm2Config(r *reader) *Config {
	c := outerConfig(r)
	r.rmsEps(c)
	r.activation(c, SiLU)
	heads := r.perLayer("attention.head_count", c.Layers)
	if heads < 1 || c.Hidden < 1 {
		r.fail("metadata %q is %d and %q is %d, want 1 or more: %w", r.key("attention.head_count"), heads, r.key("embedding_length"), c.Hidden, ErrConfig)
	}
	r.layers(c)
	conv := &ShortConv{Width: c.Hidden, Kernel: r.int("shortconv.l_cache")}
	for i, kv := range r.eachInt("attention.head_count_kv", c.Layers, heads) {
		l := &c.Layer[i]
		if kv == 0 {
			l.Conv = conv
			continue
		}
		dim := c.Hidden / heads
		l.Attention = Attention{Heads: heads, KVHeads: kv, KeyDim: r.intOr("attention.key_length", dim), ValDim: r.intOr("attention.value_length", dim), Owner: i}
	}
	r.rope(c)
	if r.arch == "lfm2" {
		r.windows(c, 0, 0)
	}
	r.router(c, SigmoidRouter, true)
	c.Router.Bias = c.Experts > 0 && r.anyLayerHas(c, "exp_probs_b.bias")
	return c
}

func lfm2Params(r *reader, c *Config) *Params {
	outer := *c
	outer.NoFinal = true
	p := outerParams(r, &outer)
	p.FinalNorm = r.norm("token_embd_norm", c.Hidden)
	return eachLayer(r, p, func(i int, n string) LayerParams { return lfm2Layer(r, c, i, n) })
}

// lfm2Layer is a layer that convolves or attends.
func lfm2Layer(r *reader, c *Config, i int, n string) LayerParams {
	conv := c.Layer[i].Conv
	if conv == nil {
		l := decoderLayer(r, c, i)
		l.QNorm, l.KNorm = r.norm(n+"attn_q_norm", c.Layer[i].KeyDim), r.norm(n+"attn_k_norm", c.Layer[i].KeyDim)
		return l
	}
	l := LayerParams{AttnNorm: r.norm(n+"attn_norm", c.Hidden), FFNNorm: r.norm(n+"ffn_norm", c.Hidden), O: r.linear(n+"shortconv.out_proj", c.Hidden, conv.Width)}
	l.Recurrent = RecurrentParams{In: []*Linear{r.linear(n+"shortconv.in_proj", 3*conv.Width, c.Hidden)}, Conv: []*Vector{r.vector(n+"shortconv.conv.weight", conv.Width*conv.Kernel)},
		ConvBias: r.optionalVector(n+"shortconv.conv.bias", conv.Width)}
	r.feedForward(c, &l, n, c.Layer[i].MoE)
	return l
}
