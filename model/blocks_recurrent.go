package model

// recurrentLayers tells which layers have a recurrent mixer: the file's list, else all but every full_attention_interval-th.
func (r *keyReader) recurrentLayers(layers int) []bool {
	if r.meta.Has(r.key("attention.recurrent_layers")) {
		out := make([]bool, layers)
		for i, v := range r.eachInt("attention.recurrent_layers", layers, 0) {
			out[i] = v != 0
		}
		return out
	}
	every := r.intOr("full_attention_interval", 4)
	out := make([]bool, layers)
	for i := range out {
		out[i] = every < 1 || (i+1)%every != 0
	}
	return out
}

// eachInt reads an integer that GGUF has as one value or as one for each layer; def where it is absent.
func (r *keyReader) eachInt(name string, layers, def int) []int {
	out := make([]int, layers)
	k := r.key(name)
	list, err := r.meta.Ints(k)
	if err != nil {
		one := r.intOr(name, def)
		for i := range out {
			out[i] = one
		}
		return out
	}
	if list = r.decoders(list, layers); len(list) != layers {
		r.fail("metadata %q has %d values, want one integer or one for each of %d layers: %w", k, len(list), layers, ErrConfig)
		return out
	}
	copy(out, list)
	return out
}

// deltaFigures reads the figures of gated DeltaNet layers.
func (r *keyReader) deltaFigures() *DeltaNet {
	d := &DeltaNet{KeyHeads: r.int("ssm.group_count"), ValueHeads: r.int("ssm.time_step_rank"), KeyDim: r.int("ssm.state_size"), Kernel: r.int("ssm.conv_kernel")}
	if inner := r.int("ssm.inner_size"); d.ValueHeads > 0 {
		if d.ValueDim = inner / d.ValueHeads; d.ValueDim*d.ValueHeads != inner {
			r.fail("metadata %q is %d, want a multiple of %d heads: %w", r.key("ssm.inner_size"), inner, d.ValueHeads, ErrConfig)
		}
	}
	return d
}

// vector is a small tensor of n numbers, whatever its dimensions.
func (r *tensorReader) vector(name string, n int) *Vector {
	t := r.tensorNamed(name)
	if t == nil {
		return nil
	}
	size := 1
	for _, d := range t.Shape {
		size *= d
	}
	if size != n {
		r.fail("tensor %q has shape %v, want %d numbers: %w", name, t.Shape, n, ErrConfig)
		return nil
	}
	return &Vector{Tensor: t}
}

// optionalVector is vector of a tensor that some models do not have.
func (r *tensorReader) optionalVector(name string, n int) *Vector {
	if !r.file.Has(name) {
		return nil
	}
	return r.vector(name, n)
}

// taken is every other run of rows of a tensor whose heads are rows of two kinds: of each head, run rows from first on.
func (r *tensorReader) taken(prefix string, heads, of, first, run, cols int) *Linear {
	l := r.linear(prefix, heads*of, cols)
	if l == nil {
		return nil
	}
	l.From, l.BFrom, l.Rows, l.Run, l.Step = first, first, heads*run, run, of
	return l
}

// deltaParams are the weights of a gated DeltaNet layer: q, k and v in one, as GGUF has them.
func deltaParams(r *reader, c *Config, d *DeltaNet, n string) RecurrentParams {
	values := d.ValueHeads * d.ValueDim
	var a, b *Linear
	if each := d.ValueHeads / max(d.KeyHeads, 1); r.file.Has(n + "ssm_ba.weight") { // of each key head b, then a
		b, a = r.taken(n+"ssm_ba", d.KeyHeads, 2*each, 0, each, c.Hidden), r.taken(n+"ssm_ba", d.KeyHeads, 2*each, each, each, c.Hidden)
	} else {
		a, b = r.linear(n+"ssm_alpha", d.ValueHeads, c.Hidden), r.linear(n+"ssm_beta", d.ValueHeads, c.Hidden)
	}
	return RecurrentParams{
		In: []*Linear{r.linear(n+"attn_qkv", d.channels(), c.Hidden)},
		Z:  r.linear(n+"attn_gate", values, c.Hidden), A: a, B: b,
		Conv: []*Vector{r.vector(n+"ssm_conv1d.weight", d.channels()*d.Kernel)}, Decay: r.vector(n+"ssm_a", d.ValueHeads),
		DTBias: r.vector(n+"ssm_dt.bias", d.ValueHeads), Norm: r.vector(n+"ssm_norm.weight", d.ValueDim),
	}
}

// ssmFigures reads the figures of Mamba-2 layers.
func (r *keyReader) ssmFigures() *Mamba2 {
	s := &Mamba2{Heads: r.int("ssm.time_step_rank"), Groups: r.intOr("ssm.group_count", 1), State: r.int("ssm.state_size"), Kernel: r.int("ssm.conv_kernel")}
	if inner := r.int("ssm.inner_size"); s.Heads > 0 {
		if s.HeadDim = inner / s.Heads; s.HeadDim*s.Heads != inner {
			r.fail("metadata %q is %d, want a multiple of %d heads: %w", r.key("ssm.inner_size"), inner, s.Heads, ErrConfig)
		}
	}
	s.DTMin, s.DTMax = r.floatKeyOr("terrace.ssm.dt_min", 0), r.floatKeyOr("terrace.ssm.dt_max", 0)
	return s
}

// ssmParams are the weights of a Mamba-2 layer.
func ssmParams(r *reader, c *Config, s *Mamba2, n string) RecurrentParams {
	p := RecurrentParams{
		In:   []*Linear{r.linear(n+"ssm_in", s.inner()+s.channels()+s.Heads, c.Hidden)},
		Conv: []*Vector{r.vector(n+"ssm_conv1d.weight", s.channels()*s.Kernel)}, ConvBias: r.optionalVector(n+"ssm_conv1d.bias", s.channels()),
		Decay: r.vector(n+"ssm_a", s.Heads), DTBias: r.vector(n+"ssm_dt.bias", s.Heads), D: r.vector(n+"ssm_d", s.Heads),
	}
	if s.Norm != NoSSMNorm {
		p.Norm = r.vector(n+"ssm_norm.weight", s.inner())
	}
	return p
}
