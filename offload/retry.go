package offload

import (
	"context"
	"errors"
	"fmt"

	"terrace/csdshim"
	"terrace/internal/storage"
)

// failed is the error that callers get once nothing is retried any more: it wraps ErrTier, except where what the tier holds is
// as good as before.
func failed(err error) error {
	for _, asIs := range [...]error{nil, ErrFull, ErrClosed, ErrCancelled, ErrTier} {
		if errors.Is(err, asIs) {
			return err
		}
	}
	return fmt.Errorf("offload: %w: %w", ErrTier, err)
}

// attempts is how often an operation that ended with err is begun at most: as storage.Attempts says, but once where the caller or the drive
// refuses it. A drive that is being stopped may still take a last connection before its socket is gone, so that the second attempt
// meets it as well: an operation whose connection ended is begun a third time.
func attempts(err error) int {
	for _, stays := range [...]error{ErrClosed, ErrCancelled, ErrBusy, csdshim.ErrRequest, csdshim.ErrUnsupported} {
		if errors.Is(err, stays) {
			return 1
		}
	}
	n := storage.Attempts(err)
	if n > 1 && errors.Is(err, csdshim.ErrLost) {
		n = 3
	}
	return n
}

// Again reports whether an operation that failed with err, and has been begun so many times, is begun once more: for readers below
// this package, which is where the policy of retries is kept.
func Again(err error, made int) bool { return made < attempts(err) }

// again reports whether the runner has to start a transfer that ended with err once more.
func (tr *transfer) again(err error) bool {
	if tr.retries+1 >= attempts(err) {
		return false
	}
	q := tr.t.q
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || tr.t.cancelled {
		return false
	}
	tr.retries++
	q.stats.Retries++
	return true
}

// again makes a call that no queue carries, and retries it.
func (c *CSD) again(ctx context.Context, call func() error) error {
	err := call()
	for made := 1; made < attempts(err) && ctx.Err() == nil; made++ {
		c.mu.Lock()
		c.stats.Retries++
		c.mu.Unlock()
		err = call()
	}
	return failed(err)
}
