package clock

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Events is a clock on which one goroutine runs at a time: a discrete-event simulation of code that was not written for one. Its
// goroutines are tasks: the one that made the clock, and those that Go starts. A task runs until it sleeps or waits (Sleep,
// Wait); then the next one that can go on does, in the order in which they became able to, and where none can, the clock moves to
// the time of the next sleeper. So what runs on it does the same each time, on any number of processors.
//
// Only tasks may call Sleep, Go and Wait. What no task does (workers that compute for the task that waits for them) takes no time.
type Events struct {
	mu      sync.Mutex
	now     time.Duration
	waiting []*waiter // in the order in which they came

	// Cost says what work takes on the host's cores; nil = nothing. Set it before anything runs.
	Cost func(w Work, n int64)
}

// waiter is a task that does not run.
type waiter struct {
	at    time.Duration // when it goes on; forever for none
	any   []<-chan struct{}
	ready bool // it has its turn as soon as the one that runs waits
	wake  chan struct{}
}

const forever = time.Duration(1<<63 - 1)

// NewEvents returns a clock that shows 0, whose only task is the caller.
func NewEvents() *Events { return &Events{} }

// Now is the time of the task that runs.
func (c *Events) Now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Modelled is true.
func (c *Events) Modelled() bool { return true }

// Sleep lets others run until the clock has moved by d, or ctx has ended.
func (c *Events) Sleep(ctx context.Context, d time.Duration) error {
	if err := ctx.Err(); err != nil || d <= 0 {
		return err
	}
	c.park(&waiter{at: c.Now() + d, any: []<-chan struct{}{ctx.Done()}})
	return ctx.Err()
}

// Go starts a task; it runs once the one that calls waits.
func (c *Events) Go(f func()) {
	w := &waiter{at: forever, ready: true, wake: make(chan struct{})}
	c.mu.Lock()
	c.waiting = append(c.waiting, w)
	c.mu.Unlock()
	go func() {
		<-w.wake
		defer c.leave()
		f()
	}()
}

// Wait lets others run until one of some channels is closed; a nil channel never is.
func (c *Events) Wait(any ...<-chan struct{}) {
	if !closed(any) {
		c.park(&waiter{at: forever, any: any})
	}
}

// park gives the turn away and returns when it is back.
func (c *Events) park(w *waiter) {
	w.wake = make(chan struct{})
	c.mu.Lock()
	c.waiting = append(c.waiting, w)
	c.next()
	c.mu.Unlock()
	<-w.wake
}

// leave gives the turn away for good.
func (c *Events) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) > 0 {
		c.next()
	}
}

// next wakes the first task that can go on, after moving the clock where none can. c.mu is held.
func (c *Events) next() {
	first, least := -1, forever
	for i, w := range c.waiting {
		if w.ready || closed(w.any) || w.at <= c.now {
			first = i
			break
		}
		least = min(least, w.at)
	}
	if first < 0 {
		if least == forever {
			panic("clock: every task waits for another")
		}
		c.now = least
		first = slices.IndexFunc(c.waiting, func(w *waiter) bool { return w.at == least })
	}
	w := c.waiting[first]
	c.waiting = slices.Delete(c.waiting, first, first+1)
	close(w.wake)
}

func closed(any []<-chan struct{}) bool {
	for _, ch := range any {
		select {
		case <-ch:
			return true
		default:
		}
	}
	return false
}

// Work is what code that may run on an Events clock does on the host's cores beside calling a backend.
type Work uint8

// The kinds of work, and what n counts.
const (
	Scan   Work = iota // bytes of half-precision keys and values whose keys are scored to choose from, whatever they are scored in
	Gather             // bytes of keys and values that a token cache copies together
	Ask                // records, or single tokens, that a backing store is asked for in one read
	Take               // bytes of one operation of a device that have come: they are compared with their checksums and put in place
	Works              // how many kinds there are
)

// Spend says that the caller has done some work: on an Events clock that has costs it takes its time there, on any other it has
// taken it already. The caller holds no lock.
func Spend(c Clock, w Work, n int64) {
	switch c := c.(type) {
	case *Events:
		if c.Cost != nil && n > 0 {
			c.Cost(w, n)
		}
	case *Metered:
		c.spent(w, n)
	}
}

// Go runs f beside the caller: as a task on an Events clock, in a goroutine on any other; nil is Real.
func Go(c Clock, f func()) {
	if e, ok := c.(*Events); ok {
		e.Go(f)
		return
	}
	go f()
}

// Wait returns when one of two channels is closed, of which the second may be nil; on an Events clock other tasks run until then.
func Wait(c Clock, a, b <-chan struct{}) {
	if e, ok := c.(*Events); ok {
		e.Wait(a, b)
		return
	}
	select {
	case <-a:
	case <-b:
	}
}
