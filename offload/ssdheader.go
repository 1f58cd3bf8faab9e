package offload

import (
	"encoding/binary"
	"fmt"

	"terrace/internal/cacheshape"
	"terrace/internal/kvpage"
	"terrace/internal/storage"
)

// The header is the file's first page (storage.Header); the records begin after it.
const (
	headerBytes   = storage.PageBytes
	headerMagic   = "TERRACEKV"
	headerVersion = 2
	headerBody    = 11*4 + 32 + 128
	tokenMajor    = 1 << 31
	tokenRows     = 1 << 30
)

// header says what a file holds, little-endian: u32 layers, KV heads, group tokens, K type, V type, key dimensions, value dimensions (of the
// first layer that has records, as its KV heads are), page tokens (the top bit: keys token by token; the next: records lie token by
// token), the largest record's stride, 1, its groups in an extent; 32 bytes fingerprint, of the layers too; the layout's text, zero-padded
// to 128.
func (s *SSD) header() []byte {
	first := s.shape.Layers.Next(-1)
	p, stride := s.shape.PageOf(first), s.place.mostStride()
	pageTokens := p.Tokens
	if p.TokenMajor {
		pageTokens |= tokenMajor
	}
	if s.byRow {
		pageTokens |= tokenRows
	}
	var b []byte
	for _, v := range [...]int{len(s.shape.Layers), s.shape.KVHeads(first), s.shape.GroupTokens, int(p.K), int(p.V), p.KeyDim, p.ValueDim, pageTokens,
		stride, 1, int(s.place.extentBytes / int64(stride))} {
		b = binary.LittleEndian.AppendUint32(b, uint32(v))
	}
	b = append(append(b, s.shape.Fingerprint[:]...), p.String()...)
	return append(b, make([]byte, headerBody-len(b))...)
}

// describe reads a header: what a file holds.
func describe(b []byte) (Shape, error) {
	b, err := storage.CheckHeader(b, headerMagic, headerVersion, headerBody)
	if err != nil {
		return Shape{}, fmt.Errorf("offload: ssd: %w", err)
	}
	v := func(i int) int { return int(binary.LittleEndian.Uint32(b[4*i:])) }
	kv := cacheshape.KV{Heads: v(1), KeyDim: v(5), ValueDim: v(6)}
	s := Shape{Layers: cacheshape.Equal(min(v(0), 1<<16), kv.Heads, kv), GroupTokens: v(2), Page: kvpage.Layout{K: kvpage.Elem(v(3)), V: kvpage.Elem(v(4)), Tokens: v(7) &^ tokenMajor, TokenMajor: v(7)&tokenMajor != 0}}
	copy(s.Fingerprint[:], b[11*4:])
	return s, s.Validate()
}
