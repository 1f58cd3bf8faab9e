package clock

import (
	"context"
	"time"
)

// WithTimeout is context.WithTimeout by a clock's time: the context ends, with context.DeadlineExceeded as its cause, once the
// clock has moved on by d. A Jumping clock accounts for waiting and nothing else, and on an Events clock a model's time says
// nothing about what hangs, so on these it never does.
func WithTimeout(ctx context.Context, c Clock, d time.Duration) (context.Context, context.CancelFunc) {
	switch c.(type) {
	case realClock, *Skipping, *Metered: // whose time a hanging call takes
		return context.WithTimeout(ctx, d)
	case *Jumping, *Events:
		return context.WithCancel(ctx)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		if c.Sleep(ctx, d) == nil {
			cancel(context.DeadlineExceeded)
		}
	}()
	return ctx, func() { cancel(nil) }
}
