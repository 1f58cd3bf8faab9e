package csdshim

import (
	"context"
	"sync"
	"time"
)

// selfClock is a modelled clock that moves itself: whoever sleeps is at once where he would wake up. A drive on it accounts
// time as if its clients did nothing but wait for it.
type selfClock struct {
	mu  sync.Mutex
	now time.Duration
}

func (c *selfClock) Now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *selfClock) Sleep(ctx context.Context, d time.Duration) error {
	if d > 0 {
		c.mu.Lock()
		c.now += d
		c.mu.Unlock()
	}
	return ctx.Err()
}

func (c *selfClock) Modelled() bool { return true }
