// Package slab owns memory that is handed out in pages of one size: anonymous mappings outside the Go heap, cut into pages that
// are counted by reference.
//
// What it never does: know what a page holds, or keep a budget (kvmanager does).
//
// Invariant: a page is either free or has references; a page that is dropped once too often panics, it is a bug.
//
// Concurrency: one goroutine at a time.
package slab

import (
	"fmt"
	"os"

	"terrace/internal/kernels"
)

// slabBytes is how much address space is mapped at a time; untouched parts cost nothing.
const slabBytes = 4 << 20

// Ref names a page: its slab and its place in it. The zero value is the first page of the first slab.
type Ref struct{ slab, index int32 }

// hugePageBytes is what slabs are multiples of, which ask for huge pages. A decode step walks the whole cache: with pages of 4 KiB
// it would walk the system's page table once for each (tables of tables where the machine is virtual), as often as it reads
// a page of KV.
const hugePageBytes = 2 << 20

// slab is one anonymous mapping cut into pages. Freed pages give their memory back to the system where whole system pages
// are free, so that what a policy drops is not resident.
type slab struct {
	mapping []byte
	data    []byte  // of mapping, from a huge page on
	whole   bool    // still in huge pages, if the system gave them
	pos     []int32 // [pages·tokens] positions
	refs    []int32 // references of each page
	used    int     // pages with references
}

// Pages hands out pages of one size, each with room for some positions beside its bytes.
type Pages struct {
	pageBytes, tokens, perSlab int
	all                        []*slab
	free                       []Ref // most recently freed last
}

// New returns pages of a size in bytes with that many positions each; nothing is mapped until the first is taken.
func New(pageBytes, tokens int) Pages {
	return Pages{pageBytes: pageBytes, tokens: tokens, perSlab: max(1, slabBytes/pageBytes)}
}

// PageBytes is the size of a page.
func (s *Pages) PageBytes() int { return s.pageBytes }

// Take returns a page whose content is undefined, with one reference.
func (s *Pages) Take() (Ref, error) {
	if len(s.free) == 0 {
		if err := s.grow(); err != nil {
			return Ref{}, err
		}
	}
	p := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	b := s.all[p.slab]
	b.refs[p.index] = 1
	b.used++
	return p, nil
}

func (s *Pages) grow() error {
	size := roundUp(s.perSlab*s.pageBytes, hugePageBytes)
	data, mapping, err := kernels.MapHuge(size)
	if err != nil {
		return fmt.Errorf("slab: no memory for %d bytes of KV: %w", size, err)
	}
	b := &slab{mapping: mapping, data: data, whole: true, pos: make([]int32, s.perSlab*s.tokens), refs: make([]int32, s.perSlab)}
	s.all = append(s.all, b)
	at := int32(len(s.all) - 1)
	for i := s.perSlab - 1; i >= 0; i-- {
		s.free = append(s.free, Ref{at, int32(i)})
	}
	return nil
}

// Ref adds a reference to a page that is in use.
func (s *Pages) Ref(p Ref) { s.all[p.slab].refs[p.index]++ }

// Shared reports whether a page has more than one reference.
func (s *Pages) Shared(p Ref) bool { return s.all[p.slab].refs[p.index] > 1 }

// Drop takes one reference away and reports whether the page became free.
func (s *Pages) Drop(p Ref) bool {
	b := s.all[p.slab]
	b.refs[p.index]--
	if b.refs[p.index] > 0 {
		return false
	}
	if b.refs[p.index] < 0 {
		panic("slab: a page was freed twice") // a bug, never user input
	}
	b.used--
	s.free = append(s.free, p)
	return true
}

// Data is a page's bytes.
func (s *Pages) Data(p Ref) []byte {
	at := int(p.index) * s.pageBytes
	return s.all[p.slab].data[at : at+s.pageBytes : at+s.pageBytes]
}

// Positions is a page's room for positions.
func (s *Pages) Positions(p Ref) []int32 {
	at := int(p.index) * s.tokens
	return s.all[p.slab].pos[at : at+s.tokens : at+s.tokens]
}

// Release gives the memory of free pages back to the system: runs of free pages that cover whole system pages. The address
// space stays mapped for later use.
func (s *Pages) Release() {
	for _, b := range s.all {
		if b.used == len(b.refs) {
			continue
		}
		for i := 0; i < len(b.refs); {
			if b.refs[i] != 0 {
				i++
				continue
			}
			j := i
			for j < len(b.refs) && b.refs[j] == 0 {
				j++
			}
			lo, hi := roundUp(i*s.pageBytes, systemPageBytes), j*s.pageBytes/systemPageBytes*systemPageBytes
			if j == len(b.refs) {
				hi = len(b.data)
			}
			if lo < hi {
				if b.whole {
					adviseSmallPages(b.data)
					b.whole = false
				}
				kernels.GiveBack(b.data[lo:hi])
			}
			i = j
		}
	}
}

// Referenced is the number of pages with references.
func (s *Pages) Referenced() int {
	n := 0
	for _, b := range s.all {
		for _, r := range b.refs {
			if r > 0 {
				n++
			}
		}
	}
	return n
}

// Close unmaps everything; nothing may use a page after it.
func (s *Pages) Close() {
	for _, b := range s.all {
		kernels.Unmap(b.mapping)
	}
	s.all, s.free = nil, nil
}

var systemPageBytes = os.Getpagesize()

// WholeSystemPages is a size in bytes rounded up to whole pages of the system's memory.
func WholeSystemPages(bytes int) int { return roundUp(bytes, systemPageBytes) }

func roundUp(n, to int) int { return (n + to - 1) / to * to }
