package xcache

import (
	"context"
	"encoding/binary"
	"math"
	"slices"
	"sync"

	"terrace/internal/cacheshape"
	"terrace/internal/kernels"
	"terrace/internal/kvpage"
	"terrace/offload"
)

// projects makes blocks of rows: a Projector, but in tests.
type projects interface {
	blocks(layer int, of []block, x []float32, dst [][]byte) error
}

// Options of a Store.
type Options struct {
	Shape        offload.Shape // of keys and values
	Hidden       int           // numbers of a row
	Layers       []bool        // that keep rows
	ReserveBytes int64         // of rows that wait for their block's write, counted as host memory from the beginning
}

// Use counts what a Store has done.
type Use struct {
	Layers        int   `json:"layers"`         // that keep rows
	RowBlocks     int64 `json:"row_blocks"`     // of these layers, written as rows
	KVBlocks      int64 `json:"kv_blocks"`      // and as keys and values: rows were missing, of two arithmetics, or gave other bytes
	ProjectedRows int64 `json:"projected_rows"` // after a read
	CheckedRows   int64 `json:"checked_rows"`   // before a write
	WaitingBytes  int64 `json:"waiting_bytes"`  // of rows whose block is not written yet, now
}

// Plus is both, or with sign -1 the difference; Layers and WaitingBytes are u's where it has some.
func (u Use) Plus(x Use, sign int64) Use {
	u.Layers = max(u.Layers, x.Layers)
	u.WaitingBytes = max(u.WaitingBytes, x.WaitingBytes)
	u.RowBlocks += sign * x.RowBlocks
	u.KVBlocks += sign * x.KVBlocks
	u.ProjectedRows += sign * x.ProjectedRows
	u.CheckedRows += sign * x.CheckedRows
	return u
}

// block says what rows of a block are: of one arithmetic, at positions from first on, of a text as long as rotary scaling sees it.
type block struct {
	phase  kernels.Phase
	first  int32
	length int32
}

// staged are rows that wait for their block's write.
type staged struct {
	block
	rows []float32 // [n, Hidden]
}

// Store is an offload.Store of keys and values on one that has rows of some layers instead.
type Store struct {
	offload.Store
	o       Options
	project projects

	mu     sync.Mutex
	staged map[offload.Key]*staged
	waits  int64 // bytes of staged rows
	lent   int64
	kept   map[offload.Key]block // blocks that lie below as rows
	arenas [][]byte              // that no transfer uses
	memory int64                 // bytes of all arenas
	use    Use
}

// keptBytes is about what an entry of Store.kept takes.
const keptBytes = 64

// Shape is that of the store below: the layers as they are, then each one's rows as keys and values of one head, half a row each.
func Shape(o Options) offload.Shape {
	s := o.Shape
	n := len(s.Layers)
	s.Layers = make(cacheshape.Model, 2*n)
	copy(s.Layers, o.Shape.Layers)
	for i := range n {
		if o.Layers[i] {
			s.Layers[n+i] = cacheshape.Layer{Heads: 1, Owner: n + i, KV: cacheshape.KV{Heads: 1, KeyDim: o.Hidden / 2, ValueDim: o.Hidden - o.Hidden/2, Type: uint8(kvpage.F32) + 1}}
		}
	}
	return s
}

// New puts a store of keys and values on one of Shape, which is its own from then on: Close closes both.
func New(below offload.Store, p *Projector, o Options) *Store { return newStore(below, p, o) }

func newStore(below offload.Store, p projects, o Options) *Store {
	s := &Store{Store: below, o: o, project: p, staged: map[offload.Key]*staged{}, kept: map[offload.Key]block{}}
	for _, keeps := range o.Layers {
		if keeps {
			s.use.Layers++
		}
	}
	return s
}

// Shape implements offload.Store.
func (s *Store) Shape() offload.Shape { return s.o.Shape }

// Keeps reports whether a layer's blocks lie below as rows.
func (s *Store) Keeps(layer int) bool { return s.o.Layers[layer] }

// Lend lets rows that wait take more memory, which somebody else has charged; negative takes it back.
func (s *Store) Lend(bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lent += bytes
}

// Keep takes rows x [len(pos), Hidden] of a layer, whose keys and values were just stored in the cache under the number seq. lengths are
// model.Pass.Len, wants says which blocks will be written; others are not kept.
func (s *Store) Keep(seq uint64, layer int, phase kernels.Phase, x []float32, pos, lengths []int32, wants func(group int) bool) {
	if !s.o.Layers[layer] {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t, d := int32(s.o.Shape.GroupTokens), s.o.Hidden
	for i := 0; i < len(pos); {
		key, n := offload.Key{Seq: seq, Layer: int32(layer), Group: pos[i] / t}, 1
		for i+n < len(pos) && pos[i+n]/t == key.Group {
			n++
		}
		if wants(int(key.Group)) {
			s.keep(key, phase, x[i*d:(i+n)*d], pos[i], lengths[i])
		} else {
			s.forget(key)
		}
		i += n
	}
}

// keep takes rows of one block; s.mu is held.
func (s *Store) keep(key offload.Key, phase kernels.Phase, rows []float32, from, length int32) {
	t, d := s.o.Shape.GroupTokens, s.o.Hidden
	at := int(from) % t
	if at == 0 {
		s.forget(key)
		bytes := int64(4 * t * d)
		if s.waits+bytes > s.o.ReserveBytes+s.lent { // invariant 2
			return
		}
		s.staged[key] = &staged{block: block{phase, from, length}, rows: make([]float32, 0, t*d)}
		s.waits += bytes
	}
	b := s.staged[key]
	if b == nil { // its first rows were forgotten, or written
		return
	}
	if at*d > len(b.rows) || b.phase != phase {
		s.forget(key)
		return
	}
	b.rows = append(b.rows[:at*d], rows...)
}

// forget drops rows that wait; s.mu is held.
func (s *Store) forget(key offload.Key) {
	if s.staged[key] != nil {
		delete(s.staged, key)
		s.waits -= int64(4 * s.o.Shape.GroupTokens * s.o.Hidden)
	}
}

// complete are the rows of a block about to be written; nil = there are none.
func (s *Store) complete(key offload.Key) *staged {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.staged[key]
	if b == nil || len(b.rows) != s.o.Shape.GroupTokens*s.o.Hidden {
		return nil
	}
	return b
}

// Write implements offload.Store: a block goes down as its rows where these give its bytes again (invariant 1).
func (s *Store) Write(ctx context.Context, recs []offload.Record) error {
	layers := int32(len(s.o.Shape.Layers))
	out := slices.Clone(recs)
	rows := make([]*staged, len(recs))
	size := 4 * s.o.Shape.GroupTokens * s.o.Hidden
	arena := s.arena(len(recs) * size)
	defer s.giveBack(arena)
	var again []byte
	for i, r := range recs {
		layer := int(r.Key.Layer)
		b := s.complete(r.Key)
		if b == nil {
			continue
		}
		again = slices.Grow(again[:0], len(r.Data))[:len(r.Data)]
		if err := s.project.blocks(layer, []block{b.block}, b.rows, [][]byte{again}); err != nil {
			return err
		}
		s.count(func(u *Use) { u.CheckedRows += int64(s.o.Shape.GroupTokens) })
		if !slices.Equal(again, r.Data) {
			continue
		}
		data := arena[i*size : (i+1)*size : (i+1)*size]
		for j, f := range b.rows {
			binary.LittleEndian.PutUint32(data[4*j:], math.Float32bits(f))
		}
		rows[i], out[i].Data = b, data
		out[i].Key.Layer += layers
	}
	if err := s.Store.Write(ctx, out); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, r := range recs {
		if !s.o.Layers[r.Key.Layer] {
			continue
		}
		s.forget(r.Key)
		if rows[i] == nil {
			delete(s.kept, r.Key)
			s.use.KVBlocks++
			continue
		}
		s.kept[r.Key] = rows[i].block
		s.use.RowBlocks++
	}
	return nil
}

func (s *Store) count(f func(u *Use)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.use)
}

// Read implements offload.Store: blocks that lie below as rows are projected again, those that follow each other at once.
func (s *Store) Read(ctx context.Context, recs []offload.Record) error {
	layers, size := int32(len(s.o.Shape.Layers)), 4*s.o.Shape.GroupTokens*s.o.Hidden
	out, of := slices.Clone(recs), make([]*block, len(recs))
	s.mu.Lock()
	n := 0
	for i, r := range recs {
		if b, ok := s.kept[r.Key]; ok {
			of[i] = &b
			n++
		}
	}
	s.mu.Unlock()
	arena := s.arena(n * size)
	defer s.giveBack(arena)
	at := 0
	for i := range out {
		if of[i] != nil {
			out[i].Data, out[i].Part = arena[at:at+size:at+size], offload.Part{}
			out[i].Key.Layer += layers
			at += size
		}
	}
	if err := s.Store.Read(ctx, out); err != nil {
		return err
	}
	for i := 0; i < len(recs); {
		j := i + 1
		if of[i] == nil {
			i = j
			continue
		}
		for j < len(recs) && of[j] != nil && recs[j].Key.Layer == recs[i].Key.Layer && of[j].phase == of[i].phase {
			j++
		}
		if err := s.again(recs[i:j], of[i:j], out[i:j]); err != nil {
			return err
		}
		i = j
	}
	return nil
}

// again projects rows that were read to the records that want them.
func (s *Store) again(recs []offload.Record, of []*block, read []offload.Record) error {
	layer, d := int(recs[0].Key.Layer), s.o.Shape.GroupTokens*s.o.Hidden
	x, blocks, dst := make([]float32, len(recs)*d), make([]block, len(recs)), make([][]byte, len(recs))
	for i, r := range recs {
		for j := range d {
			x[i*d+j] = math.Float32frombits(binary.LittleEndian.Uint32(read[i].Data[4*j:]))
		}
		blocks[i], dst[i] = *of[i], r.Data
		if r.Part.N > 0 {
			dst[i] = make([]byte, s.o.Shape.RecordBytes(layer))
		}
	}
	if err := s.project.blocks(layer, blocks, x, dst); err != nil {
		return err
	}
	for i, r := range recs {
		if r.Part.N > 0 {
			copy(r.Data, dst[i][int(r.Part.First)*s.o.Shape.HeadBytes(layer):])
		}
	}
	s.count(func(u *Use) { u.ProjectedRows += int64(len(recs) * s.o.Shape.GroupTokens) })
	return nil
}

// Drop implements offload.Store.
func (s *Store) Drop(seq uint64) error {
	s.mu.Lock()
	for key := range s.staged {
		if key.Seq == seq {
			s.forget(key)
		}
	}
	for key := range s.kept {
		if key.Seq == seq {
			delete(s.kept, key)
		}
	}
	s.mu.Unlock()
	return s.Store.Drop(seq)
}

// Stats implements offload.Store.
func (s *Store) Stats() offload.Stats {
	st := s.Store.Stats()
	s.mu.Lock()
	defer s.mu.Unlock()
	st.HostBytes += max(s.o.ReserveBytes, s.waits) + s.memory + keptBytes*int64(len(s.kept))
	return st
}

// IndexBytes implements offload.Store.
func (s *Store) IndexBytes(groups int) int64 {
	return s.Store.IndexBytes(groups) + keptBytes*int64(groups*s.use.Layers)
}

// Trim implements offload.Store.
func (s *Store) Trim() {
	s.mu.Lock()
	for _, a := range s.arenas {
		s.memory -= int64(len(a))
		offload.FreeAligned(a)
	}
	s.arenas = nil
	s.mu.Unlock()
	s.Store.Trim()
}

// Close implements offload.Store.
func (s *Store) Close() error {
	err := s.Store.Close()
	s.Trim()
	return err
}

// Use reports what was done so far.
func (s *Store) Use() Use {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.use
	u.WaitingBytes = s.waits
	return u
}

// arena is aligned memory of n bytes or more for one transfer; nil for none.
func (s *Store) arena(n int) []byte {
	if n == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, a := range s.arenas {
		if len(a) >= n {
			s.arenas = slices.Delete(s.arenas, i, i+1)
			return a
		}
	}
	s.memory += int64(n)
	return offload.AlignedBytes(n)
}

// mostArenas is how many arenas are kept for later transfers.
const mostArenas = 4

func (s *Store) giveBack(a []byte) {
	if a == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.arenas) < mostArenas {
		s.arenas = append(s.arenas, a)
		return
	}
	s.memory -= int64(len(a))
	offload.FreeAligned(a)
}
