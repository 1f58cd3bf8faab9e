package clock

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Virtual is a clock that stands still until Advance moves it. Sleepers wake in the order of their times, those of one
// time in the order in which they went to sleep.
type Virtual struct {
	mu       sync.Mutex
	now      time.Duration
	sleepers []*sleeper // by time, then by arrival
	changed  chan struct{}
}

type sleeper struct {
	at   time.Duration
	wake chan struct{}
}

// NewVirtual returns a clock that shows 0.
func NewVirtual() *Virtual { return &Virtual{changed: make(chan struct{})} }

// Now is the virtual time.
func (c *Virtual) Now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Modelled is true.
func (c *Virtual) Modelled() bool { return true }

// Sleep waits until Advance has moved the clock by d, or until ctx ends.
func (c *Virtual) Sleep(ctx context.Context, d time.Duration) error {
	if err := ctx.Err(); err != nil || d <= 0 {
		return err
	}
	c.mu.Lock()
	s := &sleeper{at: c.now + d, wake: make(chan struct{})}
	i, _ := slices.BinarySearchFunc(c.sleepers, s.at, func(o *sleeper, at time.Duration) int {
		if o.at <= at {
			return -1
		}
		return 1
	})
	c.sleepers = slices.Insert(c.sleepers, i, s)
	close(c.changed)
	c.changed = make(chan struct{})
	c.mu.Unlock()
	select {
	case <-s.wake:
		return nil
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sleepers = slices.DeleteFunc(c.sleepers, func(o *sleeper) bool { return o == s })
	return ctx.Err()
}

// Advance moves the clock by d and wakes every sleeper whose time has come.
func (c *Virtual) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.to(c.now + d)
}

// AdvanceToNext moves the clock to the next sleeper's time and wakes all of that time; false where nobody sleeps.
func (c *Virtual) AdvanceToNext() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.sleepers) == 0 {
		return false
	}
	c.to(c.sleepers[0].at)
	return true
}

func (c *Virtual) to(t time.Duration) {
	c.now = max(c.now, t)
	for len(c.sleepers) > 0 && c.sleepers[0].at <= c.now {
		close(c.sleepers[0].wake)
		c.sleepers = c.sleepers[1:]
	}
}

// AwaitSleepers waits until n sleepers are waiting, or until ctx ends.
func (c *Virtual) AwaitSleepers(ctx context.Context, n int) error {
	for {
		c.mu.Lock()
		got, changed := len(c.sleepers), c.changed
		c.mu.Unlock()
		if got >= n {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
