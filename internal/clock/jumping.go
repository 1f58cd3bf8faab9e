package clock

import (
	"context"
	"sync"
	"time"
)

// Jumping is a clock that moves itself: whoever sleeps is at once where he would wake up. What runs on it accounts for time
// as if nothing took any but waiting.
type Jumping struct {
	mu  sync.Mutex
	now time.Duration
}

// NewJumping returns a clock that shows 0.
func NewJumping() *Jumping { return &Jumping{} }

// Now is how long was slept so far, by all together.
func (c *Jumping) Now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Sleep moves the clock by d and returns at once, with the error of ctx.
func (c *Jumping) Sleep(ctx context.Context, d time.Duration) error {
	if err := ctx.Err(); err != nil || d <= 0 {
		return err
	}
	c.move(d)
	return nil
}

func (c *Jumping) move(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now += d
}

// Modelled is true.
func (c *Jumping) Modelled() bool { return true }
