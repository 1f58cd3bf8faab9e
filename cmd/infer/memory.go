package main

import (
	"fmt"
	"math"
	"runtime/debug"

	"terrace/engine"
	"terrace/internal/units"
	"terrace/model"
)

// memoryLimit is one bound on this process's memory.
type memoryLimit struct {
	what    string // as the user knows it
	bytes   int64  // of the limit
	free    int64  // of it
	mapped  bool   // mapped files count
	process bool   // it bounds this process (or its group) rather than the machine
}

// availableBytes is what can be used without swapping, under every limit that is known; 0 where none is.
func availableBytes() int64 {
	least := int64(0)
	for _, l := range memoryLimits() {
		if free := max(l.free, 1); least == 0 || free < least {
			least = free
		}
	}
	return least
}

// runtimeBytes is the address space that the Go runtime grows by when the heap does.
const runtimeBytes = 64 << 20

// checkMemory refuses a model before any work where what it needs at least, an empty cache included, does not fit what bounds
// this process. The weights are mapped already: they count where a limit counts mapped files, and are counted as used there.
func checkMemory(name string, m *model.Model, o engine.Options) error {
	if err := o.Validate(m); err != nil {
		return nil // engine.Open says so
	}
	need := engine.Fit(m, o, 0).BuffersBytes + engine.KVBytes(m, o, 1)
	for _, l := range memoryLimits() {
		want := need
		if l.mapped {
			want += runtimeBytes
		}
		if l.process && l.free < want {
			return fmt.Errorf("%s needs %s beside its weights before the first token, %s of %s has %s left: raise it, or take a smaller model or --chunk-tokens: %w",
				name, units.FormatBytes(want), l.what, units.FormatBytes(l.bytes), units.FormatBytes(max(l.free, 0)), engine.ErrMemory)
		}
	}
	return nil
}

// boundHeap has garbage collected in time under the limits of this process, unless GOMEMLIMIT says when. A tenth is left to what is
// not the collector's: mapped weights, KV pages and stacks of the system.
func boundHeap() {
	if debug.SetMemoryLimit(-1) != math.MaxInt64 {
		return
	}
	least := int64(0)
	for _, l := range memoryLimits() {
		if l.process && (least == 0 || l.bytes < least) {
			least = l.bytes
		}
	}
	if least > 0 {
		debug.SetMemoryLimit(least / 10 * 9)
	}
}
