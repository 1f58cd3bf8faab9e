package flash

import "encoding/binary"

// Records of the journal. All numbers are little-endian.
//
//	sequence: u8 1, u32 id, [16] owner, u64 number, u32 lease ms, u16 length and bytes of meta
//	group:    u8 2, u32 sequence, u32 layer, u32 group, u32 version, u32 length, u16 pages, each u32 number, u32 checksum
//	cut:      u8 3, u32 sequence, u32 first group that goes (0: the sequence goes too)
//	counters: u8 4, u32 next sequence, u32 version
//	shape:    u8 5, u32 sequence, u32 each number of its KVShape
//	rows:     u8 6, u32 sequence, u32 layer, u32 first token, u32 bytes and keys, u32 bytes and values: in the group buffer from then on
//	life:     u8 7, u64 pages programmed of the token, the embedding copy, moved; u16 channels, each u64 pages read: totals
//	erased:   u8 8, u32 count, each u32 block: erased once more
//	wear:     u8 9, u32 count, each u32 block, u32 erases: totals
//
// A group's layer has the table in its highest byte. Life and wear replace what was counted from the records before them.
const (
	recordSequence = 1 + iota
	recordGroup
	recordCut
	recordCounters
	recordShape
	recordRows
	recordLife
	recordErased
	recordWear
)

func appendSequence(dst []byte, s *Sequence) []byte {
	le := binary.LittleEndian
	dst = le.AppendUint32(append(dst, recordSequence), s.ID)
	dst = le.AppendUint64(append(dst, s.Owner[:]...), s.Number)
	dst = le.AppendUint16(le.AppendUint32(dst, s.LeaseMs), uint16(len(s.Meta)))
	return append(dst, s.Meta...)
}

func appendGroup(dst []byte, e *entry) []byte {
	le := binary.LittleEndian
	dst = append(dst, recordGroup)
	for _, v := range [...]uint32{e.key.Seq, e.key.packed(), uint32(e.key.Group), e.version, e.length} {
		dst = le.AppendUint32(dst, v)
	}
	dst = le.AppendUint16(dst, uint16(len(e.pages)))
	for _, p := range e.pages {
		dst = le.AppendUint32(le.AppendUint32(dst, p.number), p.sum)
	}
	return dst
}

func appendCut(dst []byte, seq uint32, from int) []byte {
	return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(append(dst, recordCut), seq), uint32(from))
}

func appendCounters(dst []byte, x *index) []byte {
	return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(append(dst, recordCounters), x.nextID), x.version)
}

// cursor reads records; a short read makes ok false.
type cursor struct {
	b  []byte
	ok bool
}

func (c *cursor) take(n int) []byte {
	if n > len(c.b) {
		c.ok, c.b = false, nil
		return make([]byte, n)
	}
	v := c.b[:n]
	c.b = c.b[n:]
	return v
}

func (c *cursor) u16() int    { return int(binary.LittleEndian.Uint16(c.take(2))) }
func (c *cursor) u64() uint64 { return binary.LittleEndian.Uint64(c.take(8)) }
func (c *cursor) u32() uint32 { return binary.LittleEndian.Uint32(c.take(4)) }

func (c *cursor) sequence() (s Sequence) {
	s.ID = c.u32()
	copy(s.Owner[:], c.take(16))
	s.Number = binary.LittleEndian.Uint64(c.take(8))
	s.LeaseMs = c.u32()
	s.Meta = append([]byte(nil), c.take(c.u16())...)
	return s
}

func (c *cursor) group() *entry {
	e := &entry{key: unpackKey(c.u32(), c.u32(), c.u32()), version: c.u32(), length: c.u32()}
	n := c.u16()
	if 8*n > len(c.b) {
		c.ok = false
		return e
	}
	e.pages = make([]page, n)
	for i := range e.pages {
		e.pages[i] = page{number: c.u32(), sum: c.u32()}
	}
	return e
}
