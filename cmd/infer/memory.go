package main

import (
	"math"
	"runtime/debug"

	"terrace/internal/memlimit"
)

// boundHeap has garbage collected in time under the limits of this process, unless GOMEMLIMIT says when. A tenth is left to what is
// not the collector's: mapped weights, KV pages and stacks of the system.
func boundHeap() {
	if debug.SetMemoryLimit(-1) != math.MaxInt64 {
		return
	}
	least := int64(0)
	for _, l := range memlimit.All() {
		if l.Process && (least == 0 || l.Bytes < least) {
			least = l.Bytes
		}
	}
	if least > 0 {
		debug.SetMemoryLimit(least / 10 * 9)
	}
}
