package contexts

import (
	"context"
	"sync"
	"time"

	"terrace/internal/clock"
)

// throttle holds reads to a rate, one after another as over one link.
type throttle struct {
	clock clock.Clock
	rate  int64 // bytes a second

	mu   sync.Mutex
	free time.Duration // when the link has nothing more to do
}

// begin is when a read was asked for.
func (t *throttle) begin() time.Duration {
	if t == nil {
		return 0
	}
	return t.clock.Now()
}

// held waits until a read of some bytes, asked for at a time, would have come.
func (t *throttle) held(ctx context.Context, begun time.Duration, bytes int64) error {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	t.free = max(t.free, begun) + time.Duration(float64(bytes)/float64(t.rate)*float64(time.Second))
	until := t.free
	t.mu.Unlock()
	return t.clock.Sleep(ctx, until-t.clock.Now())
}
