package offload

import "fmt"

// sequence is the index of one sequence's records: in memory, because the file does not outlive the process.
type sequence struct {
	id      uint64
	strips  [][]int32 // [strip][group/groups] extents, -1 where there is none
	layers  []layerIndex
	pins    int    // segments under way
	writes  uint32 // writes so far, for states
	dead    bool   // dropped: extents are freed when pins is 0
	untidy  bool   // groups were dropped while pinned
	records int    // placed
}

// layerIndex is the state and the checksums of one layer's records.
type layerIndex struct {
	state []uint32 // [group] 0: none; write<<1: being written by that write; write<<1|1: there
	sums  []uint32 // [group][head], or [group][token] of rows: CRC-32C
}

func (s *SSD) newSequence(id uint64) *sequence {
	q := &sequence{id: id, strips: make([][]int32, s.place.strips), layers: make([]layerIndex, s.shape.Layers)}
	s.seqs[id] = q
	return q
}

func (q *sequence) indexBytes() (n int64) {
	for i := range q.strips {
		n += int64(cap(q.strips[i])) * 4
	}
	for i := range q.layers {
		n += int64(cap(q.layers[i].state)+cap(q.layers[i].sums)) * 4
	}
	return n
}

// extent is where a group's extent is, or -1.
func (q *sequence) extent(strip, index int) int32 {
	if index < len(q.strips[strip]) {
		return q.strips[strip][index]
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
		strip, index int
	}
	missing := map[slot]bool{}
	for i := range recs {
		k := recs[i].Key
		at := slot{k.Seq, int(k.Layer) / s.place.strip, int(k.Group) / s.place.groups}
		if q := s.seqs[k.Seq]; q == nil || q.extent(at.strip, at.index) < 0 {
			missing[at] = true
		}
	}
	if len(missing) > len(s.free) {
		return fmt.Errorf("offload: ssd %s: %d bytes more, %d of %d in use: %w", s.opt.Dir, int64(len(missing))*s.place.extentBytes,
			int64(s.place.extents-len(s.free))*s.place.extentBytes, s.opt.CapacityBytes, ErrFull)
	}
	for i := range recs { // in the order of the records, so that neighbours in time are neighbours on the device
		k := recs[i].Key
		at := slot{k.Seq, int(k.Layer) / s.place.strip, int(k.Group) / s.place.groups}
		if !missing[at] {
			continue
		}
		delete(missing, at)
		q := s.seqs[k.Seq]
		if q == nil {
			q = s.newSequence(k.Seq)
		}
		for len(q.strips[at.strip]) <= at.index {
			q.strips[at.strip] = append(q.strips[at.strip], -1)
		}
		q.strips[at.strip][at.index] = s.free[len(s.free)-1]
		s.free = s.free[:len(s.free)-1]
	}
	return nil
}

// begin marks a record as being written and returns the mark; it is not there until publish. s.mu is held.
func (s *SSD) begin(q *sequence, k Key) uint32 {
	l := &q.layers[k.Layer]
	for len(l.state) <= int(k.Group) {
		l.state = append(l.state, 0)
	}
	if l.state[k.Group] == 0 {
		q.records++
		s.stats.UsedBytes += int64(s.place.strideBytes)
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
		s.forget(q, l, int(k.Group))
		return
	}
	per := s.sumsPer()
	for len(l.sums) < (int(k.Group)+1)*per {
		l.sums = append(l.sums, make([]uint32, per)...)
	}
	copy(l.sums[int(k.Group)*per:], sums)
	l.state[k.Group] = mark | 1
}

func (s *SSD) forget(q *sequence, l *layerIndex, group int) {
	if l.state[group] != 0 {
		l.state[group] = 0
		q.records--
		s.stats.UsedBytes -= int64(s.place.strideBytes)
	}
}

// unpin counts a segment as ended and gives back what waited for that. s.mu is held.
func (s *SSD) unpin(q *sequence) {
	q.pins--
	s.pins--
	if q.pins == 0 && (q.dead || q.untidy) {
		s.tidy(q)
	}
	if s.pins == 0 {
		s.idle.Broadcast()
	}
}

// tidy frees a sequence's extents in which nothing is left; nothing of it is under way. s.mu is held.
func (s *SSD) tidy(q *sequence) {
	q.untidy = false
	for strip := range q.strips {
		for index, extent := range q.strips[strip] {
			if extent >= 0 && (q.dead || !s.inUse(q, strip, index)) {
				s.free = append(s.free, extent)
				q.strips[strip][index] = -1
			}
		}
	}
}

func (s *SSD) inUse(q *sequence, strip, index int) bool {
	for layer := strip * s.place.strip; layer < min((strip+1)*s.place.strip, s.shape.Layers); layer++ {
		st := q.layers[layer].state
		for g := index * s.place.groups; g < min((index+1)*s.place.groups, len(st)); g++ {
			if st[g] != 0 {
				return true
			}
		}
	}
	return false
}

// DropFrom forgets a sequence's groups from the given one on. What is under way ends first; its bytes are ignored.
func (s *SSD) DropFrom(seq uint64, group int32) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("offload: ssd %s: %w", s.opt.Dir, ErrClosed)
	}
	q := s.seqs[seq]
	if q == nil {
		return nil
	}
	for i := range q.layers {
		l := &q.layers[i]
		for g := max(int(group), 0); g < len(l.state); g++ {
			s.forget(q, l, g)
		}
		l.state = l.state[:min(len(l.state), max(int(group), 0))]
	}
	if group <= 0 {
		q.dead = true
		delete(s.seqs, seq)
	}
	if q.pins == 0 {
		s.tidy(q)
	} else {
		q.untidy = true
	}
	return nil
}

// Drop forgets a sequence.
func (s *SSD) Drop(seq uint64) error { return s.DropFrom(seq, 0) }
