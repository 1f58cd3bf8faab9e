package flash

import (
	"fmt"
	"slices"

	"terrace/internal/vfs"
)

// Item is a group to write: its bytes are parts one after another, the caller's again when Put returns.
type Item struct {
	Key     Key
	Parts   [][]byte
	channel int // of its first page, in the tables of a KVShape
}

func (i Item) size() (n int) {
	for _, p := range i.Parts {
		n += len(p)
	}
	return n
}

// commit is one frame of the journal: the records and what to do when they are durable, in order.
type commit struct {
	records []byte
	sync    bool
	publish []func()
	done    chan struct{}
	err     error
}

// OpenSequence returns the owner's sequence of that number, made if it was not there; made says which.
func (s *Store) OpenSequence(owner [16]byte, number uint64, leaseMs uint32, meta []byte) (seq Sequence, made bool, err error) {
	s.mu.Lock()
	if st := s.index.byNumber[ownerNumber{owner, number}]; st != nil {
		s.mu.Unlock()
		return st.Sequence, false, nil
	}
	if err := s.writable(); err != nil {
		s.mu.Unlock()
		return seq, false, err
	}
	seq = Sequence{ID: s.index.nextID, Owner: owner, Number: number, LeaseMs: leaseMs, Meta: append([]byte(nil), meta...)}
	s.index.add(seq)
	s.mu.Unlock()
	err = s.commit(appendSequence(nil, &seq), false, func() {}) // the next group's sync makes it durable
	return seq, true, err
}

// Sequences lists what is stored.
func (s *Store) Sequences() (list []Sequence) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.index.byID {
		list = append(list, st.Sequence)
	}
	slices.SortFunc(list, func(a, b Sequence) int { return int(a.ID) - int(b.ID) })
	return list
}

// writable is why nothing can be written now; mu is held.
func (s *Store) writable() error {
	if s.closed {
		return fmt.Errorf("csdshim: flash: %s: %w", s.dir, ErrClosed)
	}
	return s.failed
}

// Put stores groups, all or none; a group that was there is replaced. pages are the flash pages that were programmed.
func (s *Store) Put(items []Item) (pages []uint32, err error) {
	return s.put(items, nil, func() {})
}

// put stores groups, and with them journal records; publish runs, with mu held, when all of it is visible.
func (s *Store) put(items []Item, more []byte, publish func()) (pages []uint32, err error) {
	entries, err := s.reserve(items)
	if err != nil {
		return nil, err
	}
	err = s.program(items, entries)
	if err == nil {
		records := make([]byte, 0, len(entries)*64)
		for _, e := range entries {
			records = appendGroup(records, e)
		}
		err = s.commit(append(records, more...), true, func() { s.publish(entries); publish() })
	}
	for _, e := range entries {
		for _, p := range e.pages {
			pages = append(pages, p.number)
		}
	}
	if err != nil {
		s.giveUp(entries)
		return nil, err
	}
	return pages, nil
}

// reserve finds pages for the groups.
func (s *Store) reserve(items []Item) ([]*entry, error) {
	need := int64(0)
	for _, it := range items {
		need += int64(s.geo.pagesOf(it.size()))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.writable(); err != nil {
		return nil, err
	}
	if s.used+need > s.geo.capacityPages() {
		return nil, fmt.Errorf("csdshim: flash: %d groups need %d bytes, %d of %d bytes are in use: %w", len(items), need*int64(s.geo.PageBytes), s.used*int64(s.geo.PageBytes), s.geo.CapacityBytes, ErrFull)
	}
	s.used += need
	s.peak = max(s.peak, s.used)
	entries := make([]*entry, 0, len(items))
	for _, it := range items {
		e := &entry{key: it.Key, length: uint32(it.size())}
		s.index.version++
		e.version = s.index.version
		entries = append(entries, e)
		for i := range s.geo.pagesOf(it.size()) {
			n, err := s.allocate(it, i)
			if err != nil {
				s.used -= need - int64(pageCount(entries))
				s.abandon(entries)
				return nil, err
			}
			e.pages = append(e.pages, page{number: n})
		}
	}
	return entries, nil
}

// Room is how many groups of a size the capacity holds.
func (s *Store) Room(sizeBytes int) int {
	return int(s.geo.capacityPages() / int64(max(1, s.geo.pagesOf(sizeBytes))))
}

func pageCount(entries []*entry) (n int) {
	for _, e := range entries {
		n += len(e.pages)
	}
	return n
}

// allocate finds a page for a group's i-th page, on the channel that striping gives it. It may let go of mu meanwhile.
func (s *Store) allocate(it Item, i int) (uint32, error) {
	channel := it.channel
	if it.Key.Table == Groups {
		channel = int(it.Key.Group) + int(it.Key.Layer)
	}
	for {
		if n, ok := s.blocks.next(it.Key.Seq, (channel+i)%s.geo.Channels, false); ok {
			return n, nil
		}
		s.mu.Unlock()
		freed, err := s.collect()
		s.mu.Lock()
		if err == nil && !freed {
			err = fmt.Errorf("csdshim: flash: no erase block can be freed, %d of %d bytes are in use: %w", s.used*int64(s.geo.PageBytes), s.geo.CapacityBytes, ErrFull)
		}
		if err != nil {
			return 0, err
		}
	}
}

// giveUp frees the pages of groups that were not published.
func (s *Store) giveUp(entries []*entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.abandon(entries)
}

func (s *Store) abandon(entries []*entry) {
	for _, e := range entries {
		for _, p := range e.pages {
			s.blocks.abandon(p.number)
		}
		s.used -= int64(len(e.pages))
	}
}

// piece is one page's bytes on their way.
type piece struct {
	number uint32
	data   []byte
}

// program writes the groups' pages and notes their checksums.
func (s *Store) program(items []Item, entries []*entry) error {
	var pieces []piece
	for i, e := range entries {
		rest := cutter{parts: items[i].Parts}
		for j := range e.pages {
			data := rest.next(s.geo.PageBytes)
			e.pages[j].sum = pageSum(e.key, e.version, j, data)
			pieces = append(pieces, piece{e.pages[j].number, data})
		}
	}
	if err := s.transfer(pieces, vfs.WriteFull); err != nil {
		return fmt.Errorf("csdshim: flash: writing %d pages: %w", len(pieces), err)
	}
	s.mu.Lock()
	s.counts.PagesProgrammed += uint64(len(pieces))
	s.mu.Unlock()
	return nil
}

// cutter cuts parts into pages; a page that lies in two parts, and the last one, are copied.
type cutter struct{ parts [][]byte }

func (c *cutter) next(n int) []byte {
	for len(c.parts) > 0 && len(c.parts[0]) == 0 {
		c.parts = c.parts[1:]
	}
	if len(c.parts) > 0 && len(c.parts[0]) >= n {
		data := c.parts[0][:n]
		c.parts = append([][]byte{c.parts[0][n:]}, c.parts[1:]...)
		return data
	}
	data := make([]byte, n)
	at := 0
	for at < n && len(c.parts) > 0 {
		m := copy(data[at:], c.parts[0])
		at += m
		c.parts = append([][]byte{c.parts[0][m:]}, c.parts[1:]...)
		if len(c.parts[0]) == 0 {
			c.parts = c.parts[1:]
		}
	}
	return data
}

// transfer moves pages to or from the image, neighbours with one call. It reorders pieces.
func (s *Store) transfer(pieces []piece, move func(vfs.File, [][]byte, int64) error) error {
	slices.SortFunc(pieces, func(a, b piece) int { return int(a.number) - int(b.number) })
	bufs := make([][]byte, 0, len(pieces))
	for from := 0; from < len(pieces); {
		to := from + 1
		bufs = append(bufs[:0], pieces[from].data)
		for to < len(pieces) && pieces[to].number == pieces[to-1].number+1 {
			bufs = append(bufs, pieces[to].data)
			to++
		}
		if err := move(s.image, bufs, int64(pieces[from].number)*int64(s.geo.PageBytes)); err != nil {
			return err
		}
		from = to
	}
	return nil
}

// publish makes durable groups visible. One whose sequence was dropped meanwhile becomes garbage.
func (s *Store) publish(entries []*entry) {
	for _, e := range entries {
		for _, p := range e.pages {
			s.blocks.adopt(p.number, e, true)
		}
		s.life.group(nil, e)
		st := s.index.byID[e.key.Seq]
		if st == nil {
			s.forget([]*entry{e})
			continue
		}
		if old := s.index.put(st, e); old != nil {
			s.forget([]*entry{old})
		}
	}
}

// Cut forgets a sequence's groups from one on; from 0 on, the sequence. Blocks without live pages are erased.
func (s *Store) Cut(seq uint32, from int) error {
	s.mu.Lock()
	if err := s.writable(); err != nil {
		s.mu.Unlock()
		return err
	}
	s.mu.Unlock()
	err := s.commit(appendCut(nil, seq, from), false, func() {
		st := s.index.byID[seq]
		if st == nil {
			return
		}
		s.forget(s.index.cut(st, from))
		if from == 0 {
			s.buffer.drop(st.kv)
			s.blocks.closeSequence(seq)
		}
	})
	if err == nil {
		err = s.eraseDead()
	}
	return err
}

// commit appends records to the journal, together with those of others that wait, and then runs publish with mu held.
// With sync it is durable when it returns.
func (s *Store) commit(records []byte, sync bool, publish func()) error {
	s.queueMu.Lock()
	c := s.queue
	leads := c == nil
	if leads {
		c = &commit{done: make(chan struct{})}
		s.queue = c
	}
	c.records = append(c.records, records...)
	c.sync = c.sync || sync
	c.publish = append(c.publish, publish)
	s.queueMu.Unlock()
	if !leads {
		<-c.done
		return c.err
	}
	s.commitMu.Lock()
	defer s.commitMu.Unlock()
	s.queueMu.Lock()
	s.queue = nil
	s.queueMu.Unlock()
	c.err = s.flush(c)
	close(c.done)
	return c.err
}

// flush makes a commit durable and visible; commitMu is held.
func (s *Store) flush(c *commit) error {
	s.mu.Lock()
	err := s.writable()
	s.mu.Unlock()
	if err != nil {
		return err
	}
	sync := c.sync && !s.opts.NoSync
	if sync {
		if err := s.image.Sync(); err != nil {
			return s.fail(fmt.Errorf("csdshim: flash: sync: %w", err))
		}
	}
	if err := s.journal.append(c.records, sync); err != nil {
		return s.fail(err)
	}
	s.mu.Lock()
	for _, p := range c.publish {
		p()
	}
	s.mu.Unlock()
	return s.compact(true, compactBytes)
}

// fail ends all writing: after a failed sync nobody knows what is on the disk. (fsync study, ATC 2020)
func (s *Store) fail(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed == nil {
		s.failed = fmt.Errorf("csdshim: flash: a write failed before (%v): restart the drive: %w", err, ErrFailed)
	}
	return err
}
