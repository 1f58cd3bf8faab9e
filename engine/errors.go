package engine

import (
	"errors"
	"fmt"

	"terrace/offload"
)

var (
	// ErrTier: a tier below host memory failed, or no longer has what was stored in it.
	ErrTier = offload.ErrTier
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

// Crash is a panic that a request caused: a bug. It wraps ErrInternal and keeps the stack for who debugs it.
type Crash struct {
	Value any
	Stack []byte
}

func (c *Crash) Error() string {
	return fmt.Sprintf("engine: %v: %v (a bug, please report it)", ErrInternal, c.Value)
}

// Unwrap makes a Crash match ErrInternal.
func (c *Crash) Unwrap() error { return ErrInternal }
