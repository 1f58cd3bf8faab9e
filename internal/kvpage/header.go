package kvpage

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// HeaderBytes is the size of an encoded header, which stands in front of the page's bytes on disk and on the wire.
const HeaderBytes = 96

// Version is the format of header and layout; a page of another version is refused.
const Version = 1

const magic = "TKVP"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Header says which page the bytes after it are. Two pages with equal headers hold the same numbers.
type Header struct {
	Layout      Layout
	Layer, Head int
	First       int      // position of the first token
	N           int      // tokens in use
	Fingerprint [32]byte // of model, tokens up to here and all that shapes K and V: the owner decides
}

// Encode appends the header with the checksum over header and page, then the page, to dst.
//
// Header bytes, little-endian: magic "TKVP"; u16 version; u8 K type; u8 V type; u32 KeyDim, ValueDim, Tokens, Layer,
// Head, N; u64 First; [32] fingerprint; u32 page bytes; u8 1 where keys lie token by token; 15 zero bytes; u32 CRC-32C over
// all before it and the page.
func Encode(dst []byte, h Header, page []byte) []byte {
	var b [HeaderBytes]byte
	h.put(&b, len(page))
	binary.LittleEndian.PutUint32(b[HeaderBytes-4:], sum(b[:HeaderBytes-4], page))
	return append(append(dst, b[:]...), page...)
}

func (h Header) put(b *[HeaderBytes]byte, pageBytes int) {
	le := binary.LittleEndian
	copy(b[:], magic)
	le.PutUint16(b[4:], Version)
	b[6], b[7] = byte(h.Layout.K), byte(h.Layout.V)
	for i, v := range [...]int{h.Layout.KeyDim, h.Layout.ValueDim, h.Layout.Tokens, h.Layer, h.Head, h.N} {
		le.PutUint32(b[8+4*i:], uint32(v))
	}
	le.PutUint64(b[32:], uint64(h.First))
	copy(b[40:], h.Fingerprint[:])
	le.PutUint32(b[72:], uint32(pageBytes))
	if h.Layout.TokenMajor {
		b[76] = 1
	}
}

func sum(head, page []byte) uint32 {
	return crc32.Update(crc32.Checksum(head, castagnoli), castagnoli, page)
}

// Decode verifies an encoded page and returns its header and its bytes, which alias data. Every fault of the bytes
// themselves (cut short, any bit changed, another version) wraps ErrCorrupt.
func Decode(data []byte) (Header, []byte, error) {
	if len(data) < HeaderBytes {
		return Header{}, nil, fmt.Errorf("kvpage: encoded page: got %d bytes, want at least %d: %w", len(data), HeaderBytes, ErrCorrupt)
	}
	le := binary.LittleEndian
	head, page := data[:HeaderBytes-4], data[HeaderBytes:]
	if string(head[:4]) != magic || le.Uint16(head[4:]) != Version {
		return Header{}, nil, fmt.Errorf("kvpage: encoded page: magic %q version %d, want %q %d: %w",
			head[:4], le.Uint16(head[4:]), magic, Version, ErrCorrupt)
	}
	if got := int64(le.Uint32(head[72:])); got != int64(len(page)) {
		return Header{}, nil, fmt.Errorf("kvpage: encoded page: %d bytes after the header, want %d: %w", len(page), got, ErrCorrupt)
	}
	if got, want := sum(head, page), le.Uint32(data[HeaderBytes-4:]); got != want {
		return Header{}, nil, fmt.Errorf("kvpage: encoded page: checksum %08x, want %08x: %w", got, want, ErrCorrupt)
	}
	h := Header{
		Layout: Layout{K: Elem(head[6]), V: Elem(head[7]), KeyDim: int(le.Uint32(head[8:])), ValueDim: int(le.Uint32(head[12:])),
			Tokens: int(le.Uint32(head[16:])), TokenMajor: head[76] == 1},
		Layer: int(le.Uint32(head[20:])), Head: int(le.Uint32(head[24:])), N: int(le.Uint32(head[28:])),
		First: int(le.Uint64(head[32:])),
	}
	copy(h.Fingerprint[:], head[40:])
	if err := h.Layout.Validate(); err != nil {
		return Header{}, nil, fmt.Errorf("%w: %w", err, ErrCorrupt)
	}
	if h.Layout.PageBytes() != len(page) || h.N > h.Layout.Tokens || h.First < 0 || head[76] > 1 || [15]byte(head[77:]) != [15]byte{} {
		return Header{}, nil, fmt.Errorf("kvpage: encoded page: %d bytes and %d tokens for %v: %w", len(page), h.N, h.Layout, ErrCorrupt)
	}
	return h, page, nil
}

// Verify decodes data and checks that it is the page that want describes; a whole page that is another one (misdirected,
// stale, of another model) wraps ErrMismatch and names the first field that differs.
func Verify(data []byte, want Header) ([]byte, error) {
	got, page, err := Decode(data)
	if err != nil || got == want {
		return page, err
	}
	field, g, w := "fingerprint", any(got.Fingerprint), any(want.Fingerprint)
	switch {
	case got.Layout != want.Layout:
		field, g, w = "layout", got.Layout, want.Layout
	case got.Layer != want.Layer:
		field, g, w = "layer", got.Layer, want.Layer
	case got.Head != want.Head:
		field, g, w = "head", got.Head, want.Head
	case got.First != want.First:
		field, g, w = "first position", got.First, want.First
	case got.N != want.N:
		field, g, w = "tokens", got.N, want.N
	}
	return nil, fmt.Errorf("kvpage: encoded page: %s %v, want %v: %w", field, g, w, ErrMismatch)
}
