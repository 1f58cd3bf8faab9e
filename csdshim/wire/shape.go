package wire

import (
	"fmt"

	"terrace/internal/kvpage"
)

// GroupTokens is the number of tokens of a group.
const GroupTokens = kvpage.Tile

// Codes says what the drive scores a sequence's tokens with: a copy of the keys, a tile of 16 tokens a KV head. Integers lie
// in kvpage's code tiles (kvpage.PutCode), halves in the key tiles of a page, dimension by dimension, product codes [KeyDim/4][16]: a
// byte has the code of numbers 4m, 4m+1 in its low half, that of 4m+2, 4m+3 in its high one.
type Codes uint8

// What a drive can score.
const (
	CodesNone    Codes = iota // nothing: the sequence is stored only
	CodesInt8                 // int8, -127..127
	CodesInt4                 // int4, -7..7
	CodesHalf                 // the keys in IEEE half precision
	CodesProduct              // product codes: of each two numbers of a key the nearest of 16 centroids, 4 bits
	codesEnd
)

// String is the name in messages.
func (c Codes) String() string {
	if c < codesEnd {
		return [...]string{"none", "int8", "int4", "fp16", "product"}[c]
	}
	return fmt.Sprintf("codes(%d)", uint8(c))
}

// Floats reports whether questions are in float32 rather than in int8.
func (c Codes) Floats() bool { return c == CodesHalf || c == CodesProduct }

// Scaled reports whether nothing can be scored before a layer's scales, or centroids, are known.
func (c Codes) Scaled() bool { return c != CodesNone && c != CodesHalf }

// Bits is what one number of a key takes in the codes.
func (c Codes) Bits() int {
	switch c {
	case CodesNone:
		return 0
	case CodesProduct:
		return 2
	}
	return c.Elem().Bits()
}

// PairCentroids is how many centroids each two numbers of a key have in CodesProduct.
const PairCentroids = 16

// Elem is the element type of a tile of codes; not for CodesNone and CodesProduct.
func (c Codes) Elem() kvpage.Elem {
	return [...]kvpage.Elem{CodesInt8: kvpage.I8, CodesInt4: kvpage.I4, CodesHalf: kvpage.F16}[c]
}

// Shape says what a sequence's groups are; it is fixed when the sequence is opened.
type Shape struct {
	Layers, KVHeads int
	Page            kvpage.Layout // of one KV head's page; Tokens must be 16
	Codes           Codes
	Fingerprint     [32]byte // of model and KV type: a sequence opened again must have the same
}

// RecordBytes is the size of a group's pages: KVHeads pages one after another.
func (s Shape) RecordBytes() int { return s.KVHeads * s.Page.PageBytes() }

// CodeTileBytes is the size of one KV head's tile of codes; 0 without codes.
func (s Shape) CodeTileBytes() int {
	switch s.Codes {
	case CodesNone:
		return 0
	case CodesInt8, CodesInt4:
		return kvpage.CodeTileBytes(s.Codes.Elem(), s.Page.KeyDim)
	case CodesProduct: // [KeyDim/4][16], two codes a byte
		return s.Page.KeyDim / 4 * GroupTokens
	}
	return kvpage.Layout{K: s.Codes.Elem(), V: kvpage.F16, KeyDim: s.Page.KeyDim, ValueDim: 1, Tokens: GroupTokens}.KTileBytes()
}

// CodeBytes is the size of a group's codes: KVHeads tiles one after another.
func (s Shape) CodeBytes() int { return s.KVHeads * s.CodeTileBytes() }

// TokenBytes is what one token's keys and values take over all KV heads of a layer, without scales that it shares.
func (s Shape) TokenBytes() int {
	return s.KVHeads * (s.Page.KeyDim*s.Page.K.Bits()/8 + s.Page.VRowBytes())
}

// ScanBytes is what the drive reads of a group's codes to score it.
func (s Shape) ScanBytes() int { return s.Width() * GroupTokens * s.Codes.Bits() / 8 }

// Centroids is how many numbers CodesProduct's centroids of a layer are: [KVHeads][KeyDim/2][16][2].
func (s Shape) Centroids() int { return PairCentroids * s.Width() }

// Width is the length of a query: KVHeads·KeyDim.
func (s Shape) Width() int { return s.KVHeads * s.Page.KeyDim }

const (
	maxLayers = 1 << 10
	maxHeads  = 1 << 10
)

// Validate reports the first number out of range; a group must fit a frame.
func (s Shape) Validate() error {
	if err := s.Page.Validate(); err != nil {
		return fmt.Errorf("csdshim: shape: %w", err)
	}
	switch {
	case s.Layers < 1 || s.Layers > maxLayers:
		return malformed("shape of %d layers, want 1 to %d", s.Layers, maxLayers)
	case s.KVHeads < 1 || s.KVHeads > maxHeads:
		return malformed("shape of %d KV heads, want 1 to %d", s.KVHeads, maxHeads)
	case s.Page.Tokens != GroupTokens:
		return malformed("shape with pages of %d tokens, want %d", s.Page.Tokens, GroupTokens)
	case s.Codes >= codesEnd:
		return malformed("shape with %v", s.Codes)
	case s.Codes == CodesProduct && s.Page.KeyDim%4 != 0:
		return malformed("shape with %v codes of keys of %d numbers, want a multiple of 4", s.Codes, s.Page.KeyDim)
	case s.RecordBytes()+s.CodeBytes() > maxPayloadBytes-1024:
		return malformed("a group of %d bytes does not fit a frame of %d", s.RecordBytes()+s.CodeBytes(), maxPayloadBytes)
	}
	return nil
}

// Append adds the shape's bytes to dst; ParseShape reads them.
func (s Shape) Append(dst []byte) []byte {
	e := encoder{dst}
	s.encode(&e)
	return e.b
}

// ParseShape reads what Append wrote and validates it.
func ParseShape(b []byte) (Shape, error) {
	d := decoder{b: b}
	s := decodeShape(&d)
	if err := d.end("shape"); err != nil {
		return s, err
	}
	return s, s.Validate()
}

func (s Shape) encode(e *encoder) {
	e.u32(uint32(s.Layers))
	e.u32(uint32(s.KVHeads))
	major := uint8(0)
	if s.Page.TokenMajor {
		major = 1
	}
	for _, v := range [...]uint8{uint8(s.Page.K), uint8(s.Page.V), major, uint8(s.Codes)} {
		e.u8(v)
	}
	e.u32(uint32(s.Page.KeyDim))
	e.u32(uint32(s.Page.ValueDim))
	e.u32(uint32(s.Page.Tokens))
	e.bytes(s.Fingerprint[:])
}

func decodeShape(d *decoder) (s Shape) {
	s.Layers, s.KVHeads = d.index(), d.index()
	s.Page.K, s.Page.V = kvpage.Elem(d.u8()), kvpage.Elem(d.u8())
	major := d.u8()
	d.failed = d.failed || major > 1
	s.Page.TokenMajor = major == 1
	s.Codes = Codes(d.u8())
	s.Page.KeyDim, s.Page.ValueDim, s.Page.Tokens = d.index(), d.index(), d.index()
	copy(s.Fingerprint[:], d.take(len(s.Fingerprint)))
	return s
}
