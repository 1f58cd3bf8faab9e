package contexts

import "errors"

var (
	// ErrMiss: the tier has no such record.
	ErrMiss = errors.New("not stored")
	// ErrDamaged: bytes of a record are not those that were stored.
	ErrDamaged = errors.New("damaged record")
	// ErrFull: the tier has no room for more, and nothing that may go.
	ErrFull = errors.New("store is full")
	// ErrSpec: a --store flag that says nothing that can be opened.
	ErrSpec = errors.New("bad store")
	// ErrNoRanks: records hold no ranks, or none that the smaller choice is a part of: the context is compressed from the whole.
	ErrNoRanks = errors.New("no ranks to make it smaller by")
	// ErrReadOnly: the tier cannot be written to.
	ErrReadOnly = errors.New("read-only")
)
