package kernels

import (
	"runtime"
	"sync"
)

// Huge hands out memory in huge pages, all of which goes at once: when Free is called, or when the collector finds that nobody
// holds the Huge. Whoever keeps what Take returned keeps the Huge. Where the system maps no memory it is the heap's. Safe for
// concurrent use.
type Huge struct {
	mu       sync.Mutex
	free     []byte // of the newest mapping
	mappings [][]byte
	cleanups []runtime.Cleanup
}

// hugeMapping is how much a Huge maps at a time, bytes. Untouched huge pages of it cost nothing.
const hugeMapping = 2 << 20

// NewHuge returns an empty one; nothing is mapped yet.
func NewHuge() *Huge { return &Huge{} }

// Take returns sizeBytes of zeroed memory, aligned to a cache line. What is left of a mapping and too small is lost.
func (h *Huge) Take(sizeBytes int) []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.free) < sizeBytes {
		data, mapping, err := MapHuge(max(hugeMapping, sizeBytes))
		if err != nil {
			return make([]byte, sizeBytes)
		}
		h.mappings, h.cleanups = append(h.mappings, mapping), append(h.cleanups, runtime.AddCleanup(h, Unmap, mapping))
		h.free = data
	}
	b := h.free[:sizeBytes:sizeBytes]
	h.free = h.free[min((sizeBytes+63)&^63, len(h.free)):]
	return b
}

// Free gives everything back; nothing may use it after. A nil Huge has nothing.
func (h *Huge) Free() {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, m := range h.mappings {
		h.cleanups[i].Stop()
		Unmap(m)
	}
	h.mappings, h.cleanups, h.free = nil, nil, nil
}
