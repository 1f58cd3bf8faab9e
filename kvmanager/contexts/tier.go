package contexts

import (
	"context"
	"time"
)

// tier is where records lie. Errors of read are ErrMiss, ErrDamaged, or why the tier does not answer.
type tier interface {
	// read returns a record that was parsed and has the key.
	read(ctx context.Context, key Key) (*Record, error)
	// write stores records, in order, as far as there is room; those that are there stay. ErrFull where not all are there.
	write(ctx context.Context, batch []*Record) error
	// has reports whether a record is there, as far as is known without looking again.
	has(key Key) bool
	// touch notes that records were used now.
	touch(keys []Key)
	// remove deletes records; those that are not there are no error.
	remove(ctx context.Context, keys []Key) error
	// list names what is there.
	list(ctx context.Context) ([]Entry, error)
	// verify reads and checks everything; note is called for each record or file.
	verify(ctx context.Context, note func(Finding)) error
	// gc gives back the room of what cannot be used; it returns the bytes.
	gc(ctx context.Context) (int64, error)
	bytes() int64
	close() error
}

// Entry is a record that lies on a tier.
type Entry struct {
	Meta
	Bytes int64
	Used  time.Time // zero = not known
}

// Finding is what verify says of one thing.
type Finding struct {
	What string // where it lies
	Err  error  // nil = good
}

// Stats are a tier's account.
type Stats struct {
	Name          string // kind=place
	Kind          string
	CapacityBytes int64
	Bytes         int64 // of records
	Blocks        int
	BlockTokens   int // of plain prefixes; the largest where there are several, 0 = there are none
	Modelled      bool
}
