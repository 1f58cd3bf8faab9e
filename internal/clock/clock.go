package clock

import (
	"context"
	"time"
)

// Clock tells the time since its start and waits.
type Clock interface {
	// Now is the time since the clock's start; it never goes back.
	Now() time.Duration
	// Sleep waits for d (at once for d <= 0) or until ctx ends, whose error it returns.
	Sleep(ctx context.Context, d time.Duration) error
	// Modelled says that the clock's time is a model's, not measured.
	Modelled() bool
}

type realClock struct{}

var processStart = time.Now()

// Real is the machine's monotonic clock, which starts with the process: all real clocks show the same time.
func Real() Clock { return realClock{} }

// Or is a clock, or Real where there is none.
func Or(c Clock) Clock {
	if c == nil {
		return Real()
	}
	return c
}

func (c realClock) Now() time.Duration { return time.Since(processStart) }

func (c realClock) Modelled() bool { return false }

func (c realClock) Sleep(ctx context.Context, d time.Duration) error {
	if err := ctx.Err(); err != nil || d <= 0 {
		return err
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
