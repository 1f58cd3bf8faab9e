package vfs

import (
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"terrace/internal/vfs/uring"
)

// Ring is what operations are submitted to and reaped from: the kernel's (uring.Ring says what each call does), or a model's.
type Ring interface {
	Depth() int
	Submit(reqs []uring.Request) (taken int, err error)
	Reap(out []uring.Result) []uring.Result
	AwaitSome(n int, most time.Duration) error
	Wake() error
	Close() error
}

// RingOptions say on whose time an engine of a ring runs; zero values mean the machine's.
type RingOptions struct {
	Name string                     // of the engine; default "io_uring"
	Go   func(f func())             // runs the engine's own goroutine
	Wait func(over <-chan struct{}) // waits until a channel is closed
	Took func()                     // is called behind calls of the ring, by who made them, when no lock is held
}

// ringEngine drives a file through a ring. Whoever starts operations submits them itself, in one system call; whoever
// polls reaps what has ended; a goroutine of its own sleeps in the kernel and reaps the rest.
type ringEngine struct {
	fd    int
	ring  Ring
	depth int
	o     RingOptions
	over  chan struct{} // the goroutine has ended

	mu       sync.Mutex
	ios      []*IO // under way, by tag
	free     []uint64
	waiting  []*IO // beyond the depth
	requests []uring.Request
	closed   bool
	broken   error // the ring's end

	reaping sync.Mutex // one reaps at a time
	results []uring.Result
}

func newRing(fd, depth int) (Engine, error) {
	r, err := uring.Open(depth)
	if err != nil {
		return nil, err
	}
	return NewRingEngine(r, fd, depth, RingOptions{}), nil
}

// NewRingEngine makes an engine for a file on a ring that is the engine's from here on.
func NewRingEngine(r Ring, fd, depth int, o RingOptions) Engine {
	if o.Name == "" {
		o.Name = "io_uring"
	}
	if o.Go == nil {
		o.Go = func(f func()) { go f() }
	}
	if o.Wait == nil {
		o.Wait = func(over <-chan struct{}) { <-over }
	}
	if o.Took == nil {
		o.Took = func() {}
	}
	e := &ringEngine{fd: fd, ring: r, depth: min(max(depth, 1), r.Depth()), o: o, over: make(chan struct{})}
	e.ios = make([]*IO, e.depth)
	for i := range e.ios {
		e.free = append(e.free, uint64(i))
	}
	o.Go(e.reap)
	return e
}

// Start submits what fits and keeps the rest.
func (e *ringEngine) Start(ios []*IO) {
	e.mu.Lock()
	e.waiting = append(e.waiting, ios...)
	failed := e.submit()
	if e.broken != nil {
		failed, e.waiting = append(failed, e.waiting...), nil
		for _, op := range failed {
			op.Err = e.broken
		}
	}
	e.mu.Unlock()
	e.o.Took()
	for _, op := range failed {
		op.Done(op)
	}
}

// submit starts what waits as far as the depth allows; e.mu is held. It returns operations that the kernel refused.
func (e *ringEngine) submit() (failed []*IO) {
	e.requests = e.requests[:0]
	for e.broken == nil && len(e.waiting) > 0 && len(e.free) > 0 {
		op := e.waiting[0]
		e.waiting[0] = nil
		e.waiting = e.waiting[1:]
		tag := e.free[len(e.free)-1]
		e.free = e.free[:len(e.free)-1]
		e.ios[tag] = op
		e.requests = append(e.requests, uring.Request{FD: e.fd, Write: op.Write, Off: op.Off, Bufs: op.Bufs, Tag: tag})
	}
	if len(e.requests) == 0 {
		return nil
	}
	taken, err := e.ring.Submit(e.requests)
	for _, q := range e.requests[taken:] { // the ring has room for the depth, so there is an error
		op := e.ios[q.Tag]
		e.ios[q.Tag] = nil
		e.free = append(e.free, q.Tag)
		op.N, op.Err = 0, err
		failed = append(failed, op)
	}
	clear(e.requests)
	return failed
}

// Poll reaps, unless somebody else does.
func (e *ringEngine) Poll() {
	if e.reaping.TryLock() {
		var done []*IO
		if !e.ended() { // the wake-up is the reaper's
			done = e.collect()
		}
		e.reaping.Unlock()
		e.o.Took()
		for _, op := range done {
			op.Done(op)
		}
	}
}

// collect takes the ended operations out and starts what waited for their places; e.reaping is held.
func (e *ringEngine) collect() (done []*IO) {
	e.results = e.ring.Reap(e.results[:0])
	if len(e.results) == 0 {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, res := range e.results {
		if res.Tag == uring.WakeTag {
			continue
		}
		op := e.ios[res.Tag]
		if op == nil {
			continue
		}
		e.ios[res.Tag] = nil
		e.free = append(e.free, res.Tag)
		if errors.Is(res.Err, syscall.EINTR) || errors.Is(res.Err, syscall.EAGAIN) {
			e.waiting = append(e.waiting, op)
			continue
		}
		op.N, op.Err = res.N, res.Err
		done = append(done, op)
	}
	return append(done, e.submit()...)
}

// reap is the engine's own goroutine.
func (e *ringEngine) reap() {
	defer close(e.over)
	for !e.ended() { // asked before each wait: what was collected last may have been the wake-up
		err := e.ring.AwaitSome(e.patience(), reapEach)
		if e.ended() {
			return
		}
		e.reaping.Lock()
		done := e.collect()
		e.reaping.Unlock()
		e.o.Took()
		if err != nil {
			done = append(done, e.giveUp(err)...)
		}
		for _, op := range done {
			op.Done(op)
		}
		if err != nil {
			return
		}
	}
}

// reapEach is how long what has ended may lie in the ring while nobody polls and more is under way.
const reapEach = time.Millisecond

// patience is how many operations must have ended for the goroutine to wake up: as many as leave the device enough to do
// while more is started. Waking for each would take a processor from whoever computes.
func (e *ringEngine) patience() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	n, bytes := 0, 0
	for _, op := range e.ios {
		if op != nil {
			n, bytes = n+1, bytes+op.Bytes()
		}
	}
	if bytes <= enoughBytes {
		return max(1, n)
	}
	return max(1, n-n*enoughBytes/bytes)
}

// enoughBytes under way keep a device busy for some 200 microseconds.
const enoughBytes = 256 << 10

// ended reports whether Close was called.
func (e *ringEngine) ended() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.closed
}

// giveUp fails all that is under way or waits, and all that will come: the kernel no longer answers for the ring.
func (e *ringEngine) giveUp(err error) (failed []*IO) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.broken = err
	failed = e.waiting
	e.waiting = nil
	for tag, op := range e.ios {
		if op != nil {
			failed = append(failed, op)
			e.ios[tag] = nil
		}
	}
	for _, op := range failed {
		op.N, op.Err = 0, err
	}
	return failed
}

// Name is "io_uring", or a model's.
func (e *ringEngine) Name() string { return e.o.Name }

// Depth is the number of operations under way at most.
func (e *ringEngine) Depth() int { return e.depth }

// Close ends the goroutine and gives the ring back.
func (e *ringEngine) Close() error {
	e.reaping.Lock()
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	err := e.ring.Wake()
	e.reaping.Unlock()
	if err == nil {
		e.o.Wait(e.over)
		err = e.ring.Close()
	}
	if err != nil {
		return fmt.Errorf("vfs: closing the ring: %w", err)
	}
	return nil
}
