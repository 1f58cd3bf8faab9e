package kvmanager

import (
	"fmt"

	"terrace/internal/cacheshape"
)

// partOnDevice is what a device has of a layer's part of a state: a copy, of numbers that host memory has as well unless they are newer.
type partOnDevice struct {
	copy  cacheshape.StateCopy // nil = none
	newer bool
}

// partsAtOnce is how many layers' parts are on their way from a device at a time.
const partsAtOnce = 8

// Copies are a device's copies of what Layer hands out next of a layer, nil = there is none: of the state before, and of what the state behind
// is written over.
func (x *States) Copies(layer int) (from, to cacheshape.StateCopy) {
	before := &x.now
	if x.pending != nil && x.pending[layer] {
		before = &x.other
	}
	return before.part(layer).copy, x.other.part(layer).copy
}

// Keep says where the numbers are that were to be written to a layer's state behind the pass: on a device, which made the copy, or with nil
// where Layer said.
func (x *States) Keep(layer int, c cacheshape.StateCopy) {
	if x.other.device == nil {
		if c == nil {
			return
		}
		x.other.device = make([]partOnDevice, len(x.m.o.Layers))
	}
	p := &x.other.device[layer]
	if p.copy != nil && p.copy != c {
		p.copy.Drop()
	}
	*p = partOnDevice{c, c != nil}
}

// part is what a device has of a layer's.
func (c *stateCopy) part(layer int) partOnDevice {
	if c.device == nil {
		return partOnDevice{}
	}
	return c.device[layer]
}

// settle brings to host memory what only a device has.
func (c *stateCopy) settle(m *Manager) error {
	for first := 0; first < len(c.device); first += partsAtOnce {
		last := min(first+partsAtOnce, len(c.device))
		for i := first; i < last; i++ {
			if p := &c.device[i]; p.newer {
				if err := p.copy.Bring(); err != nil {
					return fmt.Errorf("kvmanager: state of layer %d: %w", i, err)
				}
			}
		}
		for i := first; i < last; i++ {
			p := &c.device[i]
			if !p.newer {
				continue
			}
			at, n := m.stateAt(i)
			if err := p.copy.Fetch(c.data[at : at+n]); err != nil {
				return fmt.Errorf("kvmanager: state of layer %d: %w", i, err)
			}
			p.newer = false
		}
	}
	return nil
}

// forget gives back what a device has: the numbers in host memory are others now, or go.
func (c *stateCopy) forget() {
	for i := range c.device {
		if p := &c.device[i]; p.copy != nil {
			p.copy.Drop()
		}
	}
	c.device = nil
}
