package engine

import (
	"errors"
	"fmt"

	"terrace/engine/tier"
	"terrace/internal/guard"
	"terrace/offload"
)

var (
	// ErrTier: a tier below host memory failed, or no longer has what was stored in it.
	ErrTier = offload.ErrTier
	// ErrContext is returned when a prompt, or prompt and generation together, do not fit the context; the message has both
	// numbers.
	ErrContext = errors.New("does not fit the context")
	// ErrOption marks an option out of range or one that contradicts another.
	ErrOption = tier.ErrOption
	// ErrNotFinite is returned when a model computes NaN or infinite logits, from which no token can be chosen honestly.
	ErrNotFinite = errors.New("logits are not finite")
	// ErrMemory is returned when something does not fit the memory given.
	ErrMemory = errors.New("does not fit the memory given")
	// ErrInternal wraps a panic that a request caused: a bug; the request fails, the process goes on.
	ErrInternal = guard.ErrInternal
)

// Crash is a panic that a request caused: a bug. It wraps ErrInternal and keeps the stack for who debugs it.
type Crash = guard.Crash

// TooLong is ErrContext in the words that every command prints: prompt tokens, those to generate (0 = not said), what the
// context holds and how much of it is taken.
func TooLong(prompt, generate, context, taken int) error {
	text := fmt.Sprintf("%d prompt tokens", prompt)
	if generate > 0 {
		text += fmt.Sprintf(" and %d to generate", generate)
	}
	text += fmt.Sprintf(", the context holds %d", context)
	if taken > 0 {
		text += fmt.Sprintf(" (%d taken)", taken)
	}
	return fmt.Errorf("engine: %s: %w; shorten the prompt or raise --context", text, ErrContext)
}
