package kernels

import "errors"

var (
	// ErrPath: the CPU path asked for has no such name, or this CPU (or build) cannot run it.
	ErrPath = errors.New("CPU path is not available")
	// ErrShape: a matrix's bytes, rows and columns do not fit each other or its type.
	ErrShape = errors.New("shape does not fit")
)
