package xla

import (
	"fmt"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"

	"terrace/model"
)

// Argmax implements model.Chooser: 8 bytes a row come down. The likeliest few are not offered: they would take as many runs
// over the logits as there are candidates (go-xla has no sort, and one of the whole row is dearer still), each dearer than the whole row's way to the host.
func (b *backend) Argmax() (ids []int32, finite []bool, err error) {
	h := b.logits.h
	if h == nil {
		return nil, nil, fmt.Errorf("xla: %s: likeliest tokens before any logits: %w", b.name, model.ErrUnsupported)
	}
	bucket := h.on.shape.Dim(0)
	n := len(h.host) * bucket / h.on.shape.Size()
	c := b.call(-1, n)
	c.add(h.on, nil)
	got, err := c.run("likeliest", func(in *params) []node {
		x := in.next()
		best := graph.ArgMax(x, 1, dtypes.Int32) // the first of equals
		usable := graph.ReduceMin(graph.ConvertDType(graph.IsFinite(x), dtypes.Int32), 1)
		return []node{graph.Concatenate([]node{best, usable}, 0)}
	})
	if err != nil {
		return nil, nil, err
	}
	defer got[0].free()
	both, err := b.device.readInts(got[0])
	if err != nil {
		return nil, nil, err
	}
	finite = make([]bool, n)
	for i := range finite {
		finite[i] = both[bucket+i] != 0
	}
	return both[:n], finite, nil
}
