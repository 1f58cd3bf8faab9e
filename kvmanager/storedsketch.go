package kvmanager

import (
	"errors"
	"fmt"
	"sync"

	"terrace/offload"
)

// StoredSketches keeps what a selecting policy scans of one text's keys on the lower tier: the tiles of sketches that
// nothing will change any more. What is not full stays in memory. Each KV head of a layer has a stream of tiles, cut into
// pieces of a page's size; a record of the tier is one piece of every head, under a sequence number of its own, so that a
// layer's records lie one after another and are read in large operations.
//
// A step reads the layers in turn: while one is scored, the next two that the last step scored are on their way, each in a
// buffer of its own, so that the device always has a layer to read. Records are written when they are full, never again.
//
// It is used by one goroutine, but KV heads of a layer may be scored at the same time.
type StoredSketches struct {
	m       *Manager
	home    uint64
	layers  []storedLayer
	scratch []tileScratch // a KV head, of the layer that has most
	wrote   bool
	charged int64

	mu     sync.Mutex // of what follows
	bufs   [1 + layersAhead]streamBuffer
	last   int    // the buffer that was scored last
	scored int    // the layer in it
	turn   uint64 // of the buffers' layers
	err    error
}

// layersAhead is how many layers are read before their turn.
const layersAhead = 2

// storedLayer is one layer's streams.
type storedLayer struct {
	s       *StoredSketches
	layer   int
	heads   []TileStream
	page    int    // bytes of a piece of one head
	records int    // on the tier
	wanted  bool   // the last step scored it
	next    int    // the layer that was scored after it
	open    bool   // its records are in memory, for this step's scores
	data    []byte // they
}

// TileStream takes the full tiles of one layer and KV head's sketches.
type TileStream struct {
	of   *storedLayer
	head int
	tail []byte // what is not on the tier: the bytes from records·pageBytes on
}

// tileScratch is one KV head's, of whatever layer.
type tileScratch struct {
	tileBytes int // of the largest tile so far
	bytes     []byte
	tiles     [][]byte
}

// streamBuffer holds a layer's records, or those that were read or are being read of them.
type streamBuffer struct {
	arena   []byte
	layer   int // -1 = none
	turn    uint64
	records int
	t       *offload.Ticket // nil = nothing is under way
}

// NewStoredSketches returns an empty one; there must be a lower tier. Free gives it back.
func (m *Manager) NewStoredSketches() *StoredSketches {
	s := &StoredSketches{m: m, home: m.NewHome(), layers: make([]storedLayer, len(m.layers))}
	for i := range s.layers {
		heads := m.heads(i)
		s.layers[i] = storedLayer{s: s, layer: i, heads: make([]TileStream, heads), page: m.main(i).PageBytes(), wanted: heads > 0, next: (i + 1) % len(s.layers)}
		if heads > len(s.scratch) {
			s.scratch = make([]tileScratch, heads)
		}
		for g := range s.layers[i].heads {
			s.layers[i].heads[g] = TileStream{of: &s.layers[i], head: g}
		}
	}
	for i := range s.bufs {
		s.bufs[i].layer = -1
	}
	return s
}

// Stream is that of a layer and KV head.
func (s *StoredSketches) Stream(layer, kvHead int) *TileStream { return &s.layers[layer].heads[kvHead] }

// MostBytes is the host memory that it takes once every layer has as many tokens as the largest.
func (s *StoredSketches) MostBytes() int64 {
	if s == nil {
		return 0
	}
	n := s.fixedBytes()
	for i := range s.layers {
		for g := range s.layers[i].heads { // a tail is less than a page and two tiles, in memory of twice its size at most
			n += 2 * int64(s.layers[i].page+2*s.scratch[g].tileBytes)
		}
	}
	return n
}

// MostBytesOf is MostBytes once each KV head of every layer has handed over that many bytes of tiles, none larger than a tile.
func (s *StoredSketches) MostBytesOf(below int64, tile int) int64 {
	if s == nil {
		return 0
	}
	arena, tails := int64(0), int64(0)
	for i := range s.layers {
		l := &s.layers[i]
		if len(l.heads) == 0 {
			continue
		}
		records := below/int64(l.page) + 1
		arena = max(arena, (records+records/8+1)*int64(l.recordBytes()))
		tails += 2 * int64(len(l.heads)*(l.page+2*tile))
	}
	tiles := min(mostTiles, below/int64(max(tile, 1))+1) // that are read at a time
	scratch := tiles * int64(tile+2*24)
	return int64(len(s.bufs))*arena + int64(len(s.scratch))*scratch + tails
}

// mostTiles is how many tiles are read at a time (keyindex's storedTiles).
const mostTiles = 64

// Charged is what is counted against the budget now.
func (s *StoredSketches) Charged() int64 {
	if s == nil {
		return 0
	}
	return s.charged
}

// fixedBytes are the buffers and the scratch.
func (s *StoredSketches) fixedBytes() (n int64) {
	for i := range s.bufs {
		n += int64(len(s.bufs[i].arena))
	}
	for i := range s.scratch {
		n += int64(cap(s.scratch[i].bytes)) + 24*int64(cap(s.scratch[i].tiles))
	}
	return n
}

// count charges what is held now.
func (s *StoredSketches) count() error {
	n := s.fixedBytes()
	for i := range s.layers {
		for g := range s.layers[i].heads {
			n += int64(cap(s.layers[i].heads[g].tail))
		}
	}
	if more := n - s.charged; more > 0 {
		if err := s.m.Charge(more); err != nil {
			return fmt.Errorf("kvmanager: sketches on their way to and from the lower tier: %w", err)
		}
	} else {
		s.m.Refund(-more)
	}
	s.charged = n
	return nil
}

// Flush writes the records of a layer that are full; ErrBudget where its buffers do not fit.
func (s *StoredSketches) Flush(layer int) error {
	l := &s.layers[layer]
	n := l.full()
	if n == 0 {
		return nil
	}
	if err := s.write(l, n); err != nil {
		return err
	}
	for i := range s.bufs {
		if err := s.grow(&s.bufs[i], l, l.records); err != nil {
			return err
		}
	}
	return s.count()
}

// full is how many records every head has a piece for.
func (l *storedLayer) full() int {
	if len(l.heads) == 0 {
		return 0
	}
	n := len(l.heads[0].tail)
	for g := range l.heads {
		n = min(n, len(l.heads[g].tail))
	}
	return n / l.page
}

// write stores a layer's next n records, from the buffer that was read last, which is not needed any more, and waits for it:
// they are few, but for a prompt's, which are large.
func (s *StoredSketches) write(l *storedLayer, n int) error {
	b := &s.bufs[s.last]
	if err := s.grow(b, l, n); err != nil {
		return err
	}
	if err := s.await(b); err != nil {
		return fmt.Errorf("kvmanager: sketches read ahead: %w", err)
	}
	b.layer, b.records = -1, 0
	recs := make([]offload.Record, n)
	for i := range recs {
		recs[i] = s.record(l, l.records+i, b.record(l, i))
		for g := range l.heads {
			copy(recs[i].Data[g*l.page:], l.heads[g].tail[i*l.page:(i+1)*l.page])
		}
	}
	s.wrote, b.t = true, s.m.Backing().Write(offload.WriteBack, recs)
	if err := s.await(b); err != nil {
		return fmt.Errorf("kvmanager: sketches of layer %d: %w", l.layer, err)
	}
	l.records += n
	for g := range l.heads { // into less memory: after a prompt little is left
		l.heads[g].tail = append([]byte(nil), l.heads[g].tail[n*l.page:]...)
	}
	return nil
}

// recordBytes is the size of a layer's records.
func (l *storedLayer) recordBytes() int { return len(l.heads) * l.page }

// record is a buffer's memory of one record of a layer.
func (b *streamBuffer) record(l *storedLayer, i int) []byte {
	n := l.recordBytes()
	return b.arena[i*n : (i+1)*n : (i+1)*n]
}

func (s *StoredSketches) record(l *storedLayer, i int, data []byte) offload.Record {
	return offload.Record{Key: offload.Key{Seq: s.home, Layer: int32(l.layer), Group: int32(i)}, Data: data}
}

// Begin says that a layer is about to be scored: what of it is on the tier is read, if the last step scored it as well. Else
// the first score does so.
func (s *StoredSketches) Begin(layer int) {
	if s != nil && s.layers[layer].wanted {
		s.layers[layer].ready()
	}
}

// End says that a layer has been scored, or that nothing was asked; it returns what went wrong, in which case scores were
// zeros.
func (s *StoredSketches) End(layer int) error {
	if s == nil {
		return nil
	}
	l := &s.layers[layer]
	l.wanted, l.open, l.data = l.open, false, nil
	err := s.err
	s.err = nil
	if err != nil {
		return err
	}
	return s.count()
}

// Free gives everything back.
func (s *StoredSketches) Free() error {
	if s == nil {
		return nil
	}
	var err error
	for i := range s.bufs {
		err = errors.Join(err, s.await(&s.bufs[i]))
		if s.bufs[i].arena != nil {
			offload.FreeAligned(s.bufs[i].arena)
		}
		s.bufs[i] = streamBuffer{layer: -1}
	}
	s.m.Refund(s.charged)
	s.charged = 0
	if s.wrote {
		s.wrote = false
		err = errors.Join(err, s.m.Backing().Drop(s.home))
	}
	return err
}
