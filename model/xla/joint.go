package xla

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"terrace/internal/trace"
)

// result is a value on the device, or what a program that waits will give. Its owner and every program that waits for it hold it;
// who lets go of it last frees it.
type result struct {
	buffer compute.Buffer
	from   *pending // nil: the value is there
	uses   int
}

// operand is one argument of a program, or absent.
type operand struct {
	r     *result
	shape shapes.Shape
}

func (o operand) absent() bool { return o.r == nil }

// bytes of the values.
func (o operand) bytes() int64 { return int64(o.shape.Size() * o.shape.DType.Size()) }

// owned is a value that lies on the device, with one owner.
func owned(buffer compute.Buffer, shape shapes.Shape) operand {
	return operand{&result{buffer: buffer, uses: 1}, shape}
}

// free lets go of a value; an absent one is nothing.
func (o *operand) free() {
	if r := o.r; r != nil {
		if r.uses--; r.uses == 0 {
			if r.from != nil {
				r.from.abandon()
			} else if r.buffer != nil {
				_ = r.buffer.Finalize()
			}
		}
	}
	*o = operand{}
}

// pending is a program that has not run: it runs as a part of the first one that needs a result of it, since launching a program
// costs more than a step's norms and products do.
type pending struct {
	stage    string
	operands []operand // held until it has run
	build    func(*params) []*graph.Node
	results  []operand
}

// later makes a program that waits, whose results will have the given shapes.
func later(stage string, operands []operand, build func(*params) []*graph.Node, of ...shapes.Shape) (*pending, []operand) {
	p := &pending{stage: stage, operands: slices.Clone(operands), build: build}
	for _, o := range operands {
		if !o.absent() {
			o.r.uses++
		}
	}
	for _, s := range of {
		p.results = append(p.results, operand{&result{from: p, uses: 1}, s})
	}
	return p, slices.Clone(p.results)
}

// abandon forgets a program when nobody wants any of its results any more.
func (p *pending) abandon() {
	if !slices.ContainsFunc(p.results, func(o operand) bool { return o.r.uses > 0 }) {
		p.release()
	}
}

// release lets go of the operands.
func (p *pending) release() {
	for i := range p.operands {
		p.operands[i].free()
	}
	p.operands = nil
}

// joint is a program with those that waited for it, in an order in which they can be computed; itself the last.
type joint struct {
	parts  []*pending
	inputs []operand          // what is there, each once
	number map[*result]string // in the key: i2 is the third input, r1.0 the first result of the second part
	key    strings.Builder
}

func join(p *pending) *joint {
	j := &joint{number: map[*result]string{}}
	j.add(p)
	return j
}

func (j *joint) add(p *pending) {
	for _, o := range p.operands {
		if !o.absent() && o.r.from != nil && j.number[o.r] == "" {
			j.add(o.r.from)
		}
	}
	if len(j.parts) > 0 {
		j.key.WriteString(" + ")
	}
	j.key.WriteString(p.stage)
	for _, o := range p.operands {
		switch name := j.number[o.r]; {
		case o.absent():
			j.key.WriteString(" -")
		case name != "":
			j.key.WriteString(" " + name)
		default:
			name = "i" + strconv.Itoa(len(j.inputs))
			j.number[o.r] = name
			j.inputs = append(j.inputs, o)
			j.key.WriteString(" " + name + "=" + o.shape.String())
		}
	}
	for i, o := range p.results {
		j.number[o.r] = fmt.Sprintf("r%d.%d", len(j.parts), i)
	}
	j.parts = append(j.parts, p)
}

// name is what the timeline calls it: the first words of its parts.
func (j *joint) name() string {
	words := make([]string, len(j.parts))
	for i, p := range j.parts {
		words[i], _, _ = strings.Cut(p.stage, " ")
	}
	return strings.Join(words, "+")
}

// build makes the nodes of all parts' results.
func (j *joint) build(g *graph.Graph) (out []*graph.Node, err error) {
	defer recovered(&err, "program "+j.key.String())
	nodes := map[*result]*graph.Node{}
	for i, o := range j.inputs {
		nodes[o.r] = graph.Parameter(g, fmt.Sprintf("p%d", i), o.shape)
	}
	for _, p := range j.parts {
		in := &params{nodes: make([]*graph.Node, len(p.operands))}
		for i, o := range p.operands {
			if !o.absent() {
				in.nodes[i] = nodes[o.r]
			}
		}
		got := p.build(in)
		for i, o := range p.results {
			if i >= len(got) || !got[i].Shape().Equal(o.shape) {
				return nil, fmt.Errorf("xla: %s: result %d is not %v", p.stage, i, o.shape)
			}
			nodes[o.r] = got[i]
		}
		out = append(out, got...)
	}
	return out, nil
}

// program returns the compiled program, building it at the first use.
func (d *device) program(j *joint) (*graph.Graph, error) {
	key := j.key.String()
	if g := d.programs[key]; g != nil {
		return g, nil
	}
	defer d.trace.Span(trace.Compute, "compile "+j.name()).By(d.name).End()
	g := graph.NewGraph(d.compute, j.name())
	out, err := j.build(g)
	if err != nil {
		return nil, err
	}
	if err := compile(g, out); err != nil {
		return nil, fmt.Errorf("xla: program %s: %w", key, err)
	}
	d.programs[key] = g
	d.counts.Programs++
	return g, nil
}

func compile(g *graph.Graph, out []*graph.Node) (err error) {
	defer recovered(&err, "program "+g.Name())
	return g.Compile(out...)
}

// run executes a program for a layer (-1: none), and what waited for it. The results stay on the device: the program's own are
// the caller's to free, the others' are now there. It returns when the device is done.
func (d *device) run(p *pending, layer int) (out []operand, err error) {
	j := join(p)
	g, err := d.program(j)
	if err != nil {
		return nil, err
	}
	defer recovered(&err, "program "+g.Name())
	buffers := make([]compute.Buffer, len(j.inputs))
	for i, o := range j.inputs {
		buffers[i] = o.r.buffer
	}
	d.counts.Runs++
	span := d.trace.Layer(trace.Device, g.Name(), layer).By(d.name)
	begun := time.Now()
	results := g.RunWithBuffers(buffers, make([]bool, len(buffers)), 0)
	d.counts.RunTime += time.Since(begun)
	span.End()
	values := make([]operand, len(results))
	for i, t := range results {
		shape := t.Shape()
		buffer, err := t.DonateBuffer(d.compute, 0)
		if err != nil {
			return nil, fmt.Errorf("xla: program %s: result %d: %w", g.Name(), i, err)
		}
		values[i] = owned(buffer, shape)
	}
	for _, part := range j.parts {
		for i := range part.results {
			part.results[i].r.take(values[i].r)
		}
		values = values[len(part.results):]
		part.release()
	}
	return values, nil
}

// take makes a computed value the result's; if nobody wants it any more it is freed.
func (r *result) take(v *result) {
	r.buffer, r.from = v.buffer, nil
	if r.uses == 0 {
		_ = r.buffer.Finalize()
	}
}

// force computes a value that waits.
func (d *device) force(o operand) error {
	if o.absent() || o.r.from == nil {
		return nil
	}
	_, err := d.run(o.r.from, -1)
	return err
}
