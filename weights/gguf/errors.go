package gguf

import "errors"

var (
	// ErrFormat is wrapped by every error about a malformed file; the message names key, tensor or offset.
	ErrFormat = errors.New("bad model file")
	// ErrUnsupported is returned for a valid file of a kind that is not read: another version, big-endian, an unknown
	// tensor type. Such errors wrap ErrFormat too.
	ErrUnsupported = errors.New("unsupported")
	// ErrMissingKey is returned by the getters of Meta for a key that is not there.
	ErrMissingKey = errors.New("missing metadata key")
	// ErrWrongType is returned by the getters of Meta for a key whose value is of another type or out of range.
	ErrWrongType = errors.New("metadata value of another type")
	// ErrNotFinite is returned by Tensor.Bytes for weights that hold NaN or infinity.
	ErrNotFinite = errors.New("weights are not finite")
)
