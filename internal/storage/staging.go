package storage

import (
	"sync"

	"terrace/internal/kernels"
	"terrace/internal/vfs"
)

// Staging is aligned memory for transfers, in pieces of a few sizes that are kept for the next one. How much there is at a time is bounded by
// what is under way.
type Staging struct {
	sizes []int // rising
	page  int   // pieces up to this size come from a huge page, as far as it reaches; 0 = none do

	mu    sync.Mutex
	free  [][][]byte // by size
	huge  hugePage
	bytes int64
}

// NewStaging has pieces of the sizes given, rising; those up to hugeBytes, which divides a huge page of 2 MiB, are taken from one first.
func NewStaging(hugeBytes int, sizes ...int) *Staging {
	return &Staging{sizes: sizes, page: hugeBytes, free: make([][][]byte, len(sizes))}
}

// Take gives a piece of at least n bytes; huge says whose it is, for Give.
func (s *Staging) Take(n int) (piece []byte, huge bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n <= s.page {
		piece, made := s.huge.take(s.page)
		s.bytes += made
		if piece != nil {
			return piece, true
		}
	}
	for kind, size := range s.sizes {
		if n > size {
			continue
		}
		kept := s.free[kind]
		if len(kept) == 0 {
			s.bytes += int64(size)
			return vfs.AlignedBytes(size), false
		}
		s.free[kind] = kept[:len(kept)-1]
		return kept[len(kept)-1], false
	}
	return vfs.AlignedBytes(n), false // larger than any that is kept
}

// Give takes a piece back.
func (s *Staging) Give(piece []byte, huge bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if huge {
		s.huge.free = append(s.huge.free, piece[:cap(piece)])
		return
	}
	for kind, size := range s.sizes {
		if len(piece) == size {
			s.free[kind] = append(s.free[kind], piece)
			return
		}
	}
	vfs.FreeAligned(piece)
}

// Bytes is how much there is, used or not.
func (s *Staging) Bytes() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes
}

// Trim frees unused pieces larger than some bytes; with 0 all of them, and the huge page where no piece of it is in use.
func (s *Staging) Trim(above int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for kind, size := range s.sizes {
		if size <= above {
			continue
		}
		for _, b := range s.free[kind] {
			vfs.FreeAligned(b)
			s.bytes -= int64(size)
		}
		s.free[kind] = nil
	}
	if above == 0 {
		s.bytes -= s.huge.drop()
	}
}

// hugePage is one piece of memory that asks for huge pages: a device is given whole stretches of memory, not pages of 4 KiB one by one, which
// costs it (or what stands for it in a virtual machine) time for each. Reads of 24 KiB at a depth of 32 into 4 KiB pages took a virtio disk
// 52 µs each, into a huge page 31 µs.
type hugePage struct {
	mapping []byte
	free    [][]byte
	pieces  int
}

const hugePageBytes = 2 << 20

// take gives a piece of some bytes, nil where there is none; made is the memory that was mapped for it. size divides hugePageBytes.
func (h *hugePage) take(size int) (piece []byte, made int64) {
	if h.mapping == nil {
		data, mapping, err := kernels.MapHuge(hugePageBytes)
		if err != nil {
			return nil, 0
		}
		h.mapping, h.pieces, made = mapping, hugePageBytes/size, hugePageBytes
		for at := 0; at < hugePageBytes; at += size {
			h.free = append(h.free, data[at:at+size:at+size])
		}
	}
	n := len(h.free)
	if n == 0 {
		return nil, made
	}
	piece, h.free = h.free[n-1], h.free[:n-1]
	return piece, made
}

// drop unmaps the memory unless a piece is in use; it returns how much that was.
func (h *hugePage) drop() int64 {
	if h.mapping == nil || len(h.free) < h.pieces {
		return 0
	}
	kernels.Unmap(h.mapping)
	*h = hugePage{}
	return hugePageBytes
}
