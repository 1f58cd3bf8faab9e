package model

import (
	"fmt"
	"math"

	"terrace/internal/cacheshape"
)

// LayerConfig is what one layer does with its rows: a mixer, which lets a row see others, and a feed-forward network.
type LayerConfig struct {
	Attention
	MoE bool // the feed-forward network is a mixture of experts
}

// Attention is the mixer that reads keys and values of other tokens. Its figures are the layer's own: layers may differ.
type Attention struct {
	Heads   int // H, query heads
	KVHeads int // G, divides H
	KeyDim  int // dk
	ValDim  int // dv
	Owner   int // the layer whose keys and values are read: itself, or an earlier one of the same KVHeads, KeyDim and ValDim
	Window  int // sliding window in tokens: key visible iff posQ − posK < Window; 0 = all
	Rope    int // index into Config.Ropes, -1 = no rotation

	Scale   float32 // multiplies q·k; 0 = 1/√dk
	Softcap float32 // cap·tanh(s/cap) on scores; 0 = none
}

// Group is the number of query heads that share a key/value head.
func (a *Attention) Group() int { return a.Heads / a.KVHeads }

// ScoreScale is the factor on q·k.
func (a *Attention) ScoreScale() float32 {
	if a.Scale != 0 {
		return a.Scale
	}
	return float32(1 / math.Sqrt(float64(a.KeyDim)))
}

// Cache is what each layer keeps of a text.
func (c *Config) Cache() cacheshape.Model {
	m := make(cacheshape.Model, len(c.Layer))
	for i := range c.Layer {
		m[i] = c.Layer[i].cache(i)
	}
	return m
}

func (l *LayerConfig) cache(layer int) cacheshape.Layer {
	shape := cacheshape.Layer{Heads: l.Heads, Owner: l.Owner}
	if l.Heads > 0 && l.Owner == layer {
		shape.KV = cacheshape.KV{Heads: l.KVHeads, KeyDim: l.KeyDim, ValueDim: l.ValDim, Window: l.Window}
	}
	return shape
}

// EachAttention changes the attention of every layer, for architectures whose layers have a figure in common.
func (c *Config) EachAttention(set func(a *Attention)) {
	for i := range c.Layer {
		set(&c.Layer[i].Attention)
	}
}

// validateLayer checks the figures of one layer.
func (c *Config) validateLayer(i int) error {
	l := &c.Layer[i]
	for _, f := range []struct {
		name      string
		v, lo, hi int
	}{{"attention.head_count", l.Heads, 1, maxHeads}, {"attention.head_count_kv", l.KVHeads, 1, maxHeads},
		{"attention.key_length", l.KeyDim, 1, maxHeadDim}, {"attention.value_length", l.ValDim, 1, maxHeadDim}} {
		if f.v < f.lo || f.v > f.hi {
			return fmt.Errorf("model: %s is %d in layer %d, want %d to %d: %w", f.name, f.v, i, f.lo, f.hi, ErrConfig)
		}
	}
	if l.Heads%l.KVHeads != 0 {
		return fmt.Errorf("model: attention.head_count %d is not a multiple of head_count_kv %d in layer %d: %w", l.Heads, l.KVHeads, i, ErrConfig)
	}
	if l.Rope >= 0 && l.Rope < len(c.Ropes) {
		if err := c.Ropes[l.Rope].validate(l.KeyDim); err != nil {
			return err
		}
	}
	for _, f := range []struct {
		name string
		v    float32
	}{{"attention.scale", l.Scale}, {"attn_logit_softcapping", l.Softcap}} {
		if math.IsNaN(float64(f.v)) || math.IsInf(float64(f.v), 0) {
			return fmt.Errorf("model: %s is %v in layer %d: %w", f.name, f.v, i, ErrConfig)
		}
	}
	return nil
}
