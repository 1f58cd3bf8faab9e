package flash

import (
	"encoding/binary"

	"terrace/csdshim/wire"
)

// life is what was done over the life of the folder. Reads since the last record are lost when the process is killed; what
// was programmed and erased is not.
type life struct {
	programmed [tables]uint64 // pages; of Groups and Token together the token copy
	moved      uint64         // pages, by garbage collection
	read       []uint64       // pages by channel
}

func newLife(g Geometry) life { return life{read: make([]uint64, g.Channels)} }

// group counts a group's pages: of a group that was moved those that are elsewhere now.
func (l *life) group(old, e *entry) {
	if old == nil || old.version != e.version {
		l.programmed[e.key.Table] += uint64(len(e.pages))
		return
	}
	for i, p := range e.pages {
		if i < len(old.pages) && old.pages[i].number != p.number {
			l.moved++
		}
	}
}

// countReads notes pages that were read; mu is held.
func (s *Store) countReads(pages []uint32) {
	s.counts.PagesRead += uint64(len(pages))
	for _, p := range pages {
		s.life.read[int(p)/s.geo.BlockPages%s.geo.Channels]++
	}
}

func appendLife(dst []byte, l *life) []byte {
	le := binary.LittleEndian
	dst = append(dst, recordLife)
	for _, v := range [...]uint64{l.programmed[Groups] + l.programmed[Token], l.programmed[Embedding], l.moved} {
		dst = le.AppendUint64(dst, v)
	}
	dst = le.AppendUint16(dst, uint16(len(l.read)))
	for _, n := range l.read {
		dst = le.AppendUint64(dst, n)
	}
	return dst
}

func appendErased(dst []byte, ids []uint32) []byte {
	dst = binary.LittleEndian.AppendUint32(append(dst, recordErased), uint32(len(ids)))
	for _, id := range ids {
		dst = binary.LittleEndian.AppendUint32(dst, id)
	}
	return dst
}

func appendWear(dst []byte, b *blocks) []byte {
	le := binary.LittleEndian
	at := len(dst) + 1
	dst = le.AppendUint32(append(dst, recordWear), 0)
	n := uint32(0)
	for id := range b.all {
		if e := b.all[id].erases; e > 0 {
			dst = le.AppendUint32(le.AppendUint32(dst, uint32(id)), uint32(e))
			n++
		}
	}
	le.PutUint32(dst[at:], n)
	return dst
}

func (s *Store) replayLife(kind byte, c *cursor) {
	if kind == recordLife {
		s.life.programmed = [tables]uint64{Token: c.u64(), Embedding: c.u64()}
		s.life.moved = c.u64()
		for i := range c.u16() {
			if n := c.u64(); i < len(s.life.read) {
				s.life.read[i] = n
			}
		}
		return
	}
	for n := c.u32(); n > 0 && c.ok; n-- {
		id := int(c.u32())
		switch {
		case kind == recordWear:
			if e := int(c.u32()); id < len(s.blocks.all) {
				s.blocks.all[id].erases = e
			}
		case id < len(s.blocks.all):
			s.blocks.all[id].erases++
		}
	}
}

// Life is what was done over the life of the folder, and what lies there now.
func (s *Store) Life() wire.Life {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := wire.Life{ReadByChannel: append([]uint64(nil), s.life.read...), TokenProgrammed: s.life.programmed[Groups] + s.life.programmed[Token],
		EmbeddingProgrammed: s.life.programmed[Embedding], Moved: s.life.moved, Blocks: uint64(len(s.blocks.all)), FreeBlocks: uint64(s.blocks.frees),
		GroupBufferBytes: uint64(s.buffer.bytes), GroupBufferPeak: uint64(s.buffer.peak), GroupBufferMax: uint64(s.bufferLimit()),
		ErasesMin: ^uint64(0)}
	for i := range s.blocks.all {
		b := &s.blocks.all[i]
		e := uint64(b.erases)
		l.Valid += uint64(b.live)
		l.Erases += e
		l.ErasesMin, l.ErasesMax = min(l.ErasesMin, e), max(l.ErasesMax, e)
	}
	return l
}
