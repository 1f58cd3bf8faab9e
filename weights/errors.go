package weights

import (
	"errors"

	"terrace/weights/gguf"
	"terrace/weights/mapped"
)

var (
	// ErrFormat is wrapped by every error about a malformed or contradictory model; the message names key, tensor or file.
	ErrFormat = gguf.ErrFormat
	// ErrUnsupported is returned for a valid file of a kind that is not read (GGUF v1, big-endian, an unknown tensor type).
	ErrUnsupported = gguf.ErrUnsupported
	// ErrNotFinite is returned for weights that hold NaN or infinity.
	ErrNotFinite = gguf.ErrNotFinite
	// ErrFileChanged is returned where a file is no longer the one that was opened.
	ErrFileChanged = mapped.ErrChanged
	// ErrNotRegular is returned for a path that is no regular file (a device, a pipe, a folder without a model).
	ErrNotRegular = mapped.ErrNotRegular
	// ErrMissingTensor is returned for a tensor that the model does not have.
	ErrMissingTensor = errors.New("tensor is missing")
	// ErrMissingKey and ErrWrongType are what the getters of Meta return.
	ErrMissingKey = gguf.ErrMissingKey
	ErrWrongType  = gguf.ErrWrongType
)

// formatError makes any error about a model's content match ErrFormat without repeating its text.
type formatError struct{ error }

func (e formatError) Unwrap() []error { return []error{e.error, ErrFormat} }
