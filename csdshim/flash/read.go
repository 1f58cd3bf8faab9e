package flash

import (
	"errors"
	"fmt"
	"sync"

	"terrace/internal/vfs"
	"terrace/internal/vfs/view"
)

// Request is a part of a group to read: Dst gets its bytes from Off on.
type Request struct {
	Key Key
	Off int
	Dst []byte
}

// want is a page to read for requests.
type want struct {
	e           *entry
	i           int    // page of the group
	data        []byte // the whole page, once it is read
	first, last int32  // of the arena's parts: what requests get of it
}

// part is a piece of a page and where it goes.
type part struct {
	dst  []byte
	off  int
	next int32 // the page's next part; the last one's is no part
}

// Get reads parts of groups. All pages are checked: a damaged one is ErrCorrupt and names its group, a missing group is
// ErrNotFound; Dst is then undefined. pages are the flash pages that were read.
func (s *Store) Get(reqs []Request) (pages []uint32, err error) {
	s.io.RLock()
	defer s.io.RUnlock()
	a := arenas.Get().(*arena)
	defer a.giveBack()
	if err := s.resolve(reqs, a); err != nil {
		return nil, err
	}
	pages = make([]uint32, len(a.wants))
	for i, w := range a.wants {
		pages[i] = w.e.pages[w.i].number
	}
	if err := s.fill(a, a.deliver); err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.countReads(pages)
	s.mu.Unlock()
	return pages, nil
}

// Visit reads whole groups of so many bytes and shows the pages of each, in the order of keys, as soon as all of them are checked: nothing
// is copied. shown[i] has the group's bytes from i·PageBytes on; it may only be read, and until show returns. Where the image's memory fails, the
// first groups are shown a second time. Errors are those of Get: what was shown then does not count.
func (s *Store) Visit(keys []Key, bytes int, show func(group int, shown [][]byte)) (pages []uint32, err error) {
	s.io.RLock()
	defer s.io.RUnlock()
	a := arenas.Get().(*arena)
	defer a.giveBack()
	if err := s.resolveWhole(keys, bytes, a); err != nil {
		return nil, err
	}
	pages = make([]uint32, len(a.wants))
	for i, w := range a.wants {
		pages[i] = w.e.pages[w.i].number
	}
	group := 0
	err = s.fill(a, func(w *want) {
		if w == &a.wants[0] {
			group = 0
		}
		if w.i == 0 {
			a.shown = a.shown[:0]
		}
		a.shown = append(a.shown, w.data[:min(len(w.data), bytes-w.i*s.geo.PageBytes)])
		if w.i == len(w.e.pages)-1 {
			show(group, a.shown)
			group++
		}
	})
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.countReads(pages)
	s.mu.Unlock()
	return pages, nil
}

// PageBytes is the size of a flash page, a power of two.
func (s *Store) PageBytes() int { return s.geo.PageBytes }

// fill reads the wanted pages, checks each and uses it while it is in the processor's cache. They lie where the image
// is seen as memory, as far as the system does that. Else, and where that memory cannot be read, they are read by calls, whose
// error says why.
func (s *Store) fill(a *arena, use func(*want)) error {
	size := s.geo.PageBytes
	each := func() error {
		for i := range a.wants {
			w := &a.wants[i]
			if s.view != nil && w.data == nil {
				w.data = s.view.At(int64(w.e.pages[w.i].number)*int64(size), size)
				a.touched ^= touch(w.data)
			}
			if err := w.check(); err != nil {
				return err
			}
			use(w)
		}
		return nil
	}
	if s.view != nil {
		if err := s.view.Guard(each); !errors.Is(err, view.ErrFault) {
			return err
		}
	}
	pieces := make([]piece, len(a.wants))
	for i := range a.wants {
		w := &a.wants[i]
		w.data = a.page(size)
		pieces[i] = piece{w.e.pages[w.i].number, w.data}
	}
	if err := s.transfer(pieces, vfs.ReadFull); err != nil {
		return fmt.Errorf("csdshim: flash: reading %d pages: %w", len(pieces), err)
	}
	return each()
}

// arena is memory for one Get, used again for the next.
type arena struct {
	wants  []want
	parts  []part
	chunks [][]byte
	used   int      // bytes of the chunks, one after another
	shown  [][]byte // Visit's

	touched byte
}

// touch reads a byte of each cache line of a page, so that memory is asked for all of them at once: the checksum's instructions depend on
// one another, and would have them come in threes.
func touch(page []byte) byte {
	var x [4]byte
	for ; len(page) >= 256; page = page[256:] {
		x[0], x[1], x[2], x[3] = x[0]^page[0], x[1]^page[64], x[2]^page[128], x[3]^page[192]
	}
	return x[0] ^ x[1] ^ x[2] ^ x[3]
}

var arenas = sync.Pool{New: func() any { return new(arena) }}

// giveBack ends the arena's use: what it points to is others'.
func (a *arena) giveBack() {
	clear(a.wants)
	clear(a.parts)
	clear(a.shown)
	a.wants, a.parts, a.shown, a.used = a.wants[:0], a.parts[:0], a.shown[:0], 0
	arenas.Put(a)
}

// want adds a page to read and returns its place.
func (a *arena) want(e *entry, i int) int32 {
	a.wants = append(a.wants, want{e: e, i: i, first: -1, last: -1})
	return int32(len(a.wants) - 1)
}

// part adds what a request gets of a wanted page.
func (a *arena) part(of int32, off int, dst []byte) {
	w, at := &a.wants[of], int32(len(a.parts))
	a.parts = append(a.parts, part{dst, off, -1})
	if w.first < 0 {
		w.first = at
	} else {
		a.parts[w.last].next = at
	}
	w.last = at
}

// deliver copies a page's parts to where they go.
func (a *arena) deliver(w *want) {
	for i := w.first; i >= 0; i = a.parts[i].next {
		copy(a.parts[i].dst, w.data[a.parts[i].off:])
	}
}

// arenaChunk is the size of an arena's pieces; pages are at most 64 KiB.
const arenaChunk = 1 << 20

// page is room for a page, of arbitrary content.
func (a *arena) page(size int) []byte {
	chunk, at := a.used/arenaChunk, a.used%arenaChunk
	if chunk == len(a.chunks) {
		a.chunks = append(a.chunks, make([]byte, arenaChunk))
	}
	a.used += size
	return a.chunks[chunk][at : at+size]
}

func (w *want) check() error {
	p := w.e.pages[w.i]
	if got := pageSum(w.e.key, w.e.version, w.i, w.data); got != p.sum {
		return fmt.Errorf("csdshim: flash: sequence %d, layer %d, group %d: page %d (flash page %d): checksum %08x, want %08x: %w",
			w.e.key.Seq, w.e.key.Layer, w.e.key.Group, w.i, p.number, got, p.sum, ErrCorrupt)
	}
	return nil
}

// resolve finds the pages of the requests.
func (s *Store) resolve(reqs []Request, a *arena) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("csdshim: flash: %s: %w", s.dir, ErrClosed)
	}
	size := s.geo.PageBytes
	for _, r := range reqs {
		e, err := s.find(r.Key)
		if err != nil {
			return err
		}
		if r.Off < 0 || r.Off+len(r.Dst) > int(e.length) {
			return fmt.Errorf("csdshim: flash: sequence %d, layer %d, group %d: bytes %d to %d of %d: %w", r.Key.Seq, r.Key.Layer, r.Key.Group, r.Off, r.Off+len(r.Dst), e.length, ErrNotFound)
		}
		for at, dst := r.Off, r.Dst; len(dst) > 0; {
			n := min(size-at%size, len(dst))
			last := int32(len(a.wants) - 1)
			if last < 0 || a.wants[last].e != e || a.wants[last].i != at/size {
				last = a.want(e, at/size)
			} // one read of a page serves neighbours
			a.part(last, at%size, dst[:n])
			at, dst = at+n, dst[n:]
		}
	}
	return nil
}

// resolveWhole finds all pages of groups of so many bytes.
func (s *Store) resolveWhole(keys []Key, bytes int, a *arena) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("csdshim: flash: %s: %w", s.dir, ErrClosed)
	}
	for _, k := range keys {
		e, err := s.find(k)
		if err != nil {
			return err
		}
		if int(e.length) != bytes || len(e.pages) != s.geo.pagesOf(bytes) {
			return fmt.Errorf("csdshim: flash: sequence %d, layer %d, group %d: %d bytes on %d pages, want %d: %w", k.Seq, k.Layer, k.Group, e.length, len(e.pages), bytes, ErrNotFound)
		}
		for i := range e.pages {
			a.want(e, i)
		}
	}
	return nil
}

func (s *Store) find(k Key) (*entry, error) {
	st := s.index.byID[k.Seq]
	if st == nil {
		return nil, fmt.Errorf("csdshim: flash: sequence %d: %w", k.Seq, ErrNotFound)
	}
	if k.Layer < 0 || k.Group < 0 || k.Table >= tables {
		return nil, fmt.Errorf("csdshim: flash: layer %d, group %d: %w", k.Layer, k.Group, ErrNotFound)
	}
	e := st.find(k)
	if e == nil {
		return nil, fmt.Errorf("csdshim: flash: sequence %d, layer %d, group %d: %w", k.Seq, k.Layer, k.Group, ErrNotFound)
	}
	return e, nil
}

// Lookup is the owner's sequence of that number.
func (s *Store) Lookup(owner [16]byte, number uint64) (id uint32, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.index.byNumber[ownerNumber{owner, number}]; st != nil {
		return st.ID, true
	}
	return 0, false
}

// Groups lists the numbers of a layer's groups, rising, below one.
func (s *Store) Groups(seq uint32, layer, below int) (numbers []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.index.byID[seq]
	if st == nil || layer < 0 || layer >= len(st.tables[Groups]) {
		return nil
	}
	for i, e := range st.tables[Groups][layer].All(0) {
		if i >= below {
			break
		}
		if e != nil {
			numbers = append(numbers, i)
		}
	}
	return numbers
}

// Version tells two contents of a group apart; 0 where nothing is stored.
func (s *Store) Version(k Key) uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, err := s.find(k); err == nil {
		return e.version
	}
	return 0
}

// Usage is what a store holds; bytes are those of whole pages.
type Usage struct {
	counts
	CapacityBytes, UsedBytes, PeakBytes int64
	Sequences, Groups                   int
}

// Usage reports what is stored and what was done.
func (s *Store) Usage() Usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	size := int64(s.geo.PageBytes)
	return Usage{counts: s.counts, CapacityBytes: s.geo.CapacityBytes, UsedBytes: s.used * size, PeakBytes: s.peak * size,
		Sequences: len(s.index.byID), Groups: s.index.groups}
}
