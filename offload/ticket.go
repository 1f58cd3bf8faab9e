package offload

import (
	"context"
	"fmt"
	"runtime"

	"terrace/internal/clock"
	"terrace/internal/trace"
)

// Ticket is a read or a write under way. Its methods may be called by many goroutines, any number of times.
type Ticket struct {
	q         *Queue
	priority  Priority // q.mu
	left      int      // transfers not ended
	err       error    // the first; final when done is closed
	done      chan struct{}
	cancelled bool // q.mu
}

// Done returns a channel that is closed when nothing of the ticket is under way any more: the records' Data belong to the
// caller again.
func (t *Ticket) Done() <-chan struct{} { return t.done }

// Ready reports whether the ticket is done.
func (t *Ticket) Ready() bool {
	select {
	case <-t.done:
		return true
	default:
		return false
	}
}

// Wait returns when the ticket is done, with the first error of its transfers. ErrFull, ErrClosed and ErrCancelled come as they
// are, any other error wraps ErrTier; what may pass was retried before. Transfers that still wait become Demand.
//
// If ctx ends first Wait cancels the ticket and returns an error that wraps ctx's; the records' Data belong to the queue until
// Done.
func (t *Ticket) Wait(ctx context.Context) error {
	if t.Ready() {
		return t.err
	}
	if t.q.run.poll(); t.Ready() {
		return t.err
	}
	t.urge()
	start := t.q.opt.Clock.Now()
	t.watch()
	clock.Wait(t.q.opt.Clock, t.done, ctx.Done())
	var err error
	if t.Ready() {
		err = t.err
	} else {
		t.Cancel()
		err = fmt.Errorf("offload: %s did not answer in time: %w", t.q.store.Name(), ctx.Err())
	}
	end := t.q.opt.Clock.Now()
	t.q.mu.Lock()
	t.q.stats.Stall += end - start
	t.q.stats.Waits++
	t.q.mu.Unlock()
	t.q.opt.Trace.Add(trace.Wait, t.q.store.Name(), start, end, 0)
	return err
}

// watch polls for a while: what ends soon is taken without anybody being woken.
func (t *Ticket) watch() {
	for range 256 {
		for range 16 {
			if !t.q.run.poll() || t.Ready() {
				return
			}
		}
		runtime.Gosched()
	}
}

// urge makes what waits Demand.
func (t *Ticket) urge() {
	q := t.q
	q.mu.Lock()
	defer q.mu.Unlock()
	if t.priority != Demand {
		moved := q.take(t)
		t.priority = Demand
		q.waiting[Demand] = append(q.waiting[Demand], moved...)
	}
}

// Cancel drops the transfers that have not begun and does not wait: the ticket is done, with ErrCancelled, once those that have
// begun have ended.
func (t *Ticket) Cancel() {
	q := t.q
	q.mu.Lock()
	defer q.mu.Unlock()
	t.cancelled = true
	for _, tr := range q.take(t) {
		q.records -= tr.records
		q.run.abandon(tr)
		t.ended(fmt.Errorf("offload: queue of %s: %w", q.store.Name(), ErrCancelled))
	}
	q.idle.Broadcast()
}

// ended books one transfer; q.mu is held.
func (t *Ticket) ended(err error) {
	if t.err == nil {
		t.err = failed(err)
	}
	if t.left--; t.left == 0 {
		close(t.done)
	}
}

// finish ends a ticket that has no transfers.
func (t *Ticket) finish(err error) {
	t.err = failed(err)
	close(t.done)
}
