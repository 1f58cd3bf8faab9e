package clock

import (
	"context"
	"time"
)

// Skipping is the machine's clock without waiting: a sleeper returns at once, and the clock has gone on by what he would have slept.
// Work takes the time that it takes. It is for one worker whose waits are the only ones: what others do meanwhile is not hurried.
type Skipping struct {
	skipped Jumping
}

// NewSkipping returns a clock that shows what Real shows, until somebody sleeps.
func NewSkipping() *Skipping { return &Skipping{} }

// Now is the machine's time and all that was skipped.
func (c *Skipping) Now() time.Duration { return Real().Now() + c.skipped.Now() }

// Sleep moves the clock by d and returns at once, with the error of ctx.
func (c *Skipping) Sleep(ctx context.Context, d time.Duration) error { return c.skipped.Sleep(ctx, d) }

// Untimed does work that takes no time on the clock.
func (c *Skipping) Untimed(work func()) {
	begun := Real().Now()
	work()
	c.skipped.move(begun - Real().Now())
}

// Modelled is false: times between two moments without a sleep between them are measured, sleeps are exact.
func (c *Skipping) Modelled() bool { return false }
