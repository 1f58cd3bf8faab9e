package flash

import (
	"fmt"
	"slices"

	"terrace/internal/vfs"
)

// collect frees erase blocks: those without live pages, else the one with the fewest, whose live pages are copied to
// another block first. freed is false where nothing could be gained.
func (s *Store) collect() (freed bool, err error) {
	s.commitMu.Lock()
	defer s.commitMu.Unlock()
	s.io.Lock()
	defer s.io.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.writable(); err != nil {
		return false, err
	}
	if len(s.blocks.dead) > 0 {
		return true, s.erase()
	}
	id, ok := s.blocks.victim()
	if !ok {
		return false, nil
	}
	if err := s.evacuate(id); err != nil {
		return false, err
	}
	return true, s.erase()
}

// eraseDead erases blocks without live pages.
func (s *Store) eraseDead() error {
	s.commitMu.Lock()
	defer s.commitMu.Unlock()
	s.io.Lock()
	defer s.io.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.blocks.dead) == 0 {
		return nil
	}
	return s.erase()
}

// erase empties the dead blocks and gives their space back to the file system; all locks are held. The journal has the wear and
// the life totals then, not synced: a loss of power may forget the last.
func (s *Store) erase() error {
	ids := make([]uint32, 0, len(s.blocks.dead))
	for id := range s.blocks.dead {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		delete(s.blocks.dead, id)
		size := int64(s.geo.BlockPages) * int64(s.geo.PageBytes)
		_ = s.image.PunchHole(int64(id)*size, size) // only space is lost where the file system cannot
		s.blocks.all[id].erases++
		s.counts.BlocksErased++
		s.housekeeping.Erased = append(s.housekeeping.Erased, id)
		s.blocks.release(id)
	}
	if s.failed != nil {
		return nil
	}
	return s.journal.append(appendLife(appendErased(nil, ids), &s.life), false)
}

// evacuate moves the live pages of a block elsewhere; all locks are held.
func (s *Store) evacuate(id uint32) error {
	moved := map[*entry]*entry{}
	var fresh []*entry
	var order []*entry
	k := &s.blocks.all[id]
	for at, e := range k.owners {
		if e == nil {
			continue
		}
		n, ok := s.blocks.next(shared, int(id)%s.geo.Channels, true)
		if !ok {
			s.undo(fresh, order)
			return fmt.Errorf("csdshim: flash: no page to collect garbage with: %w", ErrFull)
		}
		next := moved[e]
		if next == nil {
			next = &entry{key: e.key, version: e.version, length: e.length, pages: slices.Clone(e.pages)}
			moved[e] = next
			fresh, order = append(fresh, next), append(order, e)
		}
		old := id*uint32(s.geo.BlockPages) + uint32(at)
		i := slices.IndexFunc(next.pages, func(p page) bool { return p.number == old })
		next.pages[i].number = n
		if err := s.copyPage(old, n); err != nil {
			s.undo(fresh, order)
			return err
		}
	}
	var records []byte
	for _, e := range fresh {
		records = appendGroup(records, e)
	}
	if len(records) > 0 {
		if err := s.syncMove(records); err != nil {
			return err
		}
	}
	for i, e := range fresh {
		s.adoptMove(order[i], e)
	}
	return nil
}

// copyPage moves a page's bytes as they are: its checksum goes with it, so that damage is found by whoever reads it.
func (s *Store) copyPage(from, to uint32) error {
	buf := [][]byte{make([]byte, s.geo.PageBytes)}
	if err := vfs.ReadFull(s.image, buf, int64(from)*int64(s.geo.PageBytes)); err != nil {
		return fmt.Errorf("csdshim: flash: collecting: %w", err)
	}
	if err := vfs.WriteFull(s.image, buf, int64(to)*int64(s.geo.PageBytes)); err != nil {
		return fmt.Errorf("csdshim: flash: collecting: %w", err)
	}
	s.counts.PagesMoved++
	s.life.moved++
	s.housekeeping.Moved = append(s.housekeeping.Moved, Move{from, to})
	return nil
}

// syncMove makes moved pages and the records that name them durable.
func (s *Store) syncMove(records []byte) (err error) {
	if !s.opts.NoSync {
		err = s.image.Sync()
	}
	if err == nil {
		err = s.journal.append(records, !s.opts.NoSync)
	}
	if err != nil && s.failed == nil {
		s.failed = fmt.Errorf("csdshim: flash: a write failed before (%v): restart the drive: %w", err, ErrFailed)
	}
	return err
}

// adoptMove puts the moved group in the old one's place: pages that moved change their block, the others their owner.
func (s *Store) adoptMove(old, moved *entry) {
	for i, p := range moved.pages {
		if was := old.pages[i].number; was != p.number {
			s.blocks.adopt(p.number, moved, true)
			s.blocks.invalidate(was)
			continue
		}
		b, at := s.blocks.of(p.number)
		b.owners[at] = moved
	}
	s.index.put(s.index.byID[moved.key.Seq], moved)
}

// undo gives the new pages of a move that failed back.
func (s *Store) undo(fresh, order []*entry) {
	for i, e := range fresh {
		for j, p := range e.pages {
			if p.number != order[i].pages[j].number {
				s.blocks.abandon(p.number)
			}
		}
	}
}

// Damage flips a bit of a page, for tests of what readers do then.
func (s *Store) Damage(page uint32, bit int) error {
	s.io.Lock()
	defer s.io.Unlock()
	var b [1]byte
	at := int64(page)*int64(s.geo.PageBytes) + int64(bit/8)
	if _, err := s.image.ReadAt(b[:], at); err != nil {
		return fmt.Errorf("csdshim: flash: %w", err)
	}
	b[0] ^= 1 << (bit % 8)
	_, err := s.image.WriteAt(b[:], at)
	return err
}

// compactBytes is the size from which on a journal is compacted.
const compactBytes = 4 << 20

// compact replaces the journal by a snapshot of the index when it is larger than above and has grown to a multiple of the
// snapshot; with 0, always. commitMu is held, or
// nobody else is there yet.
func (s *Store) compact(running bool, above int64) error {
	s.mu.Lock()
	live := 64 * int64(len(s.index.byID)+s.index.groups)
	due := s.journal.end > above && (above == 0 || s.journal.end > 4*(live+8*s.used))
	if !due {
		s.mu.Unlock()
		return nil
	}
	snapshot := s.snapshot()
	s.mu.Unlock()
	err := s.journal.replace(s.opts.FS, snapshot)
	if err != nil && running {
		return s.fail(err)
	}
	return err
}

// snapshotFrame is about the size of a snapshot's frames.
const snapshotFrame = 16 << 20

// snapshot is the index as records, in frames; mu is held.
func (s *Store) snapshot() (frames [][]byte) {
	b := appendCounters(nil, s.index)
	cut := func() {
		if len(b) > snapshotFrame {
			frames, b = append(frames, b), nil
		}
	}
	for _, st := range s.index.byID {
		b = appendSequence(b, &st.Sequence)
		if st.kv != nil {
			b = appendShape(b, st.ID, st.kv.shape)
		}
		for t := range st.tables {
			for i := range st.tables[t] {
				for _, e := range st.tables[t][i].All(0) {
					if e != nil {
						b = appendGroup(b, e)
						cut()
					}
				}
			}
		}
		if st.kv != nil {
			for i := range st.kv.layers {
				b = st.kv.appendBuffer(b, st.ID, i)
				cut()
			}
		}
	}
	b = appendWear(b, s.blocks)
	return append(frames, appendLife(b, &s.life))
}
