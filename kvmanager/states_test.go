package kvmanager

import (
	"errors"
	"slices"
	"testing"

	"terrace/internal/cacheshape"
	"terrace/internal/kvpage"
)

// recurrent is a manager of one layer with KV between two with state, of 24 and 8 bytes.
func recurrent(t *testing.T, budget int64) *Manager {
	t.Helper()
	m, err := New(Options{Layers: cacheshape.Model{
		{State: cacheshape.State{Bytes: 24}},
		{Heads: 1, Owner: 1, KV: cacheshape.KV{Heads: 1, KeyDim: 4, ValueDim: 4}},
		{State: cacheshape.State{Bytes: 8}},
	}, Layout: kvpage.Layout{K: kvpage.F32, V: kvpage.F32, Tokens: 16}, BudgetBytes: budget})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// stepped is a pass that adds x to all numbers of the state, up to so many tokens.
func stepped(t *testing.T, s *Sequence, x float32, tokens int32) {
	t.Helper()
	for _, layer := range []int{0, 2} {
		from, to, err := s.States().Layer(layer)
		if err != nil {
			t.Fatal(err)
		}
		for i := range to {
			to[i] = from[i] + x
		}
	}
	s.States().Commit(tokens)
}

// now are the numbers of the state after so many tokens.
func now(t *testing.T, s *Sequence, tokens int32) []float32 {
	t.Helper()
	data, known := s.States().Append(nil, tokens)
	if !known {
		t.Fatalf("state after %d tokens is not known", tokens)
	}
	x := make([]float32, len(data)/4)
	readFloats(x, data)
	return x
}

func eight(x float32) []float32 { return slices.Repeat([]float32{x}, 8) }

// TestStates: a pass that is taken back leaves the state as it was, a second look at a layer within a pass goes on from the first, and the
// state before the last pass comes back once.
func TestStates(t *testing.T) {
	m := recurrent(t, 0)
	s := m.NewSequence()
	stepped(t, s, 1, 4)
	stepped(t, s, 2, 5)
	if got := now(t, s, 5); !slices.Equal(got, eight(3)) {
		t.Errorf("after two passes: %v", got)
	}
	if got := now(t, s, 4); !slices.Equal(got, eight(1)) {
		t.Errorf("before the last pass: %v", got)
	}
	first, to, err := s.States().Layer(0)
	if err != nil || &first[0] == &to[0] {
		t.Fatal(first, err)
	}
	copy(to, []float32{9, 9, 9, 9, 9, 9})
	if again, _, _ := s.States().Layer(0); &again[0] != &to[0] {
		t.Error("the rows behind in a pass do not go on from the state of those before")
	}
	if err := s.Truncate(5); err != nil { // the pass fails
		t.Fatal(err)
	}
	if got := now(t, s, 5); !slices.Equal(got, eight(3)) || s.States().Before(4) != 0 {
		t.Errorf("after a pass that was taken back: %v; known before 4: %d", got, s.States().Before(4))
	}
	if err := s.Truncate(4); !errors.Is(err, ErrPlan) {
		t.Errorf("truncating to where no state is known: %v", err)
	}
	stepped(t, s, 1, 6)
	if err := s.Truncate(5); err != nil {
		t.Fatal(err)
	}
	if got := now(t, s, 5); !slices.Equal(got, eight(3)) {
		t.Errorf("back by a pass: %v", got)
	}
	if err := s.Truncate(0); err != nil {
		t.Fatal(err)
	}
	if got := now(t, s, 0); !slices.Equal(got, eight(0)) {
		t.Errorf("of no tokens: %v", got)
	}
}

// TestSavedStates: what is saved comes back however often, belongs to forks, goes the oldest first but for what is pinned, and is never
// written.
func TestSavedStates(t *testing.T) {
	m := recurrent(t, 0)
	s := m.NewSequence()
	stepped(t, s, 1, 10)
	s.States().Pin()
	for i := range 6 {
		stepped(t, s, 1, int32(20+10*i))
		s.States().Save()
		s.States().Save()
	}
	for next, want := range map[int32]int32{9: 0, 10: 10, 49: 10, 50: 50, 65: 60, 99: 70} {
		if got := s.States().Before(next); got != want {
			t.Errorf("known before %d: %d, want %d", next, got, want)
		}
	}
	f, err := s.Fork()
	if err != nil {
		t.Fatal(err)
	}
	stepped(t, f, 100, 71)
	for range 2 {
		if err := f.Truncate(10); err != nil {
			t.Fatal(err)
		}
		if got := now(t, f, 10); !slices.Equal(got, eight(1)) {
			t.Errorf("fork, back to 10: %v", got)
		}
		stepped(t, f, 5, 11)
		stepped(t, f, 5, 12)
	}
	if got := now(t, s, 70); !slices.Equal(got, eight(7)) {
		t.Errorf("the text that was forked: %v", got)
	}
	if err := s.Truncate(60); err != nil || s.States().Before(99) != 60 {
		t.Errorf("back to 60: %v, known: %d", err, s.States().Before(99))
	}
	s.Free()
	if got := now(t, f, 10); !slices.Equal(got, eight(1)) {
		t.Errorf("a fork behind its end: %v", got)
	}
	f.Free()
	if u := m.Stats(); u.InUseBytes != 0 {
		t.Errorf("%d bytes in use after all", u.InUseBytes)
	}
}

// TestStateBudget: two copies of the state are charged when a text begins, one more for each that is saved, once for all forks; without room
// the text does not begin, nothing is saved, and no fork is made.
func TestStateBudget(t *testing.T) {
	m := recurrent(t, 200) // 6 copies of 32
	s := m.NewSequence()
	steps := func(want int64, what string) {
		t.Helper()
		if got := m.Stats().InUseBytes; got != want {
			t.Errorf("%s: %d bytes in use, want %d", what, got, want)
		}
	}
	stepped(t, s, 1, 1)
	steps(64, "a text")
	s.States().Save()
	steps(96, "a saved state")
	f, err := s.Fork()
	if err != nil {
		t.Fatal(err)
	}
	steps(160, "a fork")
	stepped(t, s, 1, 2)
	s.States().Save()
	steps(192, "two saved")
	stepped(t, s, 1, 3)
	s.States().Save()
	if steps(192, "no room to save"); s.States().Before(3) != 3 || s.States().Before(2) != 2 {
		t.Errorf("known: %d, %d", s.States().Before(3), s.States().Before(2))
	}
	if _, err := s.Fork(); !errors.Is(err, ErrBudget) {
		t.Errorf("a fork without room: %v", err)
	}
	steps(160, "no room for a fork, for which what s alone has saved went")
	if _, _, err := m.NewSequence().States().Layer(0); !errors.Is(err, ErrBudget) {
		t.Errorf("a text without room: %v", err)
	}
	steps(160, "what a fork has saved too stays")
	s.Free()
	steps(96, "the fork alone")
	f.Free()
	steps(0, "nothing")
}

// TestRestoreState: what States.Append gives is the state of another text; other lengths are refused.
func TestRestoreState(t *testing.T) {
	m := recurrent(t, 0)
	s, f := m.NewSequence(), m.NewSequence()
	stepped(t, s, 2.5, 7)
	data, known := s.States().Append(nil, 7)
	if !known || int64(len(data)) != m.StateBytes() {
		t.Fatal(len(data), known)
	}
	if _, known := s.States().Append(nil, 6); known {
		t.Error("the state after 6 tokens is known")
	}
	for _, bad := range [][]byte{nil, data[:28], append(slices.Clone(data), 0)} {
		if err := f.States().Restore(7, bad); !errors.Is(err, ErrPlan) {
			t.Errorf("%d bytes: %v", len(bad), err)
		}
	}
	if err := f.States().Restore(7, data); err != nil {
		t.Fatal(err)
	}
	if got := now(t, f, 7); !slices.Equal(got, eight(2.5)) || f.States().Before(8) != 7 {
		t.Errorf("%v, known before 8: %d", got, f.States().Before(8))
	}
}
