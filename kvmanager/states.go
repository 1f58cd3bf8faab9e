package kvmanager

import (
	"errors"
	"fmt"
	"slices"
)

// States is what a sequence keeps beside its KV: the fixed-size state of its recurrent layers, all layers in one piece of memory. There
// are two copies: the state after the tokens that are read, and the one that a pass in progress writes, which was the state before
// the last pass until then. Others are kept at chosen places (Save); they are never written. Of the two the newest numbers may be on a
// device (statecopies.go), until they are saved, forked, stored or appended.
type States struct {
	m          *Manager
	now, other stateCopy
	pending    []bool // [layers] the pass in progress has written the layer's part of other; nil = there is no such pass
	saved      []*stateCopy
	pin        int32 // what is saved of these first tokens stays; 0 = nothing does

	suspended bool   // Sequence.Suspend
	home      uint64 // under which the backing store has the state of a suspended sequence; 0 = it has none
}

// stateCopy is the state of all layers after some tokens; data nil = unknown, but after none: zeros.
type stateCopy struct {
	at    int32
	data  []float32
	users int // sequences that have it saved

	device []partOnDevice // [layers]; nil = none has any of it. What is saved has none
}

// MostSavedStates is how many states a sequence keeps for a text that is taken back; the oldest go first.
const MostSavedStates = 4

// stateAt is where a layer's state begins among all, in numbers, and its length.
func (m *Manager) stateAt(layer int) (first, n int) {
	for i := range layer {
		first += m.o.Layers[i].State.Bytes / 4
	}
	return first, m.o.Layers[layer].State.Bytes / 4
}

// StateBytes is one copy of the state of a sequence.
func (m *Manager) StateBytes() int64 { return m.o.Layers.StateBytes() }

// Reserve makes room for the sequence's state before its first pass; ErrBudget where there is none.
func (x *States) Reserve() error {
	size := x.m.StateBytes()
	if size == 0 || x.now.data != nil {
		return nil
	}
	if err := x.m.Charge(2 * size); err != nil {
		return fmt.Errorf("kvmanager: state of %d bytes, twice: %w", size, err)
	}
	x.now.data, x.other.data = make([]float32, size/4), make([]float32, size/4)
	x.other.at = -1
	return nil
}

// Layer is a layer's state before the next rows of the pass in progress, and where it is to be after them: the same memory from the
// second time in a pass on. Commit ends the pass; Truncate takes it back.
func (x *States) Layer(layer int) (from, to []float32, err error) {
	if err := x.Reserve(); err != nil {
		return nil, nil, err
	}
	if x.pending == nil {
		x.pending, x.other.at = make([]bool, len(x.m.o.Layers)), -1
	}
	first, n := x.m.stateAt(layer)
	to = x.other.data[first : first+n : first+n]
	if from = to; !x.pending[layer] {
		from = x.now.data[first : first+n : first+n]
	}
	x.pending[layer] = true
	return from, to, nil
}

// Commit says that the rows of the pass in progress are read, which brought the text to that many tokens.
func (x *States) Commit(tokens int32) {
	if x.pending == nil {
		return
	}
	x.pending, x.other.at = nil, tokens
	x.now, x.other = x.other, x.now
}

// Before is the last position at or before one after whose tokens the state is known: where a text that is taken back goes on from.
// Without recurrent layers it is the position itself.
func (x *States) Before(next int32) int32 {
	if x.m.StateBytes() == 0 {
		return next
	}
	best := int32(0)
	for _, c := range x.known() {
		if c.at <= next {
			best = max(best, c.at)
		}
	}
	return best
}

// known are the copies that are a state after some tokens.
func (x *States) known() []*stateCopy {
	all := slices.Clone(x.saved)
	for _, c := range []*stateCopy{&x.now, &x.other} {
		if c.data != nil && c.at >= 0 {
			all = append(all, c)
		}
	}
	return all
}

// Save keeps the state after the tokens that are read, as far as there is room in the budget without anything leaving it. What is
// saved belongs to the forks too.
func (x *States) Save() {
	size := x.m.StateBytes()
	if size == 0 || x.now.data == nil || x.now.at <= 0 || slices.ContainsFunc(x.saved, func(c *stateCopy) bool { return c.at == x.now.at }) {
		return
	}
	if err := x.now.settle(x.m); err != nil {
		x.m.note(err)
		return
	}
	if len(x.saved) == MostSavedStates {
		x.dropSaved(slices.IndexFunc(x.saved, func(c *stateCopy) bool { return c.at != x.pin }))
	}
	if x.m.Room(size) != nil || x.m.Charge(size) != nil {
		return
	}
	x.saved = append(x.saved, &stateCopy{at: x.now.at, data: slices.Clone(x.now.data), users: 1})
	if !slices.Contains(x.m.saving, x) {
		x.m.saving = append(x.m.saving, x)
	}
	slices.SortFunc(x.saved, func(a, b *stateCopy) int { return int(a.at - b.at) })
}

// yield drops a saved state that nobody else has and that is not pinned, to make room for what a text cannot do without; false = there is none.
func (x *States) yield() bool {
	i := slices.IndexFunc(x.saved, func(c *stateCopy) bool { return c.at != x.pin && c.users == 1 })
	if i >= 0 {
		x.dropSaved(i)
	}
	return i >= 0
}

// statesYield lets a sequence give a saved state back.
func (m *Manager) statesYield() bool { return slices.ContainsFunc(m.saving, (*States).yield) }

// SavedBytes is what saved states take that give way to what needs the room.
func (m *Manager) SavedBytes() (bytes int64) {
	for _, x := range m.saving {
		for _, c := range x.saved {
			if c.at != x.pin && c.users == 1 {
				bytes += m.StateBytes()
			}
		}
	}
	return bytes
}

// Pin is Save of a state that stays while the text does: the text is never taken back to before it.
func (x *States) Pin() {
	x.Save()
	x.pin = x.now.at
}

// dropSaved forgets a saved state.
func (x *States) dropSaved(i int) {
	c := x.saved[i]
	x.saved = slices.Delete(x.saved, i, i+1)
	if c.users--; c.users == 0 {
		x.m.Refund(x.m.StateBytes())
	}
}

// cut takes the state back to that after the tokens before a position, which must be known (Before): ErrPlan.
func (x *States) cut(next int32) error {
	if x.pending != nil {
		x.pending, x.other.at = nil, -1
	}
	for i := len(x.saved) - 1; i >= 0 && x.saved[i].at > next; i-- {
		x.dropSaved(i)
	}
	switch {
	case x.now.data == nil || x.now.at == next:
		return nil
	case x.other.at == next:
		x.now, x.other = x.other, x.now
		x.other.at = -1
		return nil
	case next == 0:
		x.now.forget()
		clear(x.now.data)
	default:
		i := slices.IndexFunc(x.saved, func(c *stateCopy) bool { return c.at == next })
		if i < 0 {
			return fmt.Errorf("kvmanager: truncating to position %d, where the state of the recurrent layers is not known: %w", next, ErrPlan)
		}
		x.now.forget()
		copy(x.now.data, x.saved[i].data)
	}
	x.now.at, x.other.at = next, -1
	return nil
}

// checkCut refuses a cut to a position whose state is not known.
func (x *States) checkCut(next int32) error {
	if x.now.data == nil || next >= x.now.at || x.Before(next) == next {
		return nil
	}
	return fmt.Errorf("kvmanager: truncating to position %d, where the state of the recurrent layers is not known: %w", next, ErrPlan)
}

// fork gives a fork a copy of the state, and the saved ones.
func (x *States) fork(f *States) error {
	if x.now.data == nil {
		return nil
	}
	if err := errors.Join(f.Reserve(), x.now.settle(x.m)); err != nil {
		return err
	}
	f.now.at = x.now.at
	copy(f.now.data, x.now.data)
	f.saved, f.pin = slices.Clone(x.saved), x.pin
	for _, c := range f.saved {
		c.users++
	}
	return nil
}

// free gives the memory back.
func (x *States) free() {
	for len(x.saved) > 0 {
		x.dropSaved(0)
	}
	x.unload()
	if x.home != 0 {
		x.m.note(x.dropStored(x.m.backing))
	}
	x.m.saving = slices.DeleteFunc(x.m.saving, func(s *States) bool { return s == x })
	*x = States{m: x.m}
}

// Append appends the state after so many tokens to data, as Restore takes it; false where it is not known.
func (x *States) Append(data []byte, tokens int32) ([]byte, bool) {
	for _, c := range x.known() {
		if c.at != tokens {
			continue
		}
		if err := c.settle(x.m); err != nil {
			x.m.note(err)
			return data, false
		}
		return appendFloats(data, c.data), true
	}
	return data, x.m.StateBytes() == 0
}

// Restore gives an empty sequence the state after tokens; ErrPlan where it is another model's.
func (x *States) Restore(tokens int32, data []byte) error {
	if int64(len(data)) != x.m.StateBytes() {
		return fmt.Errorf("kvmanager: state of %d bytes, want %d: %w", len(data), x.m.StateBytes(), ErrPlan)
	}
	if err := x.Reserve(); err != nil || len(data) == 0 {
		return err
	}
	x.now.forget()
	readFloats(x.now.data, data)
	x.now.at, x.other.at = tokens, -1
	return nil
}
