package flash

import (
	"fmt"
	"sync"

	"terrace/internal/vfs"
)

// Request is a part of a group to read: Dst gets its bytes from Off on.
type Request struct {
	Key Key
	Off int
	Dst []byte
}

// want is a page to read for requests.
type want struct {
	e    *entry
	i    int    // page of the group
	data []byte // a whole page: a request's own bytes, or scratch
	part part   // of scratch, what a request gets
	more []part // and what others get
}

// part is a piece of a page and where it goes.
type part struct {
	dst []byte
	off int
}

// Get reads parts of groups. All pages are checked: a damaged one is ErrCorrupt and names its group, a missing group is
// ErrNotFound; Dst is then undefined. pages are the flash pages that were read.
func (s *Store) Get(reqs []Request) (pages []uint32, err error) {
	s.io.RLock()
	defer s.io.RUnlock()
	a := arenas.Get().(*arena)
	defer func() {
		clear(a.wants) // what they point to is others'
		arenas.Put(a)
	}()
	a.wants, a.used = a.wants[:0], 0
	if err := s.resolve(reqs, a); err != nil {
		return nil, err
	}
	wants := a.wants
	pieces := make([]piece, len(wants))
	pages = make([]uint32, len(wants))
	for i, w := range wants {
		pieces[i] = piece{w.e.pages[w.i].number, w.data}
		pages[i] = w.e.pages[w.i].number
	}
	if err := s.transfer(pieces, vfs.ReadFull); err != nil {
		return nil, fmt.Errorf("csdshim: flash: reading %d pages: %w", len(pieces), err)
	}
	for _, w := range wants {
		if err := w.check(); err != nil {
			return nil, err
		}
		copy(w.part.dst, w.data[w.part.off:])
		for _, p := range w.more {
			copy(p.dst, w.data[p.off:])
		}
	}
	s.mu.Lock()
	s.countReads(pages)
	s.mu.Unlock()
	return pages, nil
}

// arena is memory for one Get, used again for the next.
type arena struct {
	wants  []want
	chunks [][]byte
	used   int // bytes of the chunks, one after another
}

var arenas = sync.Pool{New: func() any { return new(arena) }}

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
			p := part{off: at % size}
			n := min(size-p.off, len(dst))
			p.dst = dst[:n]
			switch last := len(a.wants) - 1; {
			case last >= 0 && a.wants[last].e == e && a.wants[last].i == at/size:
				a.wants[last].more = append(a.wants[last].more, p) // one read of a page serves neighbours
			case n == size:
				a.wants = append(a.wants, want{e: e, i: at / size, data: dst[:size]})
			default:
				a.wants = append(a.wants, want{e: e, i: at / size, data: a.page(size), part: p})
			}
			at, dst = at+n, dst[n:]
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
