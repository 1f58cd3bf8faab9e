package model

import "fmt"

// outerConfig begins a Config with the figures that belong to no layer.
func outerConfig(r *reader) *Config {
	r.unread = r.intOr("nextn_predict_layers", 0)
	return &Config{
		Arch: r.arch, Name: r.stringOr("general.name", ""),
		Layers: r.int("block_count") - r.unread, Residual: Residual{Hidden: r.int("embedding_length")},
		Context: r.int("context_length"), Act: SiLU, Gated: true,
	}
}

// layers makes room for the layers, none of which has a mixer yet, once the figures that size them are known to be good.
func (r *reader) layers(c *Config) {
	if c.Layers < 1 || c.Layers > maxLayers {
		r.fail("metadata %q (layers) is %d, want 1 to %d: %w", r.key("block_count"), c.Layers, maxLayers, ErrConfig)
	}
	if r.faults != nil {
		c.Layers = 0 // nothing is sized by a figure that was refused
		return
	}
	if embed := r.tensorNamed("token_embd.weight"); embed != nil && len(embed.Shape) == 2 {
		c.Vocab = embed.Shape[0]
	}
	r.checkVocab(c.Vocab)
	c.Layer = make([]LayerConfig, c.Layers)
	for i := range c.Layer {
		c.Layer[i].Owner, c.Layer[i].Rope = i, -1
	}
}

// decoderConfig reads the figures of a decoder whose layers attend alike; the architecture's file adds what is its own.
func decoderConfig(r *reader) *Config {
	c := outerConfig(r)
	heads := r.perLayer("attention.head_count", c.Layers)
	all := Attention{Heads: heads, KVHeads: r.perLayerOr("attention.head_count_kv", c.Layers, heads), Scale: r.floatOr("attention.scale", 0)}
	if causal := "attention.causal"; !r.boolOr(causal, true) {
		r.fail("metadata %q is false (an encoder, whose tokens see those after them): %w", r.key(causal), ErrFeature)
	}
	if heads < 1 || c.Hidden < 1 {
		r.fail("metadata %q is %d and %q is %d, want 1 or more: %w", r.key("attention.head_count"), heads, r.key("embedding_length"), c.Hidden, ErrConfig)
	} else {
		all.KeyDim = r.intOr("attention.key_length", c.Hidden/heads)
		all.ValDim = r.intOr("attention.value_length", c.Hidden/heads)
	}
	r.layers(c)
	for i := range c.Layer {
		c.Layer[i].Attention, c.Layer[i].Owner = all, i
	}
	return c
}

// checkVocab refuses a file whose token list, vocab_size and embedding contradict each other.
func (r *reader) checkVocab(rows int) {
	if k := r.key("vocab_size"); r.meta.Has(k) {
		if v := r.int("vocab_size"); v != rows {
			r.fail("metadata %q is %d, token_embd.weight has %d rows: %w", k, v, rows, ErrConfig)
		}
	}
	const tokens = "tokenizer.ggml.tokens"
	if r.file.Format() == "gguf" && r.meta.Has(tokens) {
		list, err := r.meta.Strings(tokens)
		if err != nil {
			r.fail("%w: %w", err, ErrConfig)
		} else if len(list) != rows {
			r.fail("metadata %q has %d tokens (vocab), token_embd.weight has %d rows: %w", tokens, len(list), rows, ErrConfig)
		}
	}
}

func (r *keyReader) rmsEps(c *Config) {
	c.Norm, c.NormEps = RMSNorm, r.float("attention.layer_norm_rms_epsilon")
}
func (r *keyReader) layerEps(c *Config) {
	c.Norm, c.NormEps = LayerNorm, r.float("attention.layer_norm_epsilon")
}

// attentionScale sets the factor on q·k of all layers: the file's, else def; 0 = 1/√dk.
func (r *reader) attentionScale(c *Config, def float32) {
	scale := r.floatOr("attention.scale", def)
	c.EachAttention(func(a *Attention) { a.Scale = scale })
}

// decoderParams names the tensors of the usual decoder: separate q, k, v; optional biases and q/k norms; dense or MoE FFN.
func decoderParams(r *reader, c *Config) *Params {
	p := outerParams(r, c)
	for i := range p.Layers {
		p.Layers[i] = decoderLayer(r, c, i)
		if r.faults != nil {
			break
		}
	}
	return p
}

// outerParams are the embedding, the last norm and the head; a missing output.weight means the embedding's.
func outerParams(r *reader, c *Config) *Params {
	p := &Params{Layers: make([]LayerParams, c.Layers)}
	p.Embed = r.linear("token_embd", c.Vocab, c.Hidden)
	if !c.NoFinal {
		p.FinalNorm = r.norm("output_norm", c.Hidden)
	}
	if p.Output = r.optionalLinear("output", c.Vocab, c.Hidden); p.Output == nil && p.Embed != nil {
		if r.file.Format() != "gguf" && !r.tied() {
			r.fail("tensor \"output.weight\" (lm_head) is missing and the configuration does not tie it to the embedding: %w", ErrConfig)
		}
		p.Output = p.Embed
	}
	return p
}

// tied reports whether the configuration says that the head is the embedding.
func (r *reader) tied() bool {
	const key = "terrace.tie_word_embeddings"
	if !r.meta.Has(key) {
		return true
	}
	v, err := r.meta.Bool(key)
	return err == nil && v
}

// attentionLayer are the projections of q, k, v and of the output, without any norm.
func attentionLayer(r *reader, c *Config, i int, n string) LayerParams {
	a := &c.Layer[i]
	l := LayerParams{O: r.linear(n+"attn_output", c.Hidden, a.Heads*a.ValDim)}
	l.Q, l.K, l.V = projections(r, c, i, n, false)
	return l
}

// headNorms adds the norms on each head of q and k.
func (r *tensorReader) headNorms(c *Config, l *LayerParams, i int, n string) {
	l.QNorm, l.KNorm = r.norm(n+"attn_q_norm", c.Layer[i].KeyDim), r.norm(n+"attn_k_norm", c.Layer[i].KeyDim)
}

// wideNorms adds norms of all heads of q and of k at once.
func (r *tensorReader) wideNorms(c *Config, l *LayerParams, i int, n string) {
	a := &c.Layer[i]
	l.QNorm, l.KNorm = r.norm(n+"attn_q_norm", a.Heads*a.KeyDim), r.norm(n+"attn_k_norm", a.KVHeads*a.KeyDim)
}

// sinks adds the score of each head that joins its softmax.
func (r *tensorReader) sinks(c *Config, l *LayerParams, i int, n string) {
	l.Sinks = r.vector(n+"attn_sinks.weight", c.Layer[i].Heads)
}

func decoderLayer(r *reader, c *Config, i int) LayerParams {
	n := fmt.Sprintf("blk.%d.", i)
	l := attentionLayer(r, c, i, n)
	l.AttnNorm, l.FFNNorm = r.norm(n+"attn_norm", c.Hidden), r.norm(n+"ffn_norm", c.Hidden)
	r.feedForward(c, &l, n, c.Layer[i].MoE)
	return l
}
