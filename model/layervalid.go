package model

import (
	"errors"
	"fmt"
	"math"
)

// figure is a number of a layer and the range that later code relies on.
type figure struct {
	name      string
	v, lo, hi int
}

// validateLayer checks the figures of one layer.
func (c *Config) validateLayer(i int) error {
	l := &c.Layer[i]
	if l.Heads != 0 {
		if err := c.validateAttention(i); err != nil {
			return err
		}
	}
	figures := l.recurrentFigures()
	if l.Heads == 0 && len(figures) == 0 && l.NoFFN {
		return fmt.Errorf("model: layer %d has no mixer and no feed-forward network: %w", i, ErrConfig)
	}
	if c.Act == XIELU && !l.Curve.finite() {
		return fmt.Errorf("model: xielu figures %v of layer %d, want finite numbers: %w", l.Curve, i, ErrConfig)
	}
	if err := inRange(i, figures); err != nil {
		return err
	}
	return errors.Join(c.validateNGrams(i), l.validateRecurrent(i))
}

func inRange(layer int, figures []figure) error {
	var errs []error
	for _, f := range figures {
		if f.v < f.lo || f.v > f.hi {
			errs = append(errs, fmt.Errorf("model: %s is %d in layer %d, want %d to %d: %w", f.name, f.v, layer, f.lo, f.hi, ErrConfig))
		}
	}
	return errors.Join(errs...)
}

func (c *Config) validateAttention(i int) error {
	l := &c.Layer[i]
	err := inRange(i, []figure{{"attention.head_count", l.Heads, 1, maxHeads}, {"attention.head_count_kv", l.KVHeads, 1, maxHeads},
		{"attention.key_length", l.KeyDim, 1, maxHeadDim}, {"attention.value_length", l.ValDim, 1, maxHeadDim}, {"attention.sliding_window", l.Window, 0, math.MaxInt32},
		{"attention.chunk_size", l.Chunk, 0, math.MaxInt32}})
	if err != nil {
		return err
	}
	if l.Heads%l.KVHeads != 0 {
		return fmt.Errorf("model: attention.head_count %d is not a multiple of head_count_kv %d in layer %d: %w", l.Heads, l.KVHeads, i, ErrConfig)
	}
	if err := c.validateOwner(i); err != nil {
		return err
	}
	width := l.KeyDim
	if x := l.Latent; x != nil {
		if err := inRange(i, []figure{{"attention.kv_lora_rank", x.Rank, 1, maxHeadDim}, {"attention.key_length_mla", x.Nope, 1, maxHeadDim}, {"rope.dimension_count", x.Rope, 0, maxHeadDim}, {"attention.value_length_mla", x.Value, 1, maxHeadDim}}); err != nil {
			return err
		}
		if l.KVHeads != 1 || l.KeyDim != x.Rank+x.Rope || l.ValDim != l.KeyDim {
			return fmt.Errorf("model: layer %d keeps %d heads of %d and %d numbers, latent keys of %d and %d are one head of their sum: %w", i, l.KVHeads, l.KeyDim, l.ValDim, x.Rank, x.Rope, ErrConfig)
		}
		width = x.Rope
	}
	if l.Rope >= len(c.Ropes) && len(c.Ropes) > 0 {
		return fmt.Errorf("model: layer %d wants rotary table %d of %d: %w", i, l.Rope, len(c.Ropes), ErrConfig)
	}
	if l.Rope >= 0 && l.Rope < len(c.Ropes) {
		if err := c.Ropes[l.Rope].validate(width); err != nil {
			return err
		}
	}
	for _, f := range []struct {
		name string
		v    float32
	}{{"attention.scale", l.Scale}, {"attn_logit_softcapping", l.Softcap}, {"attention.temperature_scale", l.Temperature.Scale}} {
		if math.IsNaN(float64(f.v)) || math.IsInf(float64(f.v), 0) {
			return fmt.Errorf("model: %s is %v in layer %d: %w", f.name, f.v, i, ErrConfig)
		}
	}
	if err := c.validateIndexer(i); err != nil {
		return err
	}
	if t := &l.Temperature; t.Scale != 0 && (t.Every < 1 || t.Every > maxContext) {
		return fmt.Errorf("model: attention.temperature_length is %d in layer %d, want 1 to %d: %w", t.Every, i, maxContext, ErrConfig)
	}
	return nil
}

// validateOwner checks whose keys and values a layer reads.
func (c *Config) validateOwner(i int) error {
	a := &c.Layer[i].Attention
	if a.Owner == i {
		return nil
	}
	if a.Owner < 0 || a.Owner > i {
		return fmt.Errorf("model: layer %d shares the keys and values of layer %d, want an earlier one: %w", i, a.Owner, ErrConfig)
	}
	o := &c.Layer[a.Owner].Attention
	if o.Heads == 0 || o.Owner != a.Owner || o.KVHeads != a.KVHeads || o.KeyDim != a.KeyDim || o.ValDim != a.ValDim || (o.Latent == nil) != (a.Latent == nil) {
		return fmt.Errorf("model: layer %d shares the keys and values of layer %d, which keeps none of %d heads of %d and %d numbers: %w", i, a.Owner, a.KVHeads, a.KeyDim, a.ValDim, ErrConfig)
	}
	return nil
}
