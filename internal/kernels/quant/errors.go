package quant

import "errors"

var (
	// ErrUnknownType is returned by ParseType for a name that no known type has.
	ErrUnknownType = errors.New("unknown tensor type")
	// ErrUnsupported is returned by Quantize for a type that can be read but not written.
	ErrUnsupported = errors.New("type cannot be quantised to")
	// ErrLength is returned by Quantize for a source that is no whole number of blocks or a destination of another size.
	ErrLength = errors.New("wrong length")
)
