package cacheshape

import (
	"errors"
	"fmt"
)

// ErrShape is wrapped by what Validate refuses.
var ErrShape = errors.New("invalid shape of a cache")

// KV is what a layer keeps of each token; the zero value is nothing.
type KV struct {
	Heads    int // KV heads
	KeyDim   int // numbers of a key, a head
	ValueDim int // numbers of a value, a head
	Window   int // key visible iff posQ − posK < Window; 0 = all
	// ValueInKey says that a token's value is its key (latent attention): it is stored once, and ValueDim is KeyDim.
	ValueInKey bool
	// Index is how many of a key's numbers, its last ones, are of a trained indexer: each KV head has a part of the layer's one index key a
	// token. Queries have zeros there, and what reads keys for a policy sees zeros; 0 = none.
	Index int
	// Type is that of the layer's numbers where it is not the cache's: an element type (kvpage.Elem) plus 1; 0 = the cache's.
	Type uint8
}

// State is what a layer keeps of a text whatever its length; the zero value is nothing.
type State struct {
	Bytes int // opaque to all but the model
}

// Layer is what one layer keeps and reads.
type Layer struct {
	Heads int // query heads that read KV, a multiple of the KV heads; 0 = the layer reads none
	KV    KV
	Owner int // the layer whose KV is read: itself, or an earlier one where KV is zero; without query heads it means nothing
	State State
}

// Model is the layers of a model in their order.
type Model []Layer

// Equal is n layers of the same query heads and KV, each its own.
func Equal(n, heads int, kv KV) Model {
	m := make(Model, n)
	for i := range m {
		m[i] = Layer{Heads: heads, KV: kv, Owner: i}
	}
	return m
}

// Limits that no real model reaches.
const (
	maxLayers = 1 << 16
	maxHeads  = 1 << 16
	maxDim    = 1 << 14
	maxState  = 1 << 36
)

// Validate names the first layer that contradicts itself or the others, wrapping ErrShape.
func (m Model) Validate() error {
	if len(m) < 1 || len(m) > maxLayers {
		return fmt.Errorf("cacheshape: %d layers, want 1 to %d: %w", len(m), maxLayers, ErrShape)
	}
	for i := range m {
		if err := m.validate(i); err != nil {
			return err
		}
	}
	return nil
}

func (m Model) validate(i int) error {
	l, kv := &m[i], m[i].KV
	switch {
	case l.State.Bytes < 0 || l.State.Bytes > maxState:
		return fmt.Errorf("cacheshape: layer %d: %d bytes of state, want 0 to %d: %w", i, l.State.Bytes, maxState, ErrShape)
	case l.Heads == 0 && kv == (KV{}):
		return nil
	case kv == (KV{}):
		if l.Owner < 0 || l.Owner >= i || m[l.Owner].KV == (KV{}) {
			return fmt.Errorf("cacheshape: layer %d reads the keys and values of layer %d, want an earlier one that keeps some: %w", i, l.Owner, ErrShape)
		}
		kv = m[l.Owner].KV
	case l.Owner != i:
		return fmt.Errorf("cacheshape: layer %d keeps keys and values and reads those of layer %d: %w", i, l.Owner, ErrShape)
	case kv.Heads < 1 || kv.Heads > maxHeads:
		return fmt.Errorf("cacheshape: layer %d: %d KV heads, want 1 to %d: %w", i, kv.Heads, maxHeads, ErrShape)
	case kv.KeyDim < 1 || kv.KeyDim > maxDim || kv.ValueDim < 1 || kv.ValueDim > maxDim:
		return fmt.Errorf("cacheshape: layer %d: heads of %d and %d numbers, want 1 to %d: %w", i, kv.KeyDim, kv.ValueDim, maxDim, ErrShape)
	case kv.Window < 0:
		return fmt.Errorf("cacheshape: layer %d: window of %d tokens, want 0 or more: %w", i, kv.Window, ErrShape)
	case kv.Index < 0 || kv.Index >= kv.KeyDim:
		return fmt.Errorf("cacheshape: layer %d: %d numbers of an index in keys of %d, want fewer: %w", i, kv.Index, kv.KeyDim, ErrShape)
	case kv.ValueInKey && kv.ValueDim != kv.KeyDim:
		return fmt.Errorf("cacheshape: layer %d: values of %d numbers in keys of %d, want as many: %w", i, kv.ValueDim, kv.KeyDim, ErrShape)
	}
	if l.Heads < 1 || l.Heads%kv.Heads != 0 {
		return fmt.Errorf("cacheshape: layer %d: %d query heads over %d KV heads, want a multiple: %w", i, l.Heads, kv.Heads, ErrShape)
	}
	return nil
}
