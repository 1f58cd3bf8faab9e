package kvpage

import "errors"

var (
	// ErrLayout: a layout's numbers are out of range or do not fit each other.
	ErrLayout = errors.New("invalid page layout")
	// ErrElem: no element type has that name.
	ErrElem = errors.New("unknown element type")
)
