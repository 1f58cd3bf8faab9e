package model

// Qwen3-Next, and Qwen 3.5 (text) with its mixture: three gated DeltaNet layers to one of attention, whose output is gated, with a norm on each head of q and k and a
// rotation of a part of it. The published multimodal positions (mrope) are the plain ones on text. GGUF files of Qwen 3.5 have the value heads
// in an order in which head j uses key head j mod the key heads; norms have their 1 added. Layers with experts have a network beside them whose
// output is weighed by a sigmoid of its own.
func init() {
	registerArchitecture(architecture{config: qwen35Config, params: qwen35Params}, "qwen35", "qwen35moe", "qwen3next")
}

func qwen35Config(r *reader) *Config {
	c := decoderConfig(r)
	r.rmsEps(c)
	r.activation(c, SiLU)
	r.rope(c)
	order := "modulo"
	if r.arch == "qwen3next" {
		order = "grouped"
	}
	delta := r.deltaFigures()
	delta.Modulo = r.stringOr("terrace.delta.order", order) == "modulo"
	for i, recurs := range r.recurrentLayers(c.Layers) {
		if l := &c.Layer[i]; recurs {
			l.Attention, l.Delta = Attention{Owner: i, Rope: -1}, delta
		} else {
			l.Gate = SigmoidGate
		}
	}
	r.router(c, SoftmaxRouter, true)
	return c
}

func qwen35Params(r *reader, c *Config) *Params {
	return eachLayer(r, outerParams(r, c), func(i int, n string) LayerParams {
		l := gatedDeltaLayer(r, c, i, n)
		r.feedForward(c, &l, n, c.Layer[i].MoE)
		if c.Layer[i].MoE && c.Shared > 0 {
			l.SharedRouter = r.row(n+"ffn_gate_inp_shexp", c.Hidden)
		}
		return l
	})
}

// gatedDeltaLayer is a layer of the family without its feed-forward weights; post_attention_norm is the norm before these.
func gatedDeltaLayer(r *reader, c *Config, i int, n string) LayerParams {
	l := deltaOrAttention(r, c, i, n)
	l.AttnNorm, l.FFNNorm = r.norm(n+"attn_norm", c.Hidden), r.norm(n+"post_attention_norm", c.Hidden)
	return l
}

// deltaOrAttention is the mixer of a layer.
func deltaOrAttention(r *reader, c *Config, i int, n string) (l LayerParams) {
	a := &c.Layer[i].Attention
	if d := c.Layer[i].Delta; d != nil {
		l.Recurrent = deltaParams(r, c, d, n)
		l.O = r.linear(n+"ssm_out", c.Hidden, d.ValueHeads*d.ValueDim)
		return l
	}
	l.Q = r.taken(n+"attn_q", a.Heads, 2*a.KeyDim, 0, a.KeyDim, c.Hidden)
	l.OutGate = r.taken(n+"attn_q", a.Heads, 2*a.KeyDim, a.KeyDim, a.KeyDim, c.Hidden)
	l.K, l.V = r.linear(n+"attn_k", a.KVHeads*a.KeyDim, c.Hidden), r.linear(n+"attn_v", a.KVHeads*a.ValDim, c.Hidden)
	l.O = r.linear(n+"attn_output", c.Hidden, a.Heads*a.ValDim)
	l.QNorm, l.KNorm = r.norm(n+"attn_q_norm", a.KeyDim), r.norm(n+"attn_k_norm", a.KeyDim)
	return l
}
