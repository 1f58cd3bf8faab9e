package csdshim

import "terrace/csdshim/flash"

// KVStore is what the attention engine needs of the flash's translation layer: keys and values by sequence, layer and head,
// read by chosen dimension and by chosen token. Numbers of sequences are those that Store.OpenSequence gave; Store.Cut(seq, 0)
// forgets a sequence with everything below.
//
// Every call returns the physical pages that it read or programmed, a page once a call, so that the model of the hardware
// charges them on their channels; rows that still wait in the group buffer (the drive's DRAM) cost no page.
type KVStore interface {
	// ShapeKV says how an open sequence lies; once, before the calls below, and again after a restart (the shape is part of the
	// sequence's Meta). Another shape than before is an error.
	ShapeKV(seq uint32, shape flash.KVShape) error
	// AppendKV adds tokens at the end of a layer, all heads: keys [tokens][Heads][KeyDim] and values [tokens][Heads][ValueDim] of
	// ElemBytes each. Groups that are full are programmed, and durable when it returns; the rest waits in the group buffer, within
	// its bound. All or none is appended; flash.ErrFull where it does not fit.
	AppendKV(seq uint32, layer, tokens int, keys, values []byte) (programmed []uint32, err error)
	// TokensKV is how many tokens a layer has, in the group buffer too; EmbeddedKV how many of them, from the first on, the
	// embedding copy holds.
	TokensKV(seq uint32, layer int) int
	EmbeddedKV(seq uint32, layer int) int
	// ReadKV fills every Dst. Where several reads, of any heads, need one page it is read once.
	ReadKV(seq uint32, reads []flash.KVRead) (read []uint32, err error)
}

var _ KVStore = (*flash.Store)(nil)
