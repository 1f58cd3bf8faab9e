package model

import "fmt"

// Qwen4-Exp: Qwen 3.5's mixture on several copies of the residual, an indexer of blocks in the layers that attend, and n-grams embedded in some of
// the others. There is no common form of GGUF files: folders are read.
func init() {
	registerArchitecture(architecture{config: qwen4Config, params: qwen4Params}, "qwen4exp")
}

func qwen4Config(r *reader) *Config {
	c := qwen35Config(r)
	c.NoFinal, c.Copies = true, r.int("hyper_connection.count")
	if c.Copies < 2 {
		r.fail("metadata %q is %d, want 2 or more: %w", r.key("hyper_connection.count"), c.Copies, ErrConfig)
	}
	block := r.int("attention.indexer.block_size")
	x := r.indexer(c, block)
	switch {
	case x == nil:
		r.int("attention.indexer.head_count") // it says what is missing
	case block < 1 || x.TopK < block:
		r.fail("metadata %q is %d and %q %d, want blocks of 1 or more that it holds: %w", r.key("attention.indexer.top_k"), x.TopK, r.key("attention.indexer.block_size"), block, ErrConfig)
	default:
		if x.TopK /= block; len(c.Ropes) > 0 {
			x.Rot = c.Ropes[0].Dim
		}
	}
	sigmoid := r.stringOr(r.key("ssm.gate"), "silu") == "sigmoid"
	for i := range c.Layer {
		if l := &c.Layer[i]; l.Delta != nil {
			l.Delta.Sigmoid = sigmoid
		} else {
			l.Index = x
		}
	}
	r.nGrams(c)
	return c
}

// nGrams reads the embeddings of n-grams, one behind another for the layers that have one.
func (r *reader) nGrams(c *Config) {
	layers := r.eachOf("ple.layers")
	size, each := r.intOr("ple.ngram_size", 0), r.intOr("ple.heads_per_ngram", 0)
	if len(layers) == 0 || r.faults != nil {
		return
	}
	if err := inRange(layers[0], []figure{{"ple.ngram_size", size, 2, maxNGram}, {"ple.heads_per_ngram", each, 1, maxHeads}}); err != nil {
		r.fail("%w", err)
		return
	}
	heads, width := (size-1)*each, r.int("ple.embedding_length")
	if width%heads != 0 {
		r.fail("metadata %q is %d, want a multiple of %d heads: %w", r.key("ple.embedding_length"), width, heads, ErrConfig)
	}
	multipliers, sizes, offsets := r.eachOf("ple.multipliers"), r.eachOf("ple.head_vocab_sizes"), r.eachOf("ple.head_offsets")
	if n := len(layers); len(multipliers) != n*size || len(sizes) != n*heads || len(offsets) != n*heads {
		r.fail("metadata %q: %d multipliers, %d sizes and %d offsets for %d layers, want %d and %d for each: %w", r.key("ple.layers"), len(multipliers), len(sizes), len(offsets), n, size, heads, ErrConfig)
		return
	}
	for i, layer := range layers {
		if layer < 0 || layer >= c.Layers || c.Layer[layer].NGrams != nil {
			r.fail("metadata %q names layer %d, want one of %d, each once: %w", r.key("ple.layers"), layer, c.Layers, ErrConfig)
			return
		}
		g := &NGrams{Size: size, Each: each, Dim: width / heads, Kernel: r.int("ple.conv_kernel"), End: r.int("ple.eos_token_id"), Channels: c.Copies * c.Hidden,
			Multiplier: multipliers[i*size:][:size], Sizes: sizes[i*heads:][:heads], Offsets: offsets[i*heads:][:heads]}
		if first := r.tensorNamed(nGramPart(layer, 0)); first != nil && len(first.Shape) == 2 {
			for g.Rows = 0; r.file.Has(nGramPart(layer, g.Rows/max(first.Shape[0], 1))); {
				g.Rows += max(first.Shape[0], 1)
			}
		}
		c.Layer[layer].NGrams = g
	}
}

// nGramPart is the name of a part of a layer's table.
func nGramPart(layer, part int) string {
	return layerTensor(layer, fmt.Sprintf("ple_ngram_embd.%d.weight", part))
}

// eachOf reads an optional list of integers.
func (r *keyReader) eachOf(name string) []int {
	if !r.meta.Has(r.key(name)) {
		return nil
	}
	list, err := r.meta.Ints(r.key(name))
	if err != nil {
		r.fail("%w: %w", err, ErrConfig)
	}
	return list
}

func qwen4Params(r *reader, c *Config) *Params {
	rank, wide := r.int("hyper_connection.lowrank"), c.Copies*c.Hidden
	hyper := func(n string, writes bool) HyperParams {
		h := HyperParams{Norm: r.norm(n+"_norm", wide), Down: r.linear(n+"_down", rank, wide), Up: r.linear(n+"_up", wide, rank)}
		if writes {
			h.Inject = r.linear(n+"_inject", c.Copies, wide)
		}
		return h
	}
	p := outerParams(r, c)
	p.Final = hyper("hc_mix", false)
	return eachLayer(r, p, func(i int, n string) LayerParams {
		l := deltaOrAttention(r, c, i, n)
		l.AttnHyper, l.FFNHyper = hyper(n+"hc_attn", true), hyper(n+"hc_ffn", true)
		if x := c.Layer[i].Index; x != nil {
			l.Index = IndexParams{Q: r.linear(n+"indexer.q_proj", x.Heads*x.Dim, c.Hidden), K: r.linear(n+"indexer.k_proj", x.Dim, c.Hidden),
				QNorm: r.norm(n+"indexer.q_norm", x.Dim), KNorm: r.norm(n+"indexer.k_norm", x.Dim)}
		}
		if g := c.Layer[i].NGrams; g != nil {
			l.NGrams = nGramParams(r, c, g, i, n)
		}
		r.feedForward(c, &l, n, c.Layer[i].MoE)
		if c.Layer[i].MoE && c.Shared > 0 {
			l.SharedRouter = r.row(n+"ffn_gate_inp_shexp", c.Hidden)
		}
		return l
	})
}

// nGramParams are the weights of a layer's embedding of n-grams; its table lies in parts of as many rows each.
func nGramParams(r *reader, c *Config, g *NGrams, layer int, n string) NGramParams {
	width := g.Heads() * g.Dim
	l := NGramParams{Key: r.linear(n+"ple_key", g.Channels, width), Value: r.linear(n+"ple_value", c.Hidden, width), KeyNorm: r.norm(n+"ple_key_norm", g.Channels),
		QueryNorm: r.norm(n+"ple_query_norm", g.Channels), UpNorm: r.norm(n+"ple_conv_norm", g.Channels), Conv: r.vector(n+"ple_conv1d.weight", g.Channels*g.Kernel)}
	first := r.tensorNamed(nGramPart(layer, 0))
	if first == nil || len(first.Shape) != 2 {
		r.fail("tensor %q has no rows: %w", nGramPart(layer, 0), ErrConfig)
		return l
	}
	for part := 0; r.file.Has(nGramPart(layer, part)); part++ {
		if t := r.tensor(nGramPart(layer, part), first.Shape[0], g.Dim); t != nil {
			l.Table = append(l.Table, &Linear{Tensor: t, Rows: first.Shape[0], Cols: g.Dim})
		}
	}
	return l
}
