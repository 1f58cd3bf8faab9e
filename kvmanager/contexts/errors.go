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
	// ErrReadOnly: the tier cannot be written to.
	ErrReadOnly = errors.New("read-only")
)
