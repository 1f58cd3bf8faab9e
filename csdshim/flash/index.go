package flash

import (
	"hash/crc32"
)

// Key names what is stored together: of an open sequence (by the number that the store gave it), in one of its tables. In
// Groups it is a layer's 16 tokens.
type Key struct {
	Seq          uint32
	Layer, Group int32
	Table        Table
}

// Table is a mapping table of a sequence.
type Table uint8

// The tables. Token and Embedding are those of a sequence that the drive attends to (KVShape).
const (
	Groups    Table = iota // records of 16 tokens and all KV heads, whole
	Token                  // layer, head, keys or values → pages of TokenGroup tokens
	Embedding              // layer, head → pages of EmbeddingGroup dimensions of a block of tokens
	tables
)

// packed is layer and table in one number, as journal and checksums have them; layers stay below 2^24.
func (k Key) packed() uint32 { return uint32(k.Layer) | uint32(k.Table)<<24 }

func unpackKey(seq, layer, group uint32) Key {
	return Key{Seq: seq, Layer: int32(layer & (1<<24 - 1)), Table: Table(layer >> 24), Group: int32(group)}
}

// Sequence is what the store knows of a sequence; Meta is its user's, a few bytes.
type Sequence struct {
	ID      uint32 // given by the store, never used twice
	Owner   [16]byte
	Number  uint64 // the owner's
	LeaseMs uint32
	Meta    []byte
}

// entry is a stored group.
type entry struct {
	key     Key
	version uint32 // of all writes; a page's checksum includes it
	length  uint32 // bytes
	pages   []page
}

// page is a flash page and the checksum of what it should hold.
type page struct{ number, sum uint32 }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// pageSum is the checksum of a group's i-th page: key, version and place are part of it, so that another page in its
// place, or an older one, fails.
func pageSum(k Key, version uint32, i int, data []byte) uint32 {
	sum := ^uint32(0)
	for _, v := range [...]uint32{k.Seq, k.packed(), uint32(k.Group), version, uint32(i)} {
		for range 4 { // by the table: bytes given to package crc32 would be allocated, page by page
			sum, v = castagnoli[byte(sum)^byte(v)]^sum>>8, v>>8
		}
	}
	return crc32.Update(^sum, castagnoli, data)
}

type ownerNumber struct {
	owner  [16]byte
	number uint64
}

// stored is a sequence and its groups by table and layer.
type stored struct {
	Sequence
	tables [tables][]Sparse[*entry]
	groups int
	kv     *kvSequence // nil where the drive does not attend to it
}

func (s *stored) find(k Key) *entry {
	if t := s.tables[k.Table]; int(k.Layer) < len(t) {
		return t[k.Layer].At(int(k.Group))
	}
	return nil
}

// index is the mapping tables of all sequences.
type index struct {
	byID     map[uint32]*stored
	byNumber map[ownerNumber]*stored
	nextID   uint32
	version  uint32
	groups   int
}

func newIndex() *index {
	return &index{byID: map[uint32]*stored{}, byNumber: map[ownerNumber]*stored{}, nextID: 1}
}

func (x *index) add(s Sequence) *stored {
	if st := x.byID[s.ID]; st != nil {
		return st // its record follows a snapshot that has it
	}
	st := &stored{Sequence: s}
	x.byID[s.ID] = st
	x.byNumber[ownerNumber{s.Owner, s.Number}] = st
	x.nextID = max(x.nextID, s.ID+1)
	return st
}

// put makes an entry the group's; the one before is returned.
func (x *index) put(st *stored, e *entry) (old *entry) {
	t := &st.tables[e.key.Table]
	for len(*t) <= int(e.key.Layer) {
		*t = append(*t, Sparse[*entry]{})
	}
	l := &(*t)[e.key.Layer]
	old = l.At(int(e.key.Group))
	l.Set(int(e.key.Group), e)
	if old == nil {
		st.groups++
		x.groups++
	}
	x.version = max(x.version, e.version)
	return old
}

// cut removes the groups of 16 tokens from one on and returns them; from 0 on, the sequence with all its tables.
func (x *index) cut(st *stored, from int) (gone []*entry) {
	for t := range st.tables {
		if t > 0 && from > 0 {
			break
		}
		for i := range st.tables[t] {
			for _, e := range st.tables[t][i].All(from) {
				if e != nil {
					gone = append(gone, e)
				}
			}
			st.tables[t][i].Cut(from)
		}
	}
	st.groups -= len(gone)
	x.groups -= len(gone)
	if from == 0 {
		delete(x.byID, st.ID)
		delete(x.byNumber, ownerNumber{st.Owner, st.Number})
	}
	return gone
}
