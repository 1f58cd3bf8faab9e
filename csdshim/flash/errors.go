package flash

import "errors"

var (
	// ErrFull: the groups do not fit the capacity; the message has the numbers.
	ErrFull = errors.New("drive is full")
	// ErrCorrupt: a page or the journal is not what was written; the message names it.
	ErrCorrupt = errors.New("stored data are corrupt")
	// ErrNotFound: no group or sequence is stored under that name.
	ErrNotFound = errors.New("not on the drive")
	// ErrFailed: a sync failed before; the store takes no more writes, what was acknowledged can be read.
	ErrFailed = errors.New("drive takes no more writes")
	// ErrLocked: another process has the folder.
	ErrLocked = errors.New("folder is in use")
	// ErrGeometry: the folder was made with another geometry, or a geometry is out of range.
	ErrGeometry = errors.New("geometry does not fit")
	// ErrClosed: the store was closed.
	ErrClosed = errors.New("drive is closed")
)
