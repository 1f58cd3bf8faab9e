package engine

import (
	"context"
	"errors"
	"fmt"

	"terrace/offload"
)

// moving is a read or write of the lower tier as a transfer of kvmanager. One that failed in a way that may pass (an I/O
// error, a record that did not match its checksum, a drive whose connection ended) is begun once more by whoever waits.
type moving struct {
	*offload.Ticket
	begin func(again bool) *offload.Ticket
	again bool
}

func newMoving(begin func(again bool) *offload.Ticket) *moving {
	return &moving{Ticket: begin(false), begin: begin}
}

// Wait implements kvmanager.Transfer. What fails twice is ErrTier, or ErrFull as it is.
func (m *moving) Wait(ctx context.Context) error {
	err := m.Ticket.Wait(ctx)
	if err == nil || !m.Ready() {
		return err
	}
	if !m.again && passing(err) {
		m.again = true
		m.Ticket = m.begin(true)
		return m.Wait(ctx)
	}
	if errors.Is(err, offload.ErrFull) || errors.Is(err, offload.ErrClosed) || errors.Is(err, offload.ErrCancelled) {
		return err
	}
	return fmt.Errorf("engine: %w: %w", ErrTier, err)
}

// passing reports whether the same transfer may succeed when it is tried again.
func passing(err error) bool {
	for _, e := range [...]error{offload.ErrFull, offload.ErrMissing, offload.ErrClosed, offload.ErrCancelled, offload.ErrBusy, offload.ErrShape} {
		if errors.Is(err, e) {
			return false
		}
	}
	return true
}

// Done implements kvmanager.Transfer.
func (m *moving) Done() bool { return m.Ready() }
