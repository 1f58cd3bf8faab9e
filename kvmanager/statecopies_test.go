package kvmanager

import (
	"errors"
	"slices"
	"testing"

	"terrace/internal/cacheshape"
)

// gpu makes copies of states; it counts those that were not given back, and what came down.
type gpu struct {
	live, fetched int
	fault         error
}

// onGPU is a copy.
type onGPU struct {
	of     *gpu
	x      []float32
	coming bool
	gone   bool
}

func (c *onGPU) Bring() error {
	c.coming = true
	return c.of.fault
}

func (c *onGPU) Fetch(dst []float32) error {
	if c.of.fault != nil {
		return c.of.fault
	}
	if !c.coming || c.gone || len(dst) != len(c.x) {
		return errors.New("fetched before it was brought, behind its end, or in part")
	}
	copy(dst, c.x)
	c.coming = false
	c.of.fetched++
	return nil
}

func (c *onGPU) Drop() {
	if c.gone {
		panic("dropped twice")
	}
	c.gone = true
	c.of.live--
}

// onDevice is a pass that adds x on a device: it reads host memory only where there is no copy, and writes none.
func (g *gpu) stepped(t *testing.T, s *Sequence, x float32, tokens int32) {
	t.Helper()
	for _, layer := range []int{0, 2} {
		g.mixed(t, s, layer, x)
	}
	s.States().Commit(tokens)
}

func (g *gpu) mixed(t *testing.T, s *Sequence, layer int, x float32) {
	t.Helper()
	before, behind := s.States().Copies(layer)
	from, _, err := s.States().Layer(layer)
	if err != nil {
		t.Fatal(err)
	}
	numbers := slices.Clone(from)
	if c, ok := before.(*onGPU); ok {
		numbers = slices.Clone(c.x)
	}
	to, ok := behind.(*onGPU)
	if !ok {
		to = &onGPU{of: g}
		g.live++
	}
	for i := range numbers {
		numbers[i] += x
	}
	to.x = numbers
	s.States().Keep(layer, to)
}

// TestStateCopies: a state that only a device has comes down for whoever reads it, once, and not between passes; a pass that is taken back leaves
// the one before; what host memory is given instead of it counts; and the device gets all its memory back.
func TestStateCopies(t *testing.T) {
	g, m := &gpu{}, recurrent(t, 0)
	s := m.NewSequence()
	g.stepped(t, s, 1, 4)
	g.stepped(t, s, 2, 5)
	g.stepped(t, s, 4, 6)
	if g.fetched != 0 || g.live != 4 {
		t.Fatalf("three passes: %d parts came down, %d copies; want 0 and 4", g.fetched, g.live)
	}
	if got := now(t, s, 6); !slices.Equal(got, eight(7)) || g.fetched != 2 {
		t.Errorf("read: %v, %d parts came down", got, g.fetched)
	}
	if got := now(t, s, 5); !slices.Equal(got, eight(3)) || g.fetched != 4 {
		t.Errorf("before: %v, %d parts came down", got, g.fetched)
	}
	if got := now(t, s, 6); !slices.Equal(got, eight(7)) || g.fetched != 4 {
		t.Errorf("read again: %v, %d parts came down", got, g.fetched)
	}
	g.mixed(t, s, 0, 90) // a pass that fails, whose rows came in two calls
	g.mixed(t, s, 0, 90)
	if c, _ := s.States().Copies(0); c.(*onGPU).x[0] != 187 {
		t.Errorf("the rows behind in a pass go on from %g, want 187", c.(*onGPU).x[0])
	}
	if err := s.Truncate(6); err != nil {
		t.Fatal(err)
	}
	g.stepped(t, s, 1, 7)
	s.States().Save()
	if got := now(t, s, 7); !slices.Equal(got, eight(8)) || g.fetched != 6 {
		t.Errorf("after a pass that failed: %v, %d parts came down", got, g.fetched)
	}
	f, err := s.Fork()
	if err != nil {
		t.Fatal(err)
	}
	g.stepped(t, s, 1, 8)
	g.stepped(t, f, 2, 8)
	if a, b := now(t, s, 8), now(t, f, 8); !slices.Equal(a, eight(9)) || !slices.Equal(b, eight(10)) {
		t.Errorf("a text and its fork: %v and %v", a, b)
	}
	g.stepped(t, s, 1, 9)
	g.stepped(t, s, 1, 10)
	if err := s.Truncate(7); err != nil { // to what is saved
		t.Fatal(err)
	}
	g.stepped(t, s, 3, 8)
	if got := now(t, s, 8); !slices.Equal(got, eight(11)) {
		t.Errorf("back to what was saved, and on: %v", got)
	}
	if err := s.Truncate(0); err != nil {
		t.Fatal(err)
	}
	g.stepped(t, s, 3, 1)
	g.stepped(t, s, 2, 2)
	if got := now(t, s, 2); !slices.Equal(got, eight(5)) {
		t.Errorf("from no tokens on: %v", got)
	}
	for _, layer := range []int{0, 2} { // a pass in host memory, where the numbers are since they were read
		from, to, err := s.States().Layer(layer)
		if err != nil {
			t.Fatal(err)
		}
		for i := range to {
			to[i] = from[i] + 1
		}
		s.States().Keep(layer, nil)
	}
	s.States().Commit(3)
	if got := now(t, s, 3); !slices.Equal(got, eight(6)) {
		t.Errorf("a pass in host memory: %v", got)
	}
	g.stepped(t, s, 1, 4)
	g.stepped(t, s, 1, 5)
	s.Free()
	f.Free()
	if g.live != 0 {
		t.Errorf("%d copies were not given back", g.live)
	}
}

// TestStateCopiesLost: where a device fails its state is unknown, and is neither saved, read nor forked.
func TestStateCopiesLost(t *testing.T) {
	g, m := &gpu{}, recurrent(t, 0)
	s := m.NewSequence()
	g.stepped(t, s, 1, 4)
	g.fault = errors.New("lost")
	s.States().Save()
	if _, known := s.States().Append(nil, 4); known || len(s.states.saved) != 0 {
		t.Errorf("known: %v, %d saved", known, len(s.states.saved))
	}
	if _, err := s.Fork(); !errors.Is(err, g.fault) {
		t.Errorf("fork: %v", err)
	}
	other := m.NewSequence()
	g.fault = nil
	data, _ := s.States().Append(nil, 4)
	g.stepped(t, other, 9, 1)
	if err := other.States().Restore(4, data); err != nil {
		t.Fatal(err)
	}
	g.stepped(t, other, 1, 5)
	if got := now(t, other, 5); !slices.Equal(got, eight(2)) {
		t.Errorf("restored over a device's copy, and a pass on: %v", got)
	}
	s.Free()
	other.Free()
	if g.live != 0 {
		t.Errorf("%d copies were not given back", g.live)
	}
}

var _ cacheshape.StateCopy = (*onGPU)(nil)
