package kvpage

import "errors"

var (
	// ErrLayout: a layout's numbers are out of range or do not fit each other.
	ErrLayout = errors.New("invalid page layout")
	// ErrElem: no element type has that name.
	ErrElem = errors.New("unknown element type")
	// ErrCorrupt: the checksum of an encoded page does not match its bytes.
	ErrCorrupt = errors.New("page is corrupt")
	// ErrMismatch: an encoded page is whole, but not the one that was asked for.
	ErrMismatch = errors.New("page is another one")
)
