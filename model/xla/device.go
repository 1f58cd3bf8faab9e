package xla

import (
	"fmt"
	"sync"
	"time"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/gomlx/core/graph"

	"terrace/internal/trace"
)

// Counts tell what a backend has cost beside computing.
type Counts struct {
	Programs      int   // programs compiled
	Runs          int   // programs run
	Flashes       int   // of them with the device's own attention
	WeightBytes   int64 // weights uploaded, each once
	UploadBytes   int64 // activations, positions, keys and values uploaded
	KVBytes       int64 // keys and values on the device now
	KVPeakBytes   int64 // most ever
	Raised        int   // layers whose keys and values went up ahead
	DownloadBytes int64 // results read back

	RunTime, UpTime, DownTime time.Duration // of programs and transfers
}

// device is one gomlx backend with the programs compiled for it.
type device struct {
	name     string
	compute  compute.Backend
	programs map[string]*graph.Graph
	trace    *trace.Recorder

	upward, downward sync.Mutex          // one transfer at a time in each direction
	halves           []bfloat16.BFloat16 // what comes down before it is float32; under downward

	mu     sync.Mutex // of what transfers of several goroutines change of the counts
	counts Counts
}

// account changes the counts that transfers share.
func (d *device) account(change func(*Counts)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change(&d.counts)
}

// params hands a program's parameters out in the order of its operands; absent ones are nil.
type params struct {
	nodes []*graph.Node
	at    int
}

func (p *params) next() *graph.Node {
	p.at++
	return p.nodes[p.at-1]
}

// recovered turns a panic of gomlx, which reports mistakes so, into an error.
func recovered(err *error, what string) {
	if r := recover(); r != nil {
		if e, ok := r.(error); ok {
			*err = fmt.Errorf("xla: %s: %w", what, e)
		} else {
			*err = fmt.Errorf("xla: %s: %v", what, r)
		}
	}
}

func (d *device) close() {
	for _, g := range d.programs {
		g.Finalize()
	}
	d.programs = nil
	d.compute.Finalize()
}
