package contexts

import (
	"errors"

	"terrace/kvmanager/values"
)

var (
	// ErrMiss: the tier has no such record.
	ErrMiss = values.ErrMiss
	// ErrDamaged: bytes of a record are not those that were stored.
	ErrDamaged = values.ErrDamaged
	// ErrFull: the tier has no room for more, and nothing that may go.
	ErrFull = errors.New("store is full")
	// ErrSpec: a --store flag that says nothing that can be opened.
	ErrSpec = values.ErrPlace
	// ErrNoRanks: records hold no ranks, or none that the smaller choice is a part of: the context is compressed from the whole.
	ErrNoRanks = errors.New("no ranks to make it smaller by")
	// ErrReadOnly: the tier cannot be written to.
	ErrReadOnly = errors.New("read-only")
)
