package contexts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"terrace/internal/vfs"
)

const (
	lockWait = 10 * time.Second
	lockPoll = 3 * time.Millisecond
	// segments hold a sixteenth of the capacity, at most so much, and at least one slot.
	segmentMost = 1 << 30
	// what the folder's small files take.
	smallFiles = 64 << 10
)

// turn takes the folder's turn to write, looks at what others wrote, and does fn with the state locked; then io without.
func (s *ssd) turn(ctx context.Context, fn func() error, io func() error) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	l, err := s.lock(ctx)
	if err != nil {
		return err
	}
	err = s.change(fn)
	if err == nil && io != nil {
		err = io()
	}
	return errors.Join(err, l.Close())
}

func (s *ssd) change(fn func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.readGeneration() != s.generation {
		if err := s.scan(); err != nil {
			return err
		}
	}
	return fn()
}

// lock waits for the folder's lock.
func (s *ssd) lock(ctx context.Context) (io.Closer, error) {
	if s.readOnly != nil {
		return nil, fmt.Errorf("contexts: %s: %w: %w", s.dir, ErrReadOnly, s.readOnly)
	}
	deadline := time.Now().Add(s.wait)
	for {
		l, err := s.fs.Lock(filepath.Join(s.dir, lockName))
		if err == nil {
			return l, nil
		}
		if !errors.Is(err, vfs.ErrLocked) || time.Now().After(deadline) {
			return nil, fmt.Errorf("contexts: %w", err)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(lockPoll):
		}
	}
}

// plan is the slots that a batch goes to.
type plan struct {
	s       *ssd
	stamp   uint64 // the batch's time: what is as new is not given away (guarantee 4)
	records []*Record
	places  []place
	blank   []place // of them, those whose commit page has another record
	kept    map[Key]bool
	gone    []leaving // records that give way
}

func (s *ssd) write(ctx context.Context, batch []*Record) error {
	p := &plan{s: s, kept: map[Key]bool{}}
	var full error
	err := s.turn(ctx, func() error {
		if err := s.shrink(); err != nil {
			return err
		}
		p.stamp = uint64(time.Now().UnixNano())
		full = p.assign(batch)
		return nil
	}, func() error { return p.store() })
	return errors.Join(err, full)
}

// assign finds a slot for each record that is not there; ErrFull after the last one that has one.
func (p *plan) assign(batch []*Record) error {
	for _, r := range batch {
		p.kept[r.Key], p.kept[r.Parent] = true, true
	}
	for _, r := range batch {
		if at, ok := p.s.index[r.Key]; ok {
			p.s.writeWord(at.recencyOff(), p.stamp)
			continue
		}
		at, err := p.slot(r.Slot)
		if err != nil {
			return err
		}
		if st := at.state(); st.present {
			if !st.broken {
				p.gone = append(p.gone, leaving{at, st.entry})
			}
			delete(p.s.index, st.entry.Key)
			p.blank = append(p.blank, at)
		}
		*at.state() = slotState{entry: Entry{Meta: r.Meta, Bytes: r.Bytes()}, present: true, broken: true} // until it is there
		p.records, p.places = append(p.records, r), append(p.places, at)
	}
	return nil
}

// slot finds a free slot of a size, or makes one.
func (p *plan) slot(size int64) (place, error) {
	s := p.s
	size = int64(roundUp(int(size)))
	oldest, found := victim{}, false
	for _, g := range s.segs {
		if g.slot != size {
			continue
		}
		for i := range g.have {
			at := place{g, i}
			if st := at.state(); (!st.present || st.broken) && !slices.Contains(p.places, at) {
				return at, nil
			} else if v := (victim{at, s.readWord(at.recencyOff()), st.entry.First}); p.yields(at) && (!found || v.before(oldest)) {
				oldest, found = v, true
			}
		}
	}
	if g, err := s.grow(size); g != nil || err != nil && !errors.Is(err, ErrFull) {
		return place{g, 0}, err
	}
	for { // another kind's segment, where it is older than the oldest slot of this kind
		g, used := p.oldestSegment(size)
		if g == nil || found && oldest.used < used {
			break
		}
		if err := s.delete(g); err != nil {
			return place{}, err
		}
		if g, err := s.grow(size); g != nil || err != nil && !errors.Is(err, ErrFull) {
			return place{g, 0}, err
		}
	}
	if !found {
		return place{}, fmt.Errorf("contexts: %s: %w", s.dir, ErrFull)
	}
	return oldest.place, nil
}

// victim is a record that may give way.
type victim struct {
	place
	used  uint64
	first int
}

// before orders by time of use; of one chain the end comes first.
func (v victim) before(o victim) bool {
	return cmp.Or(cmp.Compare(v.used, o.used), -cmp.Compare(v.first, o.first), cmp.Compare(v.seg.n, o.seg.n), cmp.Compare(v.slot, o.slot)) < 0
}

// yields reports whether a record may give way to the batch's.
func (p *plan) yields(at place) bool {
	st := at.state()
	return !p.s.fixed && !st.unread && !slices.Contains(p.places, at) && !p.kept[st.entry.Key] && p.s.readWord(at.recencyOff()) < p.stamp
}

// oldestSegment is the segment of other slots whose newest record is the oldest.
func (p *plan) oldestSegment(size int64) (oldest *segment, used uint64) {
	for _, g := range p.s.segs {
		if g.slot == size {
			continue
		}
		newest, free := uint64(0), true
		for i := range g.taken {
			at := place{g, i}
			if st := at.state(); st.present && !st.broken {
				newest, free = max(newest, p.s.readWord(at.recencyOff())), free && p.yields(at)
			}
		}
		if free && (oldest == nil || newest < used) {
			oldest, used = g, newest
		}
	}
	return oldest, used
}

// total is what the folder's files take.
func (s *ssd) total() int64 {
	n := s.foreign + smallFiles
	for _, g := range s.segs {
		n += g.slot * int64(g.slots)
	}
	return n
}

// grow adds a segment of slots of a size, as far as the capacity has room; ErrFull otherwise.
func (s *ssd) grow(slot int64) (*segment, error) {
	room := s.cap - s.total()
	want := min(segmentMost, s.cap/16)
	slots := int(min(max(want/slot, 1), room/slot, maxSlots))
	if slots < 1 {
		return nil, ErrFull
	}
	n := 0
	for s.segs[n] != nil {
		n++
	}
	name := segmentName(n, slot, slots)
	tmp := filepath.Join(s.dir, name+".tmp")
	f, err := s.fs.OpenFile(tmp, vfs.OpenOptions{Create: true})
	if err != nil {
		return nil, fmt.Errorf("contexts: %w", err)
	}
	err = errors.Join(f.Truncate(0), f.Preallocate(slot*int64(slots)), f.Sync(), f.Close())
	if err == nil {
		err = s.fs.Rename(tmp, filepath.Join(s.dir, name))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("contexts: %w", err), s.fs.Remove(tmp))
	}
	if f, err = s.open(name, false); err != nil {
		return nil, fmt.Errorf("contexts: %w", err)
	}
	g := &segment{n: n, slots: slots, slot: slot, name: name, file: f, have: slots, taken: make([]slotState, slots)}
	s.segs[n] = g
	return g, nil
}

// delete takes a segment away with all it holds.
func (s *ssd) delete(g *segment) error {
	var gone []leaving
	for i, st := range g.taken {
		if st.present && !st.broken && !st.unread {
			gone = append(gone, leaving{place{g, i}, st.entry})
		}
	}
	s.handOver(gone)
	for i := range g.taken {
		if at, ok := s.index[g.taken[i].entry.Key]; ok && at.seg == g {
			delete(s.index, g.taken[i].entry.Key)
		}
	}
	s.forget(g.n)
	if err := s.fs.Remove(filepath.Join(s.dir, g.name)); err != nil {
		return fmt.Errorf("contexts: %w", err)
	}
	s.wrote()
	return nil
}

// shrink takes the oldest segments away where the folder holds more than its capacity now, and puts cut files right.
func (s *ssd) shrink() error {
	p := &plan{s: s, stamp: ^uint64(0)}
	for s.total() > s.cap {
		g, _ := p.oldestSegment(0)
		if g == nil {
			return fmt.Errorf("contexts: %s: other files take %d bytes of %d: %w", s.dir, s.total(), s.cap, ErrFull)
		}
		if err := s.delete(g); err != nil {
			return err
		}
	}
	for _, g := range s.segs {
		if g.have < g.slots {
			if err := g.file.Preallocate(g.slot * int64(g.slots)); err != nil {
				return err
			}
			g.have = g.slots
		}
	}
	return nil
}

// store writes the batch to its slots (guarantee 3).
func (p *plan) store() error {
	if len(p.records) == 0 {
		return nil
	}
	s, zero := p.s, alignedBytes(pageBytes)
	s.handOver(p.gone)
	for _, at := range p.blank {
		if err := vfs.WriteFull(at.seg.file, [][]byte{zero}, at.off()); err != nil {
			return fmt.Errorf("contexts: %w", err)
		}
	}
	if err := syncAll(p.blank); err != nil {
		return err
	}
	for i, at := range p.places {
		if err := vfs.WriteFull(at.seg.file, [][]byte{p.records[i].raw[pageBytes:]}, at.off()+pageBytes); err != nil {
			return fmt.Errorf("contexts: %w", err)
		}
	}
	if err := syncAll(p.places); err != nil {
		return err
	}
	for i, at := range p.places {
		if err := vfs.WriteFull(at.seg.file, [][]byte{p.records[i].raw[:pageBytes]}, at.off()); err != nil {
			return fmt.Errorf("contexts: %w", err)
		}
	}
	if err := syncAll(p.places); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, at := range p.places {
		at.state().broken = false
		s.index[p.records[i].Key] = at
		s.writeWord(at.recencyOff(), p.stamp)
	}
	s.wrote()
	return nil
}

// wrote counts the generation up: others look again.
func (s *ssd) wrote() {
	s.generation++
	s.writeWord(0, s.generation)
}

// syncAll makes what was written to slots survive a loss of power, file by file.
func syncAll(places []place) error {
	done := map[*segment]bool{}
	for _, at := range places {
		if !done[at.seg] {
			done[at.seg] = true
			if err := at.seg.file.Sync(); err != nil {
				return fmt.Errorf("contexts: %w", err)
			}
		}
	}
	return nil
}
