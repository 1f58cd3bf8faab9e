package clock

import (
	"context"
	"time"
)

// WithTimeout is context.WithTimeout by a clock's time: the context ends, with context.DeadlineExceeded as its cause, once the
// clock has moved on by d. A Jumping clock accounts for waiting and nothing else, so on one it never does.
func WithTimeout(ctx context.Context, c Clock, d time.Duration) (context.Context, context.CancelFunc) {
	switch c.(type) {
	case realClock:
		return context.WithTimeout(ctx, d)
	case *Jumping:
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
