package kvmanager

import (
	"fmt"
	"slices"
)

// states is what a sequence keeps beside its KV: the fixed-size state of its recurrent layers, all layers in one piece of memory. There
// are two copies: the state after the tokens that are read, and the one that a pass in progress writes, which was the state before
// the last pass until then. Others are kept at chosen places (SaveStates); they are never written.
type states struct {
	now, other stateCopy
	pending    []bool // [layers] the pass in progress has written the layer's part of other; nil = there is no such pass
	saved      []*stateCopy
	pin        int32 // what is saved of these first tokens stays; 0 = nothing does
}

// stateCopy is the state of all layers after some tokens; data nil = unknown, but after none: zeros.
type stateCopy struct {
	at    int32
	data  []float32
	users int // sequences that have it saved
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

// ReserveStates makes room for the sequence's state before its first pass; ErrBudget where there is none.
func (s *Sequence) ReserveStates() error {
	size := s.m.StateBytes()
	if size == 0 || s.states.now.data != nil {
		return nil
	}
	if err := s.m.Charge(2 * size); err != nil {
		return fmt.Errorf("kvmanager: state of %d bytes, twice: %w", size, err)
	}
	s.states.now.data, s.states.other.data = make([]float32, size/4), make([]float32, size/4)
	s.states.other.at = -1
	return nil
}

// State is a layer's state before the next rows of the pass in progress, and where it is to be after them: the same memory from the
// second time in a pass on. CommitStates ends the pass; Truncate takes it back.
func (s *Sequence) State(layer int) (from, to []float32, err error) {
	if err := s.ReserveStates(); err != nil {
		return nil, nil, err
	}
	x := &s.states
	if x.pending == nil {
		x.pending, x.other.at = make([]bool, len(s.m.o.Layers)), -1
	}
	first, n := s.m.stateAt(layer)
	to = x.other.data[first : first+n : first+n]
	if from = to; !x.pending[layer] {
		from = x.now.data[first : first+n : first+n]
	}
	x.pending[layer] = true
	return from, to, nil
}

// CommitStates says that the rows of the pass in progress are read, which brought the text to that many tokens.
func (s *Sequence) CommitStates(tokens int32) {
	x := &s.states
	if x.pending == nil {
		return
	}
	x.pending, x.other.at = nil, tokens
	x.now, x.other = x.other, x.now
}

// StateBefore is the last position at or before one after whose tokens the state is known: where a text that is taken back goes on from.
// Without recurrent layers it is the position itself.
func (s *Sequence) StateBefore(next int32) int32 {
	if s.m.StateBytes() == 0 {
		return next
	}
	best := int32(0)
	for _, c := range s.states.known() {
		if c.at <= next {
			best = max(best, c.at)
		}
	}
	return best
}

// known are the copies that are a state after some tokens.
func (x *states) known() []*stateCopy {
	all := slices.Clone(x.saved)
	for _, c := range []*stateCopy{&x.now, &x.other} {
		if c.data != nil && c.at >= 0 {
			all = append(all, c)
		}
	}
	return all
}

// SaveStates keeps the state after the tokens that are read, as far as there is room in the budget without anything leaving it. What is
// saved belongs to the forks too.
func (s *Sequence) SaveStates() {
	x, size := &s.states, s.m.StateBytes()
	if size == 0 || x.now.data == nil || x.now.at <= 0 || slices.ContainsFunc(x.saved, func(c *stateCopy) bool { return c.at == x.now.at }) {
		return
	}
	if len(x.saved) == MostSavedStates {
		s.dropSaved(slices.IndexFunc(x.saved, func(c *stateCopy) bool { return c.at != x.pin }))
	}
	if s.m.Room(size) != nil || s.m.Charge(size) != nil {
		return
	}
	x.saved = append(x.saved, &stateCopy{at: x.now.at, data: slices.Clone(x.now.data), users: 1})
	slices.SortFunc(x.saved, func(a, b *stateCopy) int { return int(a.at - b.at) })
}

// PinStates is SaveStates of a state that stays while the text does: the text is never taken back to before it.
func (s *Sequence) PinStates() {
	s.SaveStates()
	s.states.pin = s.states.now.at
}

// dropSaved forgets a saved state.
func (s *Sequence) dropSaved(i int) {
	c := s.states.saved[i]
	s.states.saved = slices.Delete(s.states.saved, i, i+1)
	if c.users--; c.users == 0 {
		s.m.Refund(s.m.StateBytes())
	}
}

// cutStates takes the state back to that after the tokens before a position, which must be known (StateBefore): ErrPlan.
func (s *Sequence) cutStates(next int32) error {
	x := &s.states
	if x.pending != nil {
		x.pending, x.other.at = nil, -1
	}
	for i := len(x.saved) - 1; i >= 0 && x.saved[i].at > next; i-- {
		s.dropSaved(i)
	}
	switch {
	case x.now.data == nil || x.now.at == next:
		return nil
	case x.other.at == next:
		x.now, x.other = x.other, x.now
		x.other.at = -1
		return nil
	case next == 0:
		clear(x.now.data)
	default:
		i := slices.IndexFunc(x.saved, func(c *stateCopy) bool { return c.at == next })
		if i < 0 {
			return fmt.Errorf("kvmanager: truncating to position %d, where the state of the recurrent layers is not known: %w", next, ErrPlan)
		}
		copy(x.now.data, x.saved[i].data)
	}
	x.now.at, x.other.at = next, -1
	return nil
}

// checkCut refuses a cut to a position whose state is not known.
func (s *Sequence) checkCut(next int32) error {
	if s.states.now.data == nil || next >= s.states.now.at || s.StateBefore(next) == next {
		return nil
	}
	return fmt.Errorf("kvmanager: truncating to position %d, where the state of the recurrent layers is not known: %w", next, ErrPlan)
}

// forkStates gives a fork a copy of the state, and the saved ones.
func (s *Sequence) forkStates(f *Sequence) error {
	if s.states.now.data == nil {
		return nil
	}
	if err := f.ReserveStates(); err != nil {
		return err
	}
	f.states.now.at = s.states.now.at
	copy(f.states.now.data, s.states.now.data)
	f.states.saved, f.states.pin = slices.Clone(s.states.saved), s.states.pin
	for _, c := range f.states.saved {
		c.users++
	}
	return nil
}

// freeStates gives the memory back.
func (s *Sequence) freeStates() {
	for len(s.states.saved) > 0 {
		s.dropSaved(0)
	}
	if s.states.now.data != nil {
		s.m.Refund(2 * s.m.StateBytes())
	}
	s.states = states{}
}

// AppendState appends the state after so many tokens to data, as RestoreState takes it; false where it is not known.
func (s *Sequence) AppendState(data []byte, tokens int32) ([]byte, bool) {
	for _, c := range s.states.known() {
		if c.at == tokens {
			return appendFloats(data, c.data), true
		}
	}
	return data, s.m.StateBytes() == 0
}

// RestoreState gives an empty sequence the state after tokens; ErrPlan where it is another model's.
func (s *Sequence) RestoreState(tokens int32, data []byte) error {
	if int64(len(data)) != s.m.StateBytes() {
		return fmt.Errorf("kvmanager: state of %d bytes, want %d: %w", len(data), s.m.StateBytes(), ErrPlan)
	}
	if err := s.ReserveStates(); err != nil || len(data) == 0 {
		return err
	}
	readFloats(s.states.now.data, data)
	s.states.now.at, s.states.other.at = tokens, -1
	return nil
}
