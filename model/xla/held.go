package xla

import (
	"gorgonia.org/tensor"
)

// held is the engine of a tensor that stays on the device until its values are read (model.Remote).
type held struct {
	tensor.StdEng
	d       *device
	on      operand // [bucket, cols]; absent once freed
	host    []float32
	ids     []int32 // tokens of hidden rows, where layers are given something of them
	fetched bool
	wrote   bool
}

// Fetch implements model.Remote. What waits to be computed is computed first, by the caller of a pass alone.
func (h *held) Fetch() error {
	if h.fetched || h.on.absent() {
		return nil
	}
	if err := h.d.force(h.on); err != nil {
		return err
	}
	h.fetched = true
	return h.d.read(h.host, h.on)
}

// Wrote implements model.Remote.
func (h *held) Wrote() { h.wrote = true }

// slot is the place of one call's result: it holds until the call's next one.
type slot struct {
	h    *held
	host []float32
}

// put makes the first n rows of a result the slot's tensor and frees the one before.
func (s *slot) put(d *device, o operand, n int) *tensor.Dense {
	s.free()
	cols := o.shape.Size() / o.shape.Dim(0)
	if cap(s.host) < n*cols {
		s.host = make([]float32, n*cols)
	}
	s.h = &held{d: d, on: o, host: s.host[:n*cols]}
	return tensor.New(tensor.WithShape(n, cols), tensor.WithBacking(s.h.host), tensor.WithEngine(s.h))
}

func (s *slot) free() {
	if s.h != nil {
		s.h.on.free()
		s.h = nil
	}
}

// onDevice is where the values of a tensor lie on this device, if they do.
func (d *device) onDevice(t *tensor.Dense) (operand, bool) {
	h, ok := t.Engine().(*held)
	if !ok || h.d != d || h.wrote || h.on.absent() {
		return operand{}, false
	}
	return h.on, true
}
