package model

import (
	"fmt"
	"math"
)

// HyperParams are the weights of a hyper-connection (Qwen4-Exp), by which a block reads and writes a residual stream of several copies. The block
// reads the mean over the copies of m⊙z, where z is each copy normed and m = σ(Up·silu(Down·z/n)); what it gives goes to copy i times 2σ((Inject·z)_i/n).
type HyperParams struct {
	Norm     NormParams // [Copies·D]
	Down, Up *Linear    // [rank, Copies·D] and [Copies·D, rank]
	Inject   *Linear    // [Copies, Copies·D]; nil = nothing is written
}

// NGrams is an embedding of the last tokens that is added to a layer's input (Qwen4-Exp): for n from 2 to Size, Each rows of a table, chosen by
// XOR of token·multiplier over the n tokens, modulo Sizes. A text begins again behind an End. Of the rows together, e: each copy of the residual
// stream gets u = σ(g)·(Value·e), g = ±√|k·q/√D| of its normed key k of e and its normed self q, and silu of a convolution over u's norms, whose
// taps are Size tokens apart.
type NGrams struct {
	Size, Each int
	Dim        int // of a row of the table
	Kernel     int
	End        int   // token that ends a text
	Rows       int   // of the table
	Multiplier []int // [Size]
	Sizes      []int // [(Size−1)·Each] rows of each
	Offsets    []int // where they begin
	Channels   int   // Copies·D
}

// NGramParams are the weights of an NGrams.
type NGramParams struct {
	Table                      []*Linear // parts, of as many rows each
	Key, Value                 *Linear   // [Copies·D, Heads·Dim] and [D, Heads·Dim]
	KeyNorm, QueryNorm, UpNorm NormParams
	Conv                       *Vector // [Copies·D, Kernel]
}

// Heads is how many rows of the table a token has.
func (g *NGrams) Heads() int { return (g.Size - 1) * g.Each }

// floats is how many numbers are kept of a text: inputs of the convolution, and the last tokens.
func (g *NGrams) floats() int {
	if g == nil {
		return 0
	}
	return (g.Kernel-1)*g.Size*g.Channels + g.Size - 1
}

// hasNGrams reports whether a layer embeds n-grams, so that rows carry their tokens.
func (c *Config) hasNGrams() bool {
	for i := range c.Layer {
		if c.Layer[i].NGrams != nil {
			return true
		}
	}
	return false
}

// Limits that no real model reaches.
const (
	maxCopies = 64
	maxNGram  = 16
)

// validateNGrams checks an embedding of n-grams of a layer.
func (c *Config) validateNGrams(i int) error {
	l := &c.Layer[i]
	g := l.NGrams
	if g == nil {
		return nil
	}
	if err := inRange(i, []figure{{"ple.ngram_size", g.Size, 2, maxNGram}, {"ple.heads_per_ngram", g.Each, 1, maxHeads}, {"ple.embedding_length / heads", g.Dim, 1, maxHidden},
		{"ple.conv_kernel", g.Kernel, 1, maxKernel}, {"ple.eos_token_id", g.End, 0, c.Vocab - 1}}); err != nil {
		return err
	}
	switch n := g.Heads(); {
	case c.Copies < 2 || !l.Recurs() || g.Channels != c.Copies*c.Hidden:
		return fmt.Errorf("model: layer %d embeds n-grams: want a recurrent layer on several copies of the residual: %w", i, ErrConfig)
	case len(g.Multiplier) != g.Size || len(g.Sizes) != n || len(g.Offsets) != n:
		return fmt.Errorf("model: n-grams of layer %d have %d multipliers, %d sizes and %d offsets, want %d and %d: %w", i, len(g.Multiplier), len(g.Sizes), len(g.Offsets), g.Size, n, ErrConfig)
	}
	for h, size := range g.Sizes {
		if size < 1 || g.Offsets[h] < 0 || size > math.MaxInt32 || g.Offsets[h] > g.Rows-size {
			return fmt.Errorf("model: n-grams %d of layer %d are rows %d to %d of a table of %d: %w", h, i, g.Offsets[h], g.Offsets[h]+size-1, g.Rows, ErrConfig)
		}
	}
	return nil
}
