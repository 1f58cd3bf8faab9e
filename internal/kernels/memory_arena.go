//go:build unix || windows

package kernels

import (
	"runtime"
	"sync"
)

// Packed weights live in arenas mapped outside the Go heap, so that the collector neither scans them nor sizes the heap
// by them. An arena starts at a huge page and holds many matrices, because the system gives huge pages only to whole
// ones: with pages of 4 KiB a product would walk the page table and restart the prefetchers 16 times in 64 KiB.
const (
	arenaBytes  = 64 << 20
	packedAlign = 64 // a cache line
)

// arena is one mapping; used and live are guarded by arenas.
type arena struct {
	mapping []byte
	free    []byte // what is not handed out yet
	live    int    // matrices in it
}

var arenas struct {
	sync.Mutex
	current *arena
}

// packedMemory returns zeroed memory that lives as long as its owner; from the heap where mapping is refused.
func packedMemory(owner *Matrix, sizeBytes int) []byte {
	arenas.Lock()
	defer arenas.Unlock()
	a := arenas.current
	if a == nil || len(a.free) < sizeBytes {
		var err error
		if a, err = newArena(max(arenaBytes, sizeBytes)); err != nil {
			return make([]byte, sizeBytes)
		}
		if old := arenas.current; old == nil || len(a.free)-sizeBytes > len(old.free) {
			arenas.current = a
		}
	}
	b := a.free[:sizeBytes:sizeBytes]
	a.free = a.free[min((sizeBytes+packedAlign-1)/packedAlign*packedAlign, len(a.free)):]
	a.live++
	runtime.AddCleanup(owner, (*arena).drop, a)
	return b
}

func newArena(sizeBytes int) (*arena, error) {
	data, mapping, err := MapHuge(sizeBytes)
	if err != nil {
		return nil, err
	}
	return &arena{mapping: mapping, free: data}, nil
}

// drop is called when a matrix of the arena was collected; the last one takes the mapping with it.
func (a *arena) drop() {
	arenas.Lock()
	defer arenas.Unlock()
	if a.live--; a.live > 0 {
		return
	}
	if a == arenas.current {
		arenas.current = nil
	}
	Unmap(a.mapping)
}
