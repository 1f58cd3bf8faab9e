package kvmanager

import (
	"errors"
	"fmt"

	"terrace/offload"
)

// ready makes a layer's records readable and sets the next layers' going; false after an error, which End returns.
func (l *storedLayer) ready() bool {
	s := l.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil && !l.open {
		s.err = s.fetch(l)
	}
	return s.err == nil
}

// fetch brings a layer's records into a buffer, and begins to read those of the next layers into the others. s.mu is held.
func (s *StoredSketches) fetch(l *storedLayer) error {
	i := s.bufferFor(l)
	b := &s.bufs[i]
	if err := s.ask(b, l); err != nil {
		return err
	}
	if err := s.await(b); err != nil {
		return fmt.Errorf("kvmanager: sketches of layer %d: %w", l.layer, err)
	}
	s.last, l.open, l.data = i, true, b.arena
	s.layers[s.scored].next, s.scored = l.layer, l.layer
	next := l
	for range layersAhead {
		if next = s.after(next); next.layer == l.layer {
			break
		}
		if err := s.ask(&s.bufs[s.bufferFor(next)], next); err != nil {
			return err
		}
	}
	return nil
}

// bufferFor is the buffer that has a layer's records, else the one whose layer was asked for longest ago.
func (s *StoredSketches) bufferFor(l *storedLayer) int {
	oldest := 1 - min(s.last, 1)
	for i := range s.bufs {
		if s.bufs[i].layer == l.layer {
			return i
		}
		if i != s.last && s.bufs[i].turn < s.bufs[oldest].turn {
			oldest = i
		}
	}
	return oldest
}

// after is the layer that was scored after this one in the last step (the order is not that of the layers where some are
// chosen ahead); the same one where there is no other.
func (s *StoredSketches) after(l *storedLayer) *storedLayer {
	if next := &s.layers[l.next]; next.records > 0 {
		return next
	}
	return l
}

// ask begins to read what a buffer lacks of a layer's records.
func (s *StoredSketches) ask(b *streamBuffer, l *storedLayer) error {
	if b.layer != l.layer {
		if err := s.await(b); err != nil {
			return fmt.Errorf("kvmanager: sketches read ahead: %w", err)
		}
		s.turn++
		b.layer, b.records, b.turn = l.layer, 0, s.turn
	}
	if b.records == l.records {
		return nil
	}
	if err := s.await(b); err != nil { // it was asked before the last records were written
		return fmt.Errorf("kvmanager: sketches of layer %d: %w", l.layer, err)
	}
	if err := s.grow(b, l, l.records); err != nil {
		return err
	}
	b.layer = l.layer
	recs := make([]offload.Record, 0, l.records-b.records)
	for i := b.records; i < l.records; i++ {
		recs = append(recs, s.record(l, i, b.record(l, i)))
	}
	b.records, b.t = l.records, s.m.Backing().Read(offload.Prefetch, recs)
	return nil
}

// await waits for what a buffer is waiting for; after an error nothing is in it.
func (s *StoredSketches) await(b *streamBuffer) error {
	if b.t == nil {
		return nil
	}
	err := s.m.Await(b.t, b.records)
	b.t = nil
	if err != nil {
		if errors.Is(err, ErrStalled) { // the tier may still write there: the memory is lost rather than reused
			b.arena = nil
		}
		b.layer, b.records = -1, 0
	}
	return err
}

// grow makes a buffer hold that many records of a layer, and some more.
func (s *StoredSketches) grow(b *streamBuffer, l *storedLayer, records int) error {
	if len(b.arena) >= records*l.recordBytes() {
		return nil
	}
	if err := s.await(b); err != nil {
		return fmt.Errorf("kvmanager: sketches read ahead: %w", err)
	}
	size := (records + records/8 + 1) * l.recordBytes()
	more := int64(size - len(b.arena))
	if err := s.m.Charge(more); err != nil {
		return fmt.Errorf("kvmanager: a layer's sketches from the lower tier: %w", err)
	}
	s.charged += more
	arena := offload.AlignedBytes(size)
	if b.arena != nil {
		copy(arena, b.arena[:s.held(b)])
		offload.FreeAligned(b.arena)
	}
	b.arena = arena
	return nil
}

// held is the bytes of the records that are in a buffer.
func (s *StoredSketches) held(b *streamBuffer) int {
	if b.layer < 0 {
		return 0
	}
	return b.records * s.layers[b.layer].recordBytes()
}

// Append implements keyindex.Stream: it takes a tile and returns where it begins.
func (t *TileStream) Append(tile []byte) int32 {
	at := t.of.records*t.of.page + len(t.tail)
	t.tail = append(t.tail, tile...)
	x := &t.of.s.scratch[t.head]
	x.tileBytes = max(x.tileBytes, len(tile))
	return int32(at)
}

// Ready implements keyindex.Stream.
func (t *TileStream) Ready() bool { return t.of.ready() }

// Tiles implements keyindex.Stream: it reads tiles that Append took, n bytes each, as tiles of size bytes, zeros behind; they hold until the head's next
// call.
func (t *TileStream) Tiles(at []int32, n, size int) [][]byte {
	x := &t.of.s.scratch[t.head]
	if need := len(at) * size; cap(x.bytes) < need {
		x.bytes = make([]byte, need)
	}
	x.tiles = x.tiles[:0]
	for i, from := range at {
		b := t.piece(int(from), n)
		if n < size || len(b) < n { // rows of zeros are not stored, and a tile may lie in two records
			whole := x.bytes[i*size : (i+1)*size : (i+1)*size]
			for have := 0; ; {
				if have += copy(whole[have:], b); have == n {
					break
				}
				b = t.piece(int(from)+have, n-have)
			}
			clear(whole[n:])
			b = whole
		}
		x.tiles = append(x.tiles, b)
	}
	return x.tiles
}

// piece is at most n bytes from one on, as far as they lie together.
func (t *TileStream) piece(at, n int) []byte {
	l, size := t.of, t.of.page
	if page := at / size; page < l.records {
		n = min(n, size-at%size)
		at = page*l.recordBytes() + t.head*size + at%size
		return l.data[at : at+n : at+n]
	}
	at -= l.records * size
	return t.tail[at : at+n : at+n]
}
