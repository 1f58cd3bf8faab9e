package vfs

import (
	"errors"
	"io"
	"sync"
)

// threads is the engine that every system has: goroutines that block in reads and writes.
type threads struct {
	f     File
	depth int
	wg    sync.WaitGroup

	mu      sync.Mutex
	waiting []*IO
	running int
}

func newThreads(f File, depth int) *threads { return &threads{f: f, depth: max(depth, 1)} }

// Start lets up to depth goroutines work through the list.
func (e *threads) Start(ios []*IO) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.waiting = append(e.waiting, ios...)
	for e.running < e.depth && e.running < len(e.waiting) {
		e.running++
		e.wg.Go(e.work)
	}
}

// work runs until nothing waits.
func (e *threads) work() {
	for {
		e.mu.Lock()
		if len(e.waiting) == 0 {
			e.running--
			e.mu.Unlock()
			return
		}
		op := e.waiting[0]
		e.waiting[0] = nil
		e.waiting = e.waiting[1:]
		e.mu.Unlock()
		if op.Write {
			op.N, op.Err = e.f.WriteVecAt(op.Bufs, op.Off)
		} else {
			op.N, op.Err = e.f.ReadVecAt(op.Bufs, op.Off)
			if errors.Is(op.Err, io.EOF) {
				op.Err = nil
			}
		}
		op.Done(op)
	}
}

// Poll has nothing to do: the goroutines call Done themselves.
func (e *threads) Poll() {}

// Name is "threads".
func (e *threads) Name() string { return "threads" }

// Depth is the number of goroutines.
func (e *threads) Depth() int { return e.depth }

// Close waits for the goroutines.
func (e *threads) Close() error {
	e.wg.Wait()
	return nil
}
