package kvmanager

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"terrace/internal/cacheshape"
	"terrace/internal/kvpage"
	"terrace/kvmanager/fakes"
	"terrace/offload"
)

// TestSuspend: a suspended sequence gives back the memory of its state and of the pages that it writes to, another has the room meanwhile, and
// after Resume its state and tokens are those that it had. What fails on the way leaves it as it was, and nothing is left on the tier.
func TestSuspend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var broken atomic.Bool
		layers := cacheshape.Model{
			{State: cacheshape.State{Bytes: 4096}},
			{Heads: 1, Owner: 1, KV: cacheshape.KV{Heads: 1, KeyDim: 4, ValueDim: 4}},
			{State: cacheshape.State{Bytes: 2000}},
		}
		o := Options{Layers: layers, Layout: kvpage.Layout{K: kvpage.F32, V: kvpage.F32, Tokens: 16}}
		o.Layout = o.Layout.Of(layers[1].KV)
		store := fakes.New(o.Layers, o.Layout)
		o.Backing = offload.NewQueue(store, offload.QueueOptions{})
		defer func() {
			if err := o.Backing.Close(); err != nil {
				t.Error(err)
			}
		}()
		store.Fail = func(offload.Key, bool) error {
			if broken.Load() {
				return errMachine
			}
			return nil
		}
		o.BudgetBytes = 2*6096 + 3*int64(roundUp(o.Layout.PageBytes(), frameAlign)) // the state of one text
		m, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		g := &gpu{}
		fill := func(s *Sequence, x float32, tokens int32) {
			t.Helper()
			for _, layer := range []int{0, 2} {
				_, to, err := s.States().Layer(layer)
				if err != nil {
					t.Fatal(err)
				}
				for i := range to {
					to[i] = x + float32(i)
				}
				if layer == 0 { // on a device alone
					g.live++
					s.States().Keep(layer, &onGPU{of: g, x: slices.Clone(to)})
					clear(to)
				}
			}
			s.States().Commit(tokens)
			k := slices.Repeat([]float32{x}, 4)
			if err := s.Append(1, k, k, []int32{tokens - 1}); err != nil {
				t.Fatal(err)
			}
		}
		same := func(s *Sequence, x float32, tokens int32) {
			t.Helper()
			want := make([]float32, 0, 1524)
			for _, n := range []int{1024, 500} {
				for i := range n {
					want = append(want, x+float32(i))
				}
			}
			if got := now(t, s, tokens); !slices.Equal(got, want) {
				t.Errorf("the state of %v is another", x)
			}
			if err := s.Acquire(1, 0); err != nil {
				t.Fatal(err)
			}
			k := make([]float32, 4)
			kvpage.ReadK(*m.main(1), s.Views(1)[0].Pages[0].Data, 0, k)
			if k[0] != x {
				t.Errorf("the token of %v is %v", x, k)
			}
			if err := s.Release(1); err != nil {
				t.Error(err)
			}
		}
		a, b := m.NewSequence(), m.NewSequence()
		fill(a, 3, 1)
		a.States().Pin()
		if _, _, err := b.States().Layer(0); !errors.Is(err, ErrBudget) {
			t.Fatalf("two states have room: %v", err)
		}
		broken.Store(true)
		if err := a.Suspend(); !errors.Is(err, errMachine) {
			t.Errorf("suspended on a store that fails: %v", err)
		}
		broken.Store(false)
		if same(a, 3, 1); stored(store) > 0 {
			t.Errorf("%d records of a state that could not be stored", stored(store))
		}
		if err := a.Suspend(); err != nil {
			t.Fatal(err)
		}
		if m.charged != 0 {
			t.Errorf("%d bytes charged for a suspended sequence", m.charged)
		}
		check(t, m, nil, a, b)
		fill(b, 50, 1)
		if err := a.Resume(); !errors.Is(err, ErrBudget) {
			t.Errorf("resumed without room: %v", err)
		}
		check(t, m, nil, a, b)
		same(b, 50, 1)
		if err := b.Suspend(); err != nil {
			t.Fatal(err)
		}
		broken.Store(true)
		if err := a.Resume(); !errors.Is(err, errMachine) || m.charged != 0 {
			t.Errorf("resumed from a store that fails: %v, %d bytes charged", err, m.charged)
		}
		broken.Store(false)
		check(t, m, nil, a, b)
		if err := a.Resume(); err != nil {
			t.Fatal(err)
		}
		check(t, m, nil, a, b)
		same(a, 3, 1)
		if err := a.Resume(); !errors.Is(err, ErrPlan) {
			t.Errorf("resumed twice: %v", err)
		}
		fill(a, 7, 2)
		if err := errors.Join(a.Suspend(), a.Resume()); err != nil {
			t.Fatal(err)
		}
		if got := now(t, a, 2); got[0] != 7 || got[1023] != 1030 {
			t.Errorf("a state that a device had alone begins with %v behind Suspend and Resume, want 7", got[:4])
		}
		a.Free()
		b.Free()
		if err := m.Settle(); err != nil || stored(store) > 0 || g.live != 0 {
			t.Errorf("%v; %d records and %d copies on the device are left", err, stored(store), g.live)
		}
		if err := errors.Join(m.Check(), m.Close()); err != nil || m.inUse != 0 {
			t.Errorf("%v, %d bytes in use", err, m.inUse)
		}
	})
}

// suspend lets a sequence leave memory, as long as it is not resumed, or freed: nothing may be done to it.
func (x *machine) suspend() error {
	x.fails.Store(int32(max(x.rng.IntN(6)-4, 0)))
	defer x.fails.Store(0)
	err := x.now.s.Suspend()
	if x.store == nil {
		if !errors.Is(err, ErrPlan) {
			return fmt.Errorf("a sequence without a tier below was suspended: %w", err)
		}
		return nil
	}
	x.now.away = err == nil
	k, v := rows(x.o, 0, []int{1})
	_, ferr := x.now.s.Fork()
	for _, refused := range []error{x.now.s.Append(0, k, v, []int32{int32(x.now.next)}), x.now.s.Acquire(0, 0), x.now.s.Truncate(0), ferr, x.now.s.Suspend()} {
		if x.now.away && !errors.Is(refused, ErrPlan) {
			return fmt.Errorf("a suspended sequence is used: %w", refused)
		}
	}
	return err
}

// resume brings it back; a store that fails once leaves it suspended, and the next time finds it.
func (x *machine) resume() error {
	if x.rng.IntN(4) == 0 {
		return x.free()
	}
	x.fails.Store(int32(max(x.rng.IntN(6)-4, 0)))
	err := x.now.s.Resume()
	x.fails.Store(0)
	x.now.away = err != nil
	if errors.Is(err, errMachine) {
		if err = x.m.Settle(); errors.Is(err, errMachine) {
			err = nil
		}
		x.m.late = nil
	}
	return err
}
