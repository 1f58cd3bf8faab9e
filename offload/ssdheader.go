package offload

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"

	"terrace/internal/cacheshape"
	"terrace/internal/kvpage"
	"terrace/internal/vfs"
)

// The header is the file's first block; the records begin after it.
const (
	headerBytes   = 4096
	headerMagic   = "TERRACEKV"
	headerVersion = 2
	tokenMajor    = 1 << 31
	tokenRows     = 1 << 30
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// header says what a file holds, little-endian: magic, zero-padded to 16; u32 version, layers, KV heads, group tokens, K type, V
// type, key dimensions, value dimensions (of the first layer that has records, as its KV heads are), page tokens (the top bit: keys token by
// token; the next: records lie token by token), the largest record's stride, 1, its groups in an extent; 32 bytes fingerprint, of the layers
// too; then the layout's text, zero-padded to 128; u32 CRC-32C over all before it.
func (s *SSD) header() []byte {
	b := make([]byte, headerBytes)
	copy(b, headerMagic)
	first := s.shape.Layers.Next(-1)
	p, stride := s.shape.PageOf(first), s.place.mostStride()
	pageTokens := p.Tokens
	if p.TokenMajor {
		pageTokens |= tokenMajor
	}
	if s.byRow {
		pageTokens |= tokenRows
	}
	at := 16
	for _, v := range [...]int{headerVersion, len(s.shape.Layers), s.shape.KVHeads(first), s.shape.GroupTokens, int(p.K), int(p.V), p.KeyDim, p.ValueDim, pageTokens,
		stride, 1, int(s.place.extentBytes / int64(stride))} {
		binary.LittleEndian.PutUint32(b[at:], uint32(v))
		at += 4
	}
	at += copy(b[at:], s.shape.Fingerprint[:])
	copy(b[at:at+128], p.String())
	at += 128
	binary.LittleEndian.PutUint32(b[at:], crc32.Checksum(b[:at], castagnoli))
	return b
}

// headerSum is where the header's checksum lies.
const headerSum = 16 + 12*4 + 32 + 128

func (s *SSD) writeHeader() error {
	b := vfs.AlignedBytes(headerBytes)
	defer vfs.FreeAligned(b)
	copy(b, s.header())
	if _, err := s.file.WriteAt(b, 0); err != nil {
		return fmt.Errorf("offload: ssd %s: writing the header: %w", s.opt.Dir, err)
	}
	clear(b)
	if _, err := s.file.ReadAt(b, 0); err != nil {
		return fmt.Errorf("offload: ssd %s: reading the header back: %w", s.opt.Dir, err)
	}
	if crc32.Checksum(b[:headerSum], castagnoli) != binary.LittleEndian.Uint32(b[headerSum:]) {
		return fmt.Errorf("offload: ssd %s: the header reads back as something else: %w", s.opt.Dir, ErrCorrupt)
	}
	return nil
}

// checkOld looks at the file that is there: a store's is scratch of a process that has ended and may be overwritten; one that
// is not a store's must not.
func checkOld(sys vfs.FS, path string) (err error) {
	f, err := sys.OpenFile(path, vfs.OpenOptions{})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("offload: ssd: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	b := make([]byte, headerBytes)
	n, err := f.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("offload: ssd %s: reading the header: %w", path, err)
	}
	if n == 0 || allZero(b) || string(b[:len(headerMagic)]) == headerMagic {
		return nil // empty, reserved but never begun, or a store's
	}
	return fmt.Errorf("offload: ssd: %s is there but is not Terrace's (begins with %.12q): move it or give another directory: %w", path, b[:n], ErrShape)
}

func allZero(b []byte) bool {
	for _, x := range b {
		if x != 0 {
			return false
		}
	}
	return true
}

// describe reads a header: what a file holds.
func describe(b []byte) (Shape, error) {
	if len(b) < headerSum+4 || string(b[:len(headerMagic)]) != headerMagic {
		return Shape{}, fmt.Errorf("offload: ssd: not a store's header: %w", ErrShape)
	}
	if crc32.Checksum(b[:headerSum], castagnoli) != binary.LittleEndian.Uint32(b[headerSum:]) {
		return Shape{}, fmt.Errorf("offload: ssd: the header's checksum is wrong: %w", ErrCorrupt)
	}
	v := func(i int) int { return int(binary.LittleEndian.Uint32(b[16+4*i:])) }
	if v(0) != headerVersion {
		return Shape{}, fmt.Errorf("offload: ssd: header version %d, want %d: %w", v(0), headerVersion, ErrShape)
	}
	kv := cacheshape.KV{Heads: v(2), KeyDim: v(6), ValueDim: v(7)}
	s := Shape{Layers: cacheshape.Equal(min(v(1), 1<<16), kv.Heads, kv), GroupTokens: v(3), Page: kvpage.Layout{K: kvpage.Elem(v(4)), V: kvpage.Elem(v(5)), Tokens: v(8) &^ tokenMajor, TokenMajor: v(8)&tokenMajor != 0}}
	copy(s.Fingerprint[:], b[16+12*4:])
	return s, s.Validate()
}
