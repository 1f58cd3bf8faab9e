package offload

import (
	"fmt"

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

// Record is a key and its bytes: KVHeads pages one after another (Shape.RecordBytes), or, on reads only, the pages of Part.
// I/O is without a copy where Data comes from AlignedBytes and is a multiple of 512 bytes.
type Record struct {
	Key  Key
	Part Part
	Data []byte
}

// Shape tells a store at opening what its records are.
type Shape struct {
	Layers, KVHeads int
	Page            kvpage.Layout
	GroupTokens     int      // tokens of a record, a multiple of Page.Tokens
	Fingerprint     [32]byte // of the model and all that shapes its K and V
}

// Validate reports the first number out of range, wrapping ErrShape.
func (s Shape) Validate() error {
	if err := s.Page.Validate(); err != nil {
		return fmt.Errorf("offload: shape: %w: %w", err, ErrShape)
	}
	switch {
	case s.Layers < 1 || s.Layers > 1<<16 || s.KVHeads < 1 || s.KVHeads > 1<<16:
		return fmt.Errorf("offload: shape: %d layers of %d KV heads, want 1 to 65536 each: %w", s.Layers, s.KVHeads, ErrShape)
	case s.GroupTokens < s.Page.Tokens || s.GroupTokens%s.Page.Tokens != 0 || s.GroupTokens > 1<<16:
		return fmt.Errorf("offload: shape: %d tokens a group, want a multiple of the page's %d: %w", s.GroupTokens, s.Page.Tokens, ErrShape)
	}
	return nil
}

// HeadBytes is the size of one KV head's share of a record.
func (s Shape) HeadBytes() int { return s.GroupTokens / s.Page.Tokens * s.Page.PageBytes() }

// RecordBytes is the size of a record.
func (s Shape) RecordBytes() int { return s.KVHeads * s.HeadBytes() }

// span is where a part lies in its record, in bytes.
func (s Shape) span(p Part) (from, size int) {
	if p.N == 0 {
		return 0, s.RecordBytes()
	}
	return int(p.First) * s.HeadBytes(), int(p.N) * s.HeadBytes()
}

// check refuses records whose key or size is not the shape's.
func (s Shape) check(recs []Record, write bool) error {
	for i := range recs {
		r := &recs[i]
		if r.Key.Layer < 0 || int(r.Key.Layer) >= s.Layers || r.Key.Group < 0 {
			return fmt.Errorf("offload: %v: want layers 0 to %d: %w", r.Key, s.Layers-1, ErrShape)
		}
		if r.Part != (Part{}) && (write || r.Part.First < 0 || r.Part.N < 1 || int(r.Part.First)+int(r.Part.N) > s.KVHeads) {
			return fmt.Errorf("offload: %v: heads %d and %d more, want whole records in writes and at most %d heads: %w", r.Key, r.Part.First, r.Part.N, s.KVHeads, ErrShape)
		}
		if _, size := s.span(r.Part); len(r.Data) != size {
			return fmt.Errorf("offload: %v: %d bytes, want %d: %w", r.Key, len(r.Data), size, ErrShape)
		}
	}
	return nil
}
