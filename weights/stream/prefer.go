package stream

import (
	"cmp"
	"slices"
)

// Bias says how far a text may be changed so that less is read; the zero value: not at all.
type Bias struct {
	// Margin: of the experts that a token would choose, one that its layer's part of the memory has no place for gives way to one that it
	// has, where that one's weight (what the router makes of its logit) is at least 1 − Margin of its own. 0 to below 1.
	Margin  float64
	Experts int // that a token uses; 0 = as many as the model has it
}

// On reports whether anything is changed.
func (b Bias) On() bool { return b != Bias{} }

// BiasUse are the accounts of a Bias.
type BiasUse struct {
	Choices int64 // experts that rows would have used, each once a row and layer
	Moved   int64 // of Choices: another expert was used in its place
	Dropped int64 // of Choices: none was used
}

// Chooser is what a router that has a Bias sees of a store. It belongs to one goroutine.
type Chooser struct {
	s     *Store
	order []int
	there []bool
}

// NewChooser returns one.
func NewChooser(s *Store) *Chooser { return &Chooser{s: s} }

// Preferred says of each expert of a layer whether the layer's part of the memory has room for it: those that were chosen most and
// latest (keep.go). It follows from the choices so far alone, not from which reads have come, so that a text is the same whenever it
// is made. nil: all have room, or the layer has no experts. It stays until the next call.
func (c *Chooser) Preferred(layer int) []bool {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if layer >= len(c.s.layers) || len(c.s.layers[layer].units) == 0 {
		return nil
	}
	l := &c.s.layers[layer]
	places := int(l.share / max(l.units[0].size, 1))
	if places >= len(l.units) {
		return nil
	}
	c.order, c.there = c.order[:0], append(c.there[:0], make([]bool, len(l.units))...)
	for e, u := range l.units {
		if u.keep.worth > 0 {
			c.order = append(c.order, e)
		}
	}
	slices.SortFunc(c.order, func(a, b int) int {
		return cmp.Or(cmp.Compare(l.units[b].keep.now(l.clock), l.units[a].keep.now(l.clock)), a-b)
	})
	for _, e := range c.order[:min(places, len(c.order))] {
		c.there[e] = true
	}
	return c.there
}

// Changed counts what a Bias has changed.
func (c *Chooser) Changed(u BiasUse) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	all := &c.s.account.use.Bias
	all.Choices += u.Choices
	all.Moved += u.Moved
	all.Dropped += u.Dropped
}
