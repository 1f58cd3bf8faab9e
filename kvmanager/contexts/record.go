package contexts

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"

	"terrace/internal/storage"
	"terrace/kvmanager/values"
)

// Bounds of what is read: beyond them a record is damaged, whatever its checksums say.
const (
	pageBytes      = storage.PageBytes
	maxSections    = (pageBytes - headerFixed - sha256.Size) / 8
	maxRecordBytes = values.MaxBytes
	maxInfo        = 256
	formatVersion  = 1
	formatMagic    = "TERRACTX"
)

// Meta says what a record is of. All of it lies in the record's header and is compared when it is read.
type Meta struct {
	Key, Parent, Root Key
	First, Tokens     int    // positions of the text that the record stands for: [First, First+Tokens)
	Part, Parts       int    // of a compressed context; Parts 0 = a block of a plain prefix
	Ranks             uint32 // version of the ranks behind the directory; 0 = there are none, as in records of older builds
	Slot              int64  // bytes that records of this kind take at most, at least those of the record
	Info              string // for people: model and policy
}

// Record is one built or parsed record. Its bytes do not change.
type Record struct {
	Meta
	raw      []byte // header, then sections, each from a multiple of 4096 bytes
	sections [][]byte
}

// Bytes is the size of the record.
func (r *Record) Bytes() int64 { return int64(len(r.raw)) }

// Raw is the record as it is stored; nobody changes it.
func (r *Record) Raw() []byte { return r.raw }

// Sections is how many there are: the directory, one a layer, then the state of recurrent layers where the model has such.
func (r *Record) Sections() int { return len(r.sections) }

// Section is one of them.
func (r *Record) Section(i int) []byte { return r.sections[i] }

// headerFixed is what a header has before its sections: magic 8; u32 version, header bytes; key, parent, root (32 each); u32
// first, tokens, part, parts; u64 record bytes, slot bytes; info, zero-padded to 256; u32 sections, u32 version
// of the ranks (0 = none).
const headerFixed = 8 + 8 + 3*32 + 16 + 16 + maxInfo + 8

// The header is one page, the commit page: the fixed part, u32 length and u32 CRC-32C of each section, SHA-256 over all before
// it, zeros.

// RecordBytes is the size of a record with sections of given sizes.
func RecordBytes(sections []int) int64 {
	n := pageBytes
	for _, s := range sections {
		n += storage.RoundUp(s, pageBytes)
	}
	return int64(n)
}

// Build makes a record. fill appends section i to dst, which has room for sizes[i] bytes, and returns it.
func Build(m Meta, sizes []int, fill func(i int, dst []byte) ([]byte, error)) (*Record, error) {
	total := RecordBytes(sizes)
	if len(sizes) > maxSections || total > maxRecordBytes || len(m.Info) > maxInfo {
		return nil, fmt.Errorf("contexts: record of %d sections, %d bytes: too large", len(sizes), total)
	}
	if m.Slot < total {
		m.Slot = total
	}
	r := &Record{Meta: m, raw: storage.Aligned(int(total))}
	at := pageBytes
	for i, n := range sizes {
		got, err := fill(i, r.raw[at:at:at+n])
		if err != nil {
			return nil, err
		}
		if len(got) != n || n > 0 && &got[0] != &r.raw[at] {
			return nil, fmt.Errorf("contexts: section %d has %d bytes, want %d", i, len(got), n)
		}
		r.sections = append(r.sections, got)
		at += storage.RoundUp(n, pageBytes)
	}
	r.seal()
	return r, nil
}

// seal writes the header.
func (r *Record) seal() {
	b := append(r.raw[:0], formatMagic...)
	le := binary.LittleEndian
	b = le.AppendUint32(le.AppendUint32(b, formatVersion), pageBytes)
	b = append(append(append(b, r.Key[:]...), r.Parent[:]...), r.Root[:]...)
	for _, n := range [...]int{r.First, r.Tokens, r.Part, r.Parts} {
		b = le.AppendUint32(b, uint32(n))
	}
	b = le.AppendUint64(le.AppendUint64(b, uint64(len(r.raw))), uint64(r.Slot))
	b = append(b, make([]byte, maxInfo)...)
	copy(b[len(b)-maxInfo:], r.Info)
	b = le.AppendUint32(le.AppendUint32(b, uint32(len(r.sections))), r.Ranks)
	for _, s := range r.sections {
		b = le.AppendUint32(le.AppendUint32(b, uint32(len(s))), storage.Checksum(s))
	}
	sum := sha256.Sum256(b)
	copy(r.raw[len(b):], sum[:])
}

// parseHeader reads and checks a header from the beginning of b; raw may end after it.
func parseHeader(b []byte) (m Meta, total int64, sections []section, err error) {
	bad := func(format string, args ...any) (Meta, int64, []section, error) {
		return Meta{}, 0, nil, fmt.Errorf("contexts: header: %s: %w", fmt.Sprintf(format, args...), ErrDamaged)
	}
	if len(b) < pageBytes || string(b[:8]) != formatMagic {
		return bad("no record begins here")
	}
	le := binary.LittleEndian
	if v := le.Uint32(b[8:]); v != formatVersion {
		return bad("version %d, want %d", v, formatVersion)
	}
	n := int(le.Uint32(b[headerFixed-8:]))
	if n > maxSections || le.Uint32(b[12:]) != pageBytes {
		return bad("%d sections in a header of %d bytes", n, le.Uint32(b[12:]))
	}
	end := headerFixed + 8*n
	if sum := sha256.Sum256(b[:end]); !bytes.Equal(sum[:], b[end:end+sha256.Size]) {
		return bad("its checksum differs")
	}
	at := 16
	at += copy(m.Key[:], b[at:])
	at += copy(m.Parent[:], b[at:])
	at += copy(m.Root[:], b[at:])
	m.First, m.Tokens = int(int32(le.Uint32(b[at:]))), int(int32(le.Uint32(b[at+4:])))
	m.Part, m.Parts = int(int32(le.Uint32(b[at+8:]))), int(int32(le.Uint32(b[at+12:])))
	total, m.Slot = int64(le.Uint64(b[at+16:])), int64(le.Uint64(b[at+24:]))
	m.Info = strings.TrimRight(string(b[at+32:at+32+maxInfo]), "\x00")
	if m.Ranks = le.Uint32(b[headerFixed-4:]); m.Ranks > RanksVersion || m.Ranks > 0 && m.Parts == 0 {
		return bad("ranks of version %d in part %d of %d, known is %d", m.Ranks, m.Part, m.Parts, RanksVersion)
	}
	if m.First < 0 || m.Tokens < 1 || m.Part < 0 || m.Parts < 0 || m.Parts > 0 && m.Part >= m.Parts || total > maxRecordBytes || m.Slot < total || m.Slot > maxRecordBytes {
		return bad("numbers out of range")
	}
	want := int64(pageBytes)
	for i := range n {
		s := section{bytes: int64(le.Uint32(b[headerFixed+8*i:])), sum: le.Uint32(b[headerFixed+8*i+4:]), off: want}
		if s.bytes > maxRecordBytes {
			return bad("section %d has %d bytes", i, s.bytes)
		}
		want += int64(storage.RoundUp(int(s.bytes), pageBytes))
		sections = append(sections, s)
	}
	if want != total {
		return bad("%d bytes, its sections make %d", total, want)
	}
	return m, total, sections, nil
}

// section is where a section lies in a record, and its CRC-32C.
type section struct {
	off, bytes int64
	sum        uint32
}

// Parse checks a record's bytes, which stay the record's (guarantee 1). Errors wrap ErrDamaged.
func Parse(raw []byte) (*Record, error) {
	m, total, sections, err := parseHeader(raw)
	if err != nil {
		return nil, err
	}
	if total != int64(len(raw)) {
		return nil, fmt.Errorf("contexts: record %s: %d bytes, want %d: %w", m.Key, len(raw), total, ErrDamaged)
	}
	r := &Record{Meta: m, raw: raw}
	for i, s := range sections {
		b := raw[s.off : s.off+s.bytes : s.off+s.bytes]
		if storage.Checksum(b) != s.sum {
			return nil, fmt.Errorf("contexts: record %s: checksum of section %d differs: %w", m.Key, i, ErrDamaged)
		}
		r.sections = append(r.sections, b)
	}
	return r, nil
}
