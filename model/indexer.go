package model

import (
	"errors"
	"fmt"

	"gorgonia.org/tensor"
)

// Indexer is a trained choice of what a layer's queries attend to (DeepSeek V3.2, Qwen4-Exp): Heads index queries a row, one index key a
// token. The score of a key is Σ_h w_h·relu(q_h·k), and the TopK keys with the highest scores are attended to. Query heads and keys rotate
// in their first Rot numbers, half of these apart, by the layer's table.
type Indexer struct {
	Heads, Dim int
	TopK       int // of tokens, or of blocks
	// Block is how many tokens share a key: its mean, normed, rotated as its first token; the tokens behind the last whole block are
	// attended to too. 1 = each token has a key of its own.
	Block  int
	Rot    int
	Latent bool // queries are made of the latent that the layer's own queries are made of, not of the normed row
}

// IndexParams are the weights of a trained indexer.
type IndexParams struct {
	Q, K    *Linear    // [Heads·Dim, …] and [Dim, D]
	Weights *Linear    // [Heads, D]: w; nil = all are 1
	QNorm   NormParams // of each head; absent = none
	KNorm   NormParams // of the key, a LayerNorm where it has a bias
}

// Indexing is the optional capability of layers that have a trained indexer.
type Indexing interface {
	// IndexQueries are those of the rows that Project saw last [n, Heads·Dim+Heads]: each row's queries and their weights. They hold until the
	// next Project.
	IndexQueries() *tensor.Dense
	// IndexKey makes the key of a block of a layer whose first token is at a position from the mean x [Dim] of its tokens' keys, in place.
	IndexKey(layer, position int, x []float32) error
}

// Width is the numbers of a row of IndexQueries.
func (x *Indexer) Width() int { return x.Heads*x.Dim + x.Heads }

// indexShare is how many numbers of the index key each KV head keeps behind its own key: all of them together hold it, and
// a key's length stays what kernels take.
func (a *Attention) indexShare() int {
	if a.Index == nil {
		return 0
	}
	return (a.KeyDim+(a.Index.Dim+a.KVHeads-1)/a.KVHeads+3)&^3 - a.KeyDim
}

// StoredKey is the numbers of a key as it is cached, its part of an indexer's key among them: queries have as many, zeros behind their own.
func (a *Attention) StoredKey() int { return a.KeyDim + a.indexShare() }

// StoredValue is the numbers of a value as attention reads it: a latent key as it is cached.
func (a *Attention) StoredValue() int {
	if a.Latent != nil {
		return a.StoredKey()
	}
	return a.ValDim
}

// TrainedIndex is the indexer that layers of the model have; nil = none has.
func (c *Config) TrainedIndex() *Indexer {
	for i := range c.Layer {
		if x := c.Layer[i].Index; x != nil {
			return x
		}
	}
	return nil
}

// maxTopK bounds the tokens that an indexer chooses.
const maxTopK = 1 << 24

// validateIndexer checks the indexer of a layer; those of all layers are alike.
func (c *Config) validateIndexer(i int) error {
	a := &c.Layer[i].Attention
	x := a.Index
	if x == nil {
		return nil
	}
	err := inRange(i, []figure{{"attention.indexer.head_count", x.Heads, 1, maxHeads}, {"attention.indexer.key_length", x.Dim, 1, maxHeadDim},
		{"attention.indexer.top_k", x.TopK, 1, maxTopK}, {"attention.compress_ratios", x.Block, 1, maxContext}, {"rope.dimension_count", x.Rot, 0, x.Dim}})
	switch first := c.TrainedIndex(); {
	case err != nil:
		return err
	case *first != *x:
		return fmt.Errorf("model: the indexer of layer %d is another than that of the layers before, want one for all: %w", i, ErrConfig)
	case a.Owner != i || a.Window > 0 || a.Chunk > 0:
		return fmt.Errorf("model: layer %d has an indexer and reads a window or the keys of another layer: %w", i, ErrConfig)
	case x.Rot%2 != 0 || x.Rot > 0 && (a.Rope < 0 || a.Rope >= len(c.Ropes) || c.Ropes[a.Rope].Dim < x.Rot):
		return fmt.Errorf("model: %d numbers of the indexer of layer %d rotate, want an even number that its table turns: %w", x.Rot, i, ErrConfig)
	case a.StoredKey() > maxHeadDim:
		return fmt.Errorf("model: keys of layer %d have %d numbers with those of the indexer, want at most %d: %w", i, a.StoredKey(), maxHeadDim, ErrConfig)
	}
	return nil
}

// indexer reads the figures of a trained indexer; nil where the file has none.
func (r *reader) indexer(c *Config, block int) *Indexer {
	if !r.meta.Has(r.key("attention.indexer.head_count")) {
		return nil
	}
	x := &Indexer{Heads: r.int("attention.indexer.head_count"), Dim: r.int("attention.indexer.key_length"), TopK: r.int("attention.indexer.top_k"), Block: block}
	if err := errors.Join(inRange(0, []figure{{"attention.indexer.head_count", x.Heads, 1, maxHeads}, {"attention.indexer.key_length", x.Dim, 1, maxHeadDim}})); err != nil {
		r.fail("%w", err) // weights are sized by them
	}
	return x
}
