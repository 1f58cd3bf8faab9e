package engine

import "errors"

var (
	// ErrContext is returned when a prompt, or prompt and generation together, do not fit the context; the message has both
	// numbers.
	ErrContext = errors.New("does not fit the context")
	// ErrOption marks an option out of range or one that contradicts another.
	ErrOption = errors.New("bad option")
	// ErrNotFinite is returned when a model computes NaN or infinite logits, from which no token can be chosen honestly.
	ErrNotFinite = errors.New("logits are not finite")
	// ErrMemory is returned when something does not fit the memory given.
	ErrMemory = errors.New("does not fit the memory given")
	// ErrInternal wraps a panic that a request caused: a bug; the request fails, the process goes on.
	ErrInternal = errors.New("internal error")
)
