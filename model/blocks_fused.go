package model

import "fmt"

// projections are the weights of q, k and v: tensors of their own, or the parts of one that holds their rows one after the other, whose biases
// may still lie apart. GGUF files of most architectures come in both forms; fused is which one is missed where there is neither.
func projections(r *reader, c *Config, i int, n string, fused bool) (q, k, v *Linear) {
	a := &c.Layer[i]
	dq, dk, dv := a.Heads*a.KeyDim, a.KVHeads*a.KeyDim, a.KVHeads*a.ValDim
	one := n + "attn_qkv"
	if !r.file.Has(one+".weight") && (!fused || r.file.Has(n+"attn_q.weight")) {
		return r.linear(n+"attn_q", dq, c.Hidden), r.linear(n+"attn_k", dk, c.Hidden), r.linear(n+"attn_v", dv, c.Hidden)
	}
	total := dq + dk + dv
	q, k, v = r.part(one, total, 0, dq, c.Hidden), r.part(one, total, dq, dk, c.Hidden), r.part(one, total, dq+dk, dv, c.Hidden)
	for name, l := range map[string]*Linear{"attn_q.bias": q, "attn_k.bias": k, "attn_v.bias": v} {
		if l != nil && l.Bias == nil && r.file.Has(n+name) {
			l.Bias = r.vector(n+name, l.Rows)
		}
	}
	return q, k, v
}

// fusedLayer is a layer with fused q|k|v; its feed-forward weights are the caller's.
func fusedLayer(r *reader, c *Config, i int, n string) LayerParams {
	l := LayerParams{AttnNorm: r.norm(n+"attn_norm", c.Hidden), FFNNorm: r.norm(n+"ffn_norm", c.Hidden),
		O: r.linear(n+"attn_output", c.Hidden, c.Layer[i].Heads*c.Layer[i].ValDim)}
	l.Q, l.K, l.V = projections(r, c, i, n, true)
	return l
}

// eachLayer fills the layers of p one by one and stops at the first that has a fault.
func eachLayer(r *reader, p *Params, fill func(i int, n string) LayerParams) *Params {
	for i := range p.Layers {
		p.Layers[i] = fill(i, fmt.Sprintf("blk.%d.", i))
		if r.faults != nil {
			break
		}
	}
	return p
}

// qkNorms adds the per-head norms of q and k to every layer.
func qkNorms(r *reader, c *Config, p *Params) *Params {
	return eachLayer(r, p, func(i int, n string) LayerParams {
		l := p.Layers[i]
		l.QNorm, l.KNorm = r.norm(n+"attn_q_norm", c.Layer[i].KeyDim), r.norm(n+"attn_k_norm", c.Layer[i].KeyDim)
		return l
	})
}

// activations are the names of terrace.activation.
var activations = map[string]Activation{"silu": SiLU, "gelu_tanh": GELUTanh, "gelu": GELU, "relu": ReLU}

// activation sets the nonlinearity: the architecture's own, unless the file names another.
func (r *reader) activation(c *Config, own Activation) {
	c.Act = own
	const key = "terrace.activation"
	if !r.meta.Has(key) {
		return
	}
	name := r.stringOr(key, "")
	act, ok := activations[name]
	if !ok {
		r.fail("metadata %q is %q, want silu, gelu_tanh, gelu or relu: %w", key, name, ErrConfig)
	}
	c.Act = act
}

// windows sets the sliding window of the layers that have one: all, unless a pattern says which (period: what the
// architecture does without one; 0 = all layers slide). def is the window of a file that does not say; 0 = none.
func (r *reader) windows(c *Config, period, def int) {
	window := r.intOr("attention.sliding_window", def)
	if window < 0 {
		r.fail("metadata %q is %d, want 0 or more: %w", r.key("attention.sliding_window"), window, ErrConfig)
	}
	if window <= 0 || r.faults != nil {
		return
	}
	pattern := r.meta.Has(r.key("attention.sliding_window_pattern")) || period > 0
	sliding := r.slidingPattern(c.Layers, period)
	for i := range c.Layer {
		if !pattern || sliding[i] {
			c.Layer[i].Window = window
		}
	}
}
