package model

// Kimi Linear: gated DeltaNet with a decay for each number of a key and a convolution each for q, k and v, and in the layers whose
// head_count_kv is not 0 latent attention without any rotation. Experts are chosen by sigmoids with a bias.
func init() {
	registerArchitecture(architecture{config: kimiConfig, params: kimiParams}, "kimi-linear")
}

func kimiConfig(r *reader) *Config {
	c := outerConfig(r)
	r.rmsEps(c)
	r.activation(c, SiLU)
	heads := r.perLayer("attention.head_count", c.Layers)
	all := r.latentAttention(heads)
	all.Rope = -1
	r.layers(c)
	width := r.int("kda.head_dim")
	delta := &DeltaNet{KeyHeads: heads, ValueHeads: heads, KeyDim: width, ValueDim: width, Kernel: r.int("ssm.conv_kernel"), ByChannel: true, Sigmoid: true}
	if n := r.intKeyOr("terrace.kda.heads", heads, maxHeads); n > 0 {
		delta.KeyHeads, delta.ValueHeads = n, n
	}
	for i, kv := range r.eachInt("attention.head_count_kv", c.Layers, 1) {
		if kv == 0 {
			c.Layer[i].Delta = delta
			continue
		}
		c.Layer[i].Attention, c.Layer[i].Owner = all, i
	}
	r.latentRouter(c, SigmoidRouter, true)
	return c
}

func kimiParams(r *reader, c *Config) *Params {
	return eachLayer(r, outerParams(r, c), func(i int, n string) LayerParams {
		var l LayerParams
		if d := c.Layer[i].Delta; d != nil {
			l = channelDeltaLayer(r, c, d, n)
		} else {
			l = latentLayer(r, c, i, n)
		}
		r.feedForward(c, &l, n, c.Layer[i].MoE)
		return l
	})
}

// channelDeltaLayer is a layer of DeltaNet with decays by channel, without its feed-forward weights.
func channelDeltaLayer(r *reader, c *Config, d *DeltaNet, n string) LayerParams {
	inner := d.ValueHeads * d.ValueDim
	l := LayerParams{AttnNorm: r.norm(n+"attn_norm", c.Hidden), FFNNorm: r.norm(n+"ffn_norm", c.Hidden), O: r.linear(n+"attn_output", c.Hidden, inner)}
	p := &l.Recurrent
	for _, of := range []string{"q", "k", "v"} {
		p.In = append(p.In, r.linear(n+"attn_"+of, inner, c.Hidden))
		p.Conv = append(p.Conv, r.vector(n+"ssm_conv1d_"+of+".weight", inner*d.Kernel))
	}
	p.ADown, p.A = r.linear(n+"ssm_f_a", d.KeyDim, c.Hidden), r.linear(n+"ssm_f_b", inner, d.KeyDim)
	p.ZDown, p.Z = r.linear(n+"ssm_g_a", d.ValueDim, c.Hidden), r.linear(n+"ssm_g_b", inner, d.ValueDim)
	p.B = r.linear(n+"ssm_beta", d.ValueHeads, c.Hidden)
	p.Decay, p.DTBias, p.Norm = r.vector(n+"ssm_a", d.ValueHeads), r.vector(n+"ssm_dt.bias", inner), r.vector(n+"ssm_norm.weight", d.ValueDim)
	return l
}
