package kvmanager

import (
	"context"
	"fmt"
	"time"

	"terrace/internal/clock"
	"terrace/offload"
)

// stallTimeout is how long a transfer may take before the request fails.
const stallTimeout = 30 * time.Second

// Await waits for a ticket of some records; ErrStalled where it is not done in time by the cache's clock: then the store may
// still read or write the records' memory, until the ticket is done. What may be tried again the queue has tried.
func (m *Manager) Await(t *offload.Ticket, records int) error {
	if t.Ready() {
		return t.Wait(context.Background())
	}
	ctx, cancel := clock.WithTimeout(context.Background(), m.o.Clock, stallTimeout)
	defer cancel()
	err := t.Wait(ctx)
	if ctx.Err() != nil && !t.Ready() {
		return fmt.Errorf("kvmanager: a transfer of %d records: %w after %v", records, ErrStalled, stallTimeout)
	}
	return err
}
