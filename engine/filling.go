package engine

import (
	"errors"

	"gorgonia.org/tensor"
)

// filling is a layer's new keys and values on their way from the backend's device into their pages, while the device goes on
// with the layer and projects the next one.
type filling struct {
	done chan struct{}
	err  error
}

// take takes a pass's new keys and values into the cache, at once or while the device goes on.
func (e *Engine) take(sessions []*Session, kind passKind, layer int, k, v *tensor.Dense) error {
	if e.overlaps(sessions, kind) {
		return e.appendLater(sessions[0], layer, k, v)
	}
	return e.append(sessions, layer, floats(k), floats(v))
}

// overlaps reports whether a pass leaves the download of keys and values to another goroutine.
func (e *Engine) overlaps(sessions []*Session, kind passKind) bool {
	return e.keeper != nil && kind.prefill && len(sessions) == 1 && !e.o.Rotate && e.kv.DefersAppend()
}

// appendLater takes a layer's new tokens into the cache; their bytes follow.
func (e *Engine) appendLater(s *Session, layer int, k, v *tensor.Dense) error {
	if err := e.awaitFilling(); err != nil {
		return err
	}
	s.work.projected(e.m, layer, len(e.pass.Pos))
	fill, err := s.seq.AppendLater(layer, e.pass.Pos)
	if err != nil {
		return err
	}
	f := &filling{done: make(chan struct{})}
	e.filling = f
	go func() {
		defer close(f.done)
		f.err = guarded(func() error {
			fill(floats(k), floats(v))
			return nil
		})
	}()
	return nil
}

// awaitFilling waits until the pages hold what was projected.
func (e *Engine) awaitFilling() error {
	if e.filling == nil {
		return nil
	}
	f := e.filling
	<-f.done
	e.filling = nil
	return f.err
}

// raise begins to copy the next layer's keys and values to the device while it computes this one. Selecting policies read few
// of them, lower tiers have not brought them to host memory yet: these go up when the layer needs them.
func (e *Engine) raise(sessions []*Session, kind passKind, next int) {
	if e.keeper == nil || e.tiers != nil || next >= e.m.Layers || next == e.m.Layers-1 && kind.want == 0 {
		return
	}
	for _, s := range sessions {
		if s.policy == nil || s.policy.set.Selector == nil {
			e.keeper.RaiseKV(next, s.seq.Views(next))
		}
	}
}

// landed ends a pass: nothing is on its way between host and device.
func (e *Engine) landed(err error) error {
	e.keeper.SettleKV()
	return errors.Join(err, e.awaitFilling())
}
