package xla

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"terrace/internal/trace"
)

// Counts tell what a backend has cost beside computing.
type Counts struct {
	Programs      int   // programs compiled
	Runs          int   // programs run
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

	upward, downward sync.Mutex // one transfer at a time in each direction

	mu     sync.Mutex // of what transfers of several goroutines change of the counts
	counts Counts
}

// account changes the counts that transfers share.
func (d *device) account(change func(*Counts)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change(&d.counts)
}

// operand is one argument of a program: a buffer on the device, or absent.
type operand struct {
	buffer compute.Buffer
	shape  shapes.Shape
}

func (o operand) absent() bool { return o.buffer == nil }

// bytes of the values.
func (o operand) bytes() int64 { return int64(o.shape.Size() * o.shape.DType.Size()) }

// params hands a program's parameters out in the order of its operands; absent ones are nil.
type params struct {
	nodes []*graph.Node
	at    int
}

func (p *params) next() *graph.Node {
	p.at++
	return p.nodes[p.at-1]
}

// program returns the compiled program of a key and its operands' shapes, building it at the first use.
func (d *device) program(stage string, operands []operand, build func(*params) []*graph.Node) (g *graph.Graph, err error) {
	key := stage
	for _, o := range operands {
		if o.absent() {
			key += " -"
		} else {
			key += " " + o.shape.String()
		}
	}
	if g := d.programs[key]; g != nil {
		return g, nil
	}
	defer recovered(&err, "program "+key)
	defer d.trace.Span(trace.Compute, "compile "+word(stage)).By(d.name).End()
	g = graph.NewGraph(d.compute, stage)
	p := &params{nodes: make([]*graph.Node, len(operands))}
	for i, o := range operands {
		if !o.absent() {
			p.nodes[i] = graph.Parameter(g, fmt.Sprintf("p%d", i), o.shape)
		}
	}
	if err := g.Compile(build(p)...); err != nil {
		return nil, fmt.Errorf("xla: program %s: %w", key, err)
	}
	d.programs[key] = g
	d.counts.Programs++
	return g, nil
}

// word is the first word of a program's name.
func word(stage string) string {
	first, _, _ := strings.Cut(stage, " ")
	return first
}

// run executes a program for a layer (-1: none); its results stay on the device and are the caller's to free. It returns when
// the device is done.
func (d *device) run(g *graph.Graph, layer int, operands []operand) (out []operand, err error) {
	defer recovered(&err, "program "+g.Name())
	buffers := make([]compute.Buffer, 0, len(operands))
	for _, o := range operands {
		if !o.absent() {
			buffers = append(buffers, o.buffer)
		}
	}
	d.counts.Runs++
	span := d.trace.Layer(trace.Device, word(g.Name()), layer).By(d.name)
	begun := time.Now()
	results := g.RunWithBuffers(buffers, make([]bool, len(buffers)), 0)
	d.counts.RunTime += time.Since(begun)
	span.End()
	out = make([]operand, len(results))
	for i, t := range results {
		shape := t.Shape()
		buffer, err := t.DonateBuffer(d.compute, 0)
		if err != nil {
			return nil, fmt.Errorf("xla: program %s: result %d: %w", g.Name(), i, err)
		}
		out[i] = operand{buffer, shape}
	}
	return out, nil
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

// free gives a buffer back; an absent one is nothing.
func (o *operand) free() {
	if !o.absent() {
		_ = o.buffer.Finalize()
	}
	*o = operand{}
}

func (d *device) close() {
	for _, g := range d.programs {
		g.Finalize()
	}
	d.programs = nil
	d.compute.Finalize()
}
