package offload

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
)

// StoreFault is what goes wrong with a call of a Faulty store. Silent damage is not among them: a store that gives wrong bytes
// without an error breaks its contract; faults below a store are package vfs's.
type StoreFault uint8

// The faults.
const (
	FaultIO      StoreFault = iota + 1 // the device fails: EIO
	FaultCorrupt                       // reads: ErrCorrupt, after some bytes were filled
	FaultFull                          // writes: ErrFull
	FaultHang                          // the call ends when its context does, or at Release
)

// Faulty is a Store whose calls go wrong by a seed: the tier that fault tests of higher packages run on. Fields are set before
// use.
type Faulty struct {
	Store
	Seed   uint64
	Chance float64      // of each call of Read and Write
	Kinds  []StoreFault // drawn from; default FaultIO
	After  int64        // no fault before so many calls
	Only   func(write bool, recs []Record) bool

	mu      sync.Mutex
	rnd     *rand.Rand
	calls   int64
	struck  int64
	off     bool
	release chan struct{}
}

// Calls is how many reads and writes there were, and how many of them went wrong.
func (f *Faulty) Calls() (calls, struck int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls, f.struck
}

// Stop lets every call go well from now on, and what hangs go on.
func (f *Faulty) Stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.off = true
	if f.release != nil {
		close(f.release)
		f.release = nil
	}
}

// Read reads, or fails.
func (f *Faulty) Read(ctx context.Context, recs []Record) error {
	if err := f.strike(ctx, false, recs); err != nil {
		return err
	}
	return f.Store.Read(ctx, recs)
}

// Write writes, or fails and leaves what is stored as it was.
func (f *Faulty) Write(ctx context.Context, recs []Record) error {
	if err := f.strike(ctx, true, recs); err != nil {
		return err
	}
	return f.Store.Write(ctx, recs)
}

func (f *Faulty) strike(ctx context.Context, write bool, recs []Record) error {
	if len(recs) == 0 {
		return nil
	}
	f.mu.Lock()
	if f.rnd == nil {
		f.rnd = rand.New(rand.NewPCG(f.Seed, 60))
	}
	f.calls++
	p, pick := f.rnd.Float64(), f.rnd.Uint64()
	if f.off || f.calls <= f.After || p >= f.Chance || f.Only != nil && !f.Only(write, recs) {
		f.mu.Unlock()
		return nil
	}
	f.struck++
	kind := FaultIO
	if len(f.Kinds) > 0 {
		kind = f.Kinds[pick%uint64(len(f.Kinds))]
	}
	if kind == FaultHang && f.release == nil {
		f.release = make(chan struct{})
	}
	release := f.release
	f.mu.Unlock()
	switch {
	case kind == FaultHang:
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("offload: %s: %v: %w", f.Name(), recs[0].Key, ctx.Err())
		}
	case kind == FaultCorrupt && !write:
		for i := range recs[0].Data {
			recs[0].Data[i] ^= byte(pick)
		}
		return fmt.Errorf("offload: %s: %v: %w", f.Name(), recs[0].Key, ErrCorrupt)
	case kind == FaultFull && write:
		return fmt.Errorf("offload: %s: %v: %w", f.Name(), recs[0].Key, ErrFull)
	}
	return fmt.Errorf("offload: %s: %v: %w", f.Name(), recs[0].Key, syscall.EIO)
}
