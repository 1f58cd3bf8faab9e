package model

import (
	"sync"
	"sync/atomic"
)

// aheadBytes is how much of the weights, at most, is read and checked before the first pass asks for it: small models whole.
const aheadBytes = 128 << 20

// ReadAhead begins to read and check weights for the native backend in the order of a pass, on a core that is idle while the tokenizer
// is built and the prompt is prepared. A pass that comes to a weight that is being read waits for it; errors are those that it would
// have had itself. end returns when nothing is read any more: call it before the model's file is closed.
func (m *Model) ReadAhead() (end func()) {
	var stop atomic.Bool
	var done sync.WaitGroup
	done.Go(func() { m.readAhead(&stop) })
	return func() {
		stop.Store(true)
		done.Wait()
	}
}

func (m *Model) readAhead(stop *atomic.Bool) {
	left := aheadBytes
	read := func(linears ...*Linear) bool {
		for _, l := range linears {
			if l.Absent() {
				continue
			}
			if left -= l.Rows * l.Tensor.Type.RowBytes(l.Cols); left < 0 || stop.Load() {
				return false
			}
			if _, _, err := l.Matrix(); err != nil { // which the pass that needs it reports
				return false
			}
		}
		return true
	}
	if !read(m.Params.Embed) {
		return
	}
	for i := range m.Params.Layers {
		l := &m.Params.Layers[i]
		if !read(l.linears()...) {
			return
		}
	}
}
