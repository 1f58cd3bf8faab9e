package contexts

import (
	"context"
	"time"

	"terrace/internal/storage"
)

// parted is a tier whose records can be read in parts.
type parted interface {
	// readPart reads a record's bytes from off on into dst, as far as it goes, and returns how many; nothing of them is checked. off
	// and len(dst) are multiples of 4096. Errors are those of read.
	readPart(ctx context.Context, key Key, dst []byte, off int64) (int, error)
}

// lying is a parted tier whose records lie in memory: what raw gave need not be read.
type lying interface {
	parted
	raw(key Key) []byte // nil = it is not there
}

// partBytes is how much one read of a part takes unless Options.PartBytes says so. Smaller parts let the first layer begin sooner; each read costs about 20 µs of
// processor time, as long as 384 KiB take at 20 GB/s.
const partBytes = 384 << 10

// A tier that is held to a rate is read in parts of what comes in heldPart, not less than leastPart: the first layer waits for one part.
const (
	heldPart  = 2 * time.Millisecond
	leastPart = 64 << 10
)

// partOf is how much one read from a tier takes.
func (a *Arrival) partOf(m *member) int {
	if m.slow == nil {
		return a.part
	}
	held := int(m.slow.rate*int64(heldPart)/int64(time.Second)) &^ (pageBytes - 1)
	return min(a.part, max(held, leastPart))
}

// room is where a record's bytes go: where they lie already, on a tier in memory that is held to a rate, or new memory.
func (a *Arrival) room(m *member, key Key, part int) []byte {
	if t, ok := m.tier.(lying); ok && m.slow != nil {
		if raw := t.raw(key); raw != nil {
			return raw
		}
	}
	a.mu.Lock()
	guess := max(a.guess, int64(part))
	a.mu.Unlock()
	return storage.Aligned(int(guess))
}
