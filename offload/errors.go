package offload

import (
	"errors"

	"terrace/internal/storage"
)

var (
	// ErrTier: a tier failed twice, or no longer has what was stored in it (see the retry policy in the package documentation).
	// Whoever needs the KV must compute it again.
	ErrTier = errors.New("the KV on a lower tier is not available")
	// ErrFull: the store's capacity does not hold what is to be written.
	ErrFull = storage.ErrFull
	// ErrCorrupt: bytes read back are not those that were written.
	ErrCorrupt = storage.ErrCorrupt
	// ErrMissing: no record is stored under the key.
	ErrMissing = storage.ErrMissing
	// ErrClosed: the store or queue has been closed.
	ErrClosed = errors.New("closed")
	// ErrCancelled: the ticket was cancelled before its work was done.
	ErrCancelled = errors.New("cancelled")
	// ErrBusy: the queue's list of waiting records is full.
	ErrBusy = errors.New("queue is full")
	// ErrShape: a record, or a file, is not of the store's shape.
	ErrShape = storage.ErrShape
	// ErrModel: the tier is none for this model: its layers keep nothing, or not what the tier takes.
	ErrModel = errors.New("the tier does not fit the model")
	// ErrInUse: another process or store uses the directory.
	ErrInUse = storage.ErrInUse
)
