package offload

import (
	"fmt"

	"terrace/internal/cacheshape"
	"terrace/internal/kvpage"
)

// Key names one record: the pages of all KV heads of one group of tokens in one layer of one sequence.
type Key struct {
	Seq          uint64
	Layer, Group int32
}

// String is for messages.
func (k Key) String() string {
	return fmt.Sprintf("sequence %d layer %d group %d", k.Seq, k.Layer, k.Group)
}

// Part is a range of KV heads of a record: N heads from First. The zero Part is the whole record.
type Part struct{ First, N int32 }

// Record is a key and its bytes: a page of each of the layer's KV heads, one after another (Shape.RecordBytes), or, on reads only, the pages of Part.
// I/O is without a copy where Data comes from AlignedBytes and is a multiple of 512 bytes.
type Record struct {
	Key  Key
	Part Part
	Data []byte
}

// Shape tells a store at opening what its records are.
type Shape struct {
	Layers      cacheshape.Model // a layer that keeps no keys and values has no records
	Page        kvpage.Layout    // but for the widths, which are each layer's
	GroupTokens int              // tokens of a record, a multiple of Page.Tokens
	Fingerprint [32]byte         // of the model and all that shapes its K and V
}

// Validate reports the first number out of range, wrapping ErrShape.
func (s Shape) Validate() error {
	if err := s.Layers.Validate(); err != nil {
		return fmt.Errorf("offload: shape: %w: %w", err, ErrShape)
	}
	for layer := range s.Layers {
		if !s.Layers.Keeps(layer) {
			continue
		}
		if err := s.PageOf(layer).Validate(); err != nil {
			return fmt.Errorf("offload: shape: layer %d: %w: %w", layer, err, ErrShape)
		}
	}
	switch {
	case s.GroupTokens < s.Page.Tokens || s.GroupTokens%s.Page.Tokens != 0 || s.GroupTokens > 1<<16:
		return fmt.Errorf("offload: shape: %d tokens a group, want a multiple of the page's %d: %w", s.GroupTokens, s.Page.Tokens, ErrShape)
	}
	return nil
}

// PageOf is the layout of a layer's pages.
func (s Shape) PageOf(layer int) kvpage.Layout { return s.Page.Of(s.Layers[layer].KV) }

// KVHeads is how many pages a record of a layer has for each of its tokens.
func (s Shape) KVHeads(layer int) int { return s.Layers[layer].KV.Heads }

// HeadBytes is the size of one KV head's share of a record of a layer.
func (s Shape) HeadBytes(layer int) int {
	return s.GroupTokens / s.Page.Tokens * s.PageOf(layer).PageBytes()
}

// RecordBytes is the size of a record of a layer; 0 where it keeps nothing.
func (s Shape) RecordBytes(layer int) int {
	if !s.Layers.Keeps(layer) {
		return 0
	}
	return s.KVHeads(layer) * s.HeadBytes(layer)
}

// tokensBytes is the size of the records that so many single tokens of a layer fill.
func (s Shape) tokensBytes(layer, tokens int) int {
	return (tokens + s.GroupTokens - 1) / s.GroupTokens * s.RecordBytes(layer)
}

// span is where a part lies in its record, in bytes.
func (s Shape) span(layer int, p Part) (from, size int) {
	if p.N == 0 {
		return 0, s.RecordBytes(layer)
	}
	return int(p.First) * s.HeadBytes(layer), int(p.N) * s.HeadBytes(layer)
}

// check refuses records whose key or size is not the shape's.
func (s Shape) check(recs []Record, write bool) error {
	for i := range recs {
		r := &recs[i]
		if r.Key.Layer < 0 || int(r.Key.Layer) >= len(s.Layers) || r.Key.Group < 0 {
			return fmt.Errorf("offload: %v: want layers 0 to %d: %w", r.Key, len(s.Layers)-1, ErrShape)
		}
		layer := int(r.Key.Layer)
		if !s.Layers.Keeps(layer) {
			return fmt.Errorf("offload: %v: the layer keeps no keys and values: %w", r.Key, ErrShape)
		}
		if r.Part != (Part{}) && (write || r.Part.First < 0 || r.Part.N < 1 || int(r.Part.First)+int(r.Part.N) > s.KVHeads(layer)) {
			return fmt.Errorf("offload: %v: heads %d and %d more, want whole records in writes and at most %d heads: %w", r.Key, r.Part.First, r.Part.N, s.KVHeads(layer), ErrShape)
		}
		if _, size := s.span(layer, r.Part); len(r.Data) != size {
			return fmt.Errorf("offload: %v: %d bytes, want %d: %w", r.Key, len(r.Data), size, ErrShape)
		}
	}
	return nil
}
