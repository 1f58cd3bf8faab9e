package keyindex

import (
	"terrace/internal/kvpage"
	"terrace/policy"
)

// Stream keeps the full tiles of one layer and KV head's index elsewhere (on the backing store of kvmanager), so that only
// the tile that still changes is in memory.
type Stream interface {
	// Append takes a tile, which nothing will change any more, and returns the offset in bytes under which Tiles gives it back.
	Append(tile []byte) (at int32)
	// Ready makes what was appended readable for the layer's scores of this step; false after an error, which the owner of the
	// stream returns at the end of the step. Scores are zeros then.
	Ready() bool
	// Tiles reads tiles that Append took, bytes each, as tiles of padded bytes with zeros behind. They hold until the next call.
	Tiles(at []int32, bytes, padded int) [][]byte
}

// KeepBelow has a head that holds nothing yet hand what is full to a stream; exact keys are copied there in
// their own type.
func (h *sketch) KeepBelow(t Stream, keys kvpage.Elem) {
	if h.need.Kind == policy.SketchExact || h.need.Kind == policy.SketchDims {
		h.columns = NewColumns(keys, h.dim)
	}
	if h.columns != nil {
		h.columns.KeepBelow(t)
	}
	for _, b := range h.bounds {
		b.KeepBelow(t)
	}
	if h.product != nil {
		h.product.KeepBelow(t)
	}
}
