package offload

import (
	"context"
	"errors"
	"fmt"

	"terrace/csdshim"
)

// passing reports whether what failed may succeed when it is done again: an I/O error, a record that did not match its
// checksum, a drive that does not answer. A tier that is full, a record that is not there and a mistake of the caller's stay
// what they are.
func passing(err error) bool {
	for _, stays := range [...]error{ErrFull, ErrMissing, ErrClosed, ErrCancelled, ErrBusy, ErrShape, csdshim.ErrRequest, csdshim.ErrUnsupported} {
		if errors.Is(err, stays) {
			return false
		}
	}
	return err != nil
}

// failed is the error that a caller gets once nothing is tried any more: ErrTier, except for what says nothing against the
// tier's content.
func failed(err error) error {
	for _, asIs := range [...]error{nil, ErrFull, ErrClosed, ErrCancelled, ErrTier} {
		if errors.Is(err, asIs) {
			return err
		}
	}
	return fmt.Errorf("offload: %w: %w", ErrTier, err)
}

// again reports whether a transfer that ended with err is to be begun a second time, which the runner then does.
func (tr *transfer) again(err error) bool {
	if tr.retried || !passing(err) {
		return false
	}
	q := tr.t.q
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || tr.t.cancelled {
		return false
	}
	tr.retried = true
	q.stats.Retries++
	return true
}

// again does a call that no queue carries, a second time where that may help.
func (c *CSD) again(ctx context.Context, call func() error) error {
	err := call()
	if passing(err) && ctx.Err() == nil {
		c.mu.Lock()
		c.stats.Retries++
		c.mu.Unlock()
		err = call()
	}
	return failed(err)
}
