package offload

import "fmt"

// sequence is the index of one sequence's records: in memory, because the file does not outlive the process.
type sequence struct {
	id      uint64
	extents [][]int32 // [layer][group/groups], -1 where there is none
	layers  []layerIndex
	pins    int    // segments under way
	writes  uint32 // writes so far, for states
	dead    bool   // dropped: extents are freed when pins is 0
	placed  int64  // bytes of the places of its records
}

// layerIndex is the state and the checksums of one layer's records.
type layerIndex struct {
	state []uint32 // [group] 0: none; write<<1: being written by that write; write<<1|1: there
	sums  []uint32 // [group][head], or [group][token] of rows: CRC-32C
}

func (s *SSD) newSequence(id uint64) *sequence {
	q := &sequence{id: id, extents: make([][]int32, len(s.shape.Layers)), layers: make([]layerIndex, len(s.shape.Layers))}
	s.seqs[id] = q
	return q
}

func (q *sequence) indexBytes() (n int64) {
	for i := range q.extents {
		n += int64(cap(q.extents[i])) * 4
	}
	for i := range q.layers {
		n += int64(cap(q.layers[i].state)+cap(q.layers[i].sums)) * 4
	}
	return n
}

// grown returns s with n numbers or more, the new ones as given. Room is made for roomFor(n), so that IndexBytes can say what an
// index takes before it is there.
func grown[T int32 | uint32](s []T, n int, fill T) []T {
	if n > cap(s) {
		s = append(make([]T, 0, roomFor(n)), s...)
	}
	for len(s) < n {
		s = append(s, fill)
	}
	return s
}

func roomFor(n int) int { return n + n/8 + 16 }

// extent is where a group's extent is, or -1.
func (q *sequence) extent(layer, index int) int32 {
	if index < len(q.extents[layer]) {
		return q.extents[layer][index]
	}
	return -1
}

func (q *sequence) state(k Key) uint32 {
	if st := q.layers[k.Layer].state; int(k.Group) < len(st) {
		return st[k.Group]
	}
	return 0
}

// allot finds places for what is to be written, all or nothing. s.mu is held.
func (s *SSD) allot(recs []Record) error {
	type slot struct {
		seq          uint64
		layer, index int
	}
	missing := map[slot]bool{}
	for i := range recs {
		k := recs[i].Key
		at := slot{k.Seq, int(k.Layer), s.place.index(k)}
		if q := s.seqs[k.Seq]; q == nil || q.extent(at.layer, at.index) < 0 {
			missing[at] = true
		}
	}
	if len(missing) > len(s.free) {
		return fmt.Errorf("offload: ssd %s: %d bytes more, %d of %d in use: %w", s.opt.Dir, int64(len(missing))*s.place.extentBytes,
			int64(s.place.extents-len(s.free))*s.place.extentBytes, s.opt.CapacityBytes, ErrFull)
	}
	for i := range recs { // in the order of the records, so that neighbours in time are neighbours on the device
		k := recs[i].Key
		at := slot{k.Seq, int(k.Layer), s.place.index(k)}
		if !missing[at] {
			continue
		}
		delete(missing, at)
		q := s.seqs[k.Seq]
		if q == nil {
			q = s.newSequence(k.Seq)
		}
		q.extents[at.layer] = grown(q.extents[at.layer], at.index+1, -1)
		q.extents[at.layer][at.index] = s.free[len(s.free)-1]
		s.free = s.free[:len(s.free)-1]
	}
	return nil
}

// begin marks a record as being written and returns the mark; it is not there until publish. s.mu is held.
func (s *SSD) begin(q *sequence, k Key) uint32 {
	l := &q.layers[k.Layer]
	l.state = grown(l.state, int(k.Group)+1, 0)
	if l.state[k.Group] == 0 {
		size := int64(s.place.layers[k.Layer].strideBytes)
		q.placed += size
		s.stats.UsedBytes += size
		s.stats.PeakBytes = max(s.stats.PeakBytes, s.stats.UsedBytes)
	}
	q.writes++
	l.state[k.Group] = q.writes << 1
	return q.writes << 1
}

// publish makes a written record readable, or forgets it where the write failed; unless another write or a drop came since
// (invariant 1). s.mu is held.
func (s *SSD) publish(q *sequence, k Key, mark uint32, sums []uint32, failed bool) {
	if q.dead || q.state(k) != mark {
		return
	}
	l := &q.layers[k.Layer]
	if failed {
		s.forget(q, l, k)
		return
	}
	per := s.sumsPer(int(k.Layer))
	l.sums = grown(l.sums, (int(k.Group)+1)*per, 0)
	copy(l.sums[int(k.Group)*per:], sums)
	l.state[k.Group] = mark | 1
}

func (s *SSD) forget(q *sequence, l *layerIndex, k Key) {
	if l.state[k.Group] != 0 {
		l.state[k.Group] = 0
		size := int64(s.place.layers[k.Layer].strideBytes)
		q.placed -= size
		s.stats.UsedBytes -= size
	}
}

// unpin counts a segment as ended and gives back what waited for that. s.mu is held.
func (s *SSD) unpin(q *sequence) {
	q.pins--
	s.pins--
	if q.pins == 0 && q.dead {
		s.release(q)
	}
	if s.pins == 0 {
		s.idle.Broadcast()
	}
}

// release frees a dropped sequence's extents; nothing of it is under way. s.mu is held.
func (s *SSD) release(q *sequence) {
	for _, extents := range q.extents {
		for _, extent := range extents {
			if extent >= 0 {
				s.free = append(s.free, extent)
			}
		}
	}
	q.extents = nil
}

// Units implements Cache: a unit is an extent.
func (s *SSD) Units() int { return s.place.extents }

// UnitGroups implements Cache.
func (s *SSD) UnitGroups(layer int) int { return s.place.layers[layer].groups }

// Forget implements Cache.
func (s *SSD) Forget(k Key) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("offload: ssd %s: %w", s.opt.Dir, ErrClosed)
	}
	q, layer := s.seqs[k.Seq], int(k.Layer)
	if q == nil || q.extent(layer, s.place.index(k)) < 0 {
		return nil
	}
	first := s.place.index(k) * s.UnitGroups(layer)
	for g := first; g < min(first+s.UnitGroups(layer), len(q.layers[layer].state)); g++ {
		s.forget(q, &q.layers[layer], Key{k.Seq, k.Layer, int32(g)})
	}
	s.free = append(s.free, q.extents[layer][s.place.index(k)])
	q.extents[layer][s.place.index(k)] = -1
	return nil
}

// Drop forgets a sequence. What is under way ends first; its bytes are ignored.
func (s *SSD) Drop(seq uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("offload: ssd %s: %w", s.opt.Dir, ErrClosed)
	}
	q := s.seqs[seq]
	if q == nil {
		return nil
	}
	s.stats.UsedBytes -= q.placed
	q.dead, q.placed, q.layers = true, 0, nil
	delete(s.seqs, seq)
	if q.pins == 0 {
		s.release(q)
	}
	return nil
}
