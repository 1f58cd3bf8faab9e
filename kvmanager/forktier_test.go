package kvmanager

import (
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"

	"terrace/internal/kvpage"
)

// readPasses reads every layer of sequences whole, pass after pass, and returns the blocks that the last one read from the tier.
func readPasses(t *testing.T, m *Manager, reads func() int, seqs ...*Sequence) int {
	t.Helper()
	last := 0
	for range 5 {
		before := reads()
		var pass []Growth
		for _, s := range seqs {
			pass = append(pass, Growth{Seq: s})
		}
		if err := m.Plan(pass); err != nil {
			t.Fatal(err)
		}
		for layer := range m.layers {
			for _, s := range seqs {
				if err := s.Acquire(layer, 0); err != nil {
					t.Fatal(err)
				}
				s.Prefetch((layer+1)%len(m.layers), 0)
			}
			for _, s := range seqs {
				if err := s.Release(layer); err != nil {
					t.Fatal(err)
				}
			}
		}
		synctest.Wait() // what is fetched ahead for the next pass is read
		last = reads() - before
	}
	return last
}

// TestForkOnTiers: a fork keeps as much of the pages that it shares in memory as a sequence of its own would, whether its parent is
// open or not; texts that share pages and are read together share the room that these take.
func TestForkOnTiers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := shape(kvpage.F32, 0)
		equal(&o, 4, o.Layers[0].KV.Heads, o.Layout.KeyDim, o.Layout.ValueDim)
		o, d := onTiers(t, o, 56)
		m := open(t, o)
		s := m.NewSequence()
		defer s.Free()
		want := newReference(o)
		for next := 0; next < 256; next += 32 { // 16 full blocks a layer
			grow(t, o, s, want, make([]int, 32), next)
		}
		count := func() int { return reads(d) }
		alone := readPasses(t, m, count, s)
		if alone == 0 || alone >= 48 {
			t.Fatalf("alone %d of 64 blocks are read in a pass; want some, and a quarter to stay", alone)
		}
		var forks []*Sequence
		for range 3 {
			f, err := s.Fork()
			if err != nil {
				t.Fatal(err)
			}
			forks = append(forks, f)
		}
		if n := readPasses(t, m, count, forks[0]); n != alone {
			t.Errorf("a fork reads %d blocks in a pass, its parent alone %d", n, alone)
		}
		if n := readPasses(t, m, count, forks...); n >= 2*alone { // each has to have room for tokens of its own
			t.Errorf("three forks together read %d blocks in a pass, one alone %d", n, alone)
		}
		for _, f := range forks {
			f.Free()
		}
		if n := readPasses(t, m, count, s); n != alone {
			t.Errorf("the parent reads %d blocks in a pass once its forks are gone, before %d", n, alone)
		}
	})
}

// TestSharedBlocksStayTheirOwn: pages that a fork shares and that are stored only then are the fork's still when its parent has taken them
// back and written others of the same numbers, which are stored too.
func TestSharedBlocksStayTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, _ := onTiers(t, shape(kvpage.F32, 0), 60)
		m := open(t, o)
		s, want := m.NewSequence(), newReference(o)
		defer s.Free()
		ids := func(from int) (ids []int) {
			for i := range 64 {
				ids = append(ids, (from+i)%97)
			}
			return ids
		}
		grow(t, o, s, want, ids(0), 0)
		f, err := s.Fork()
		if err != nil {
			t.Fatal(err)
		}
		defer f.Free()
		kept := want.clone()
		leave := func() {
			t.Helper()
			if err := errors.Join(s.releaseAll(), f.releaseAll()); err != nil {
				t.Fatal(err)
			}
			room := m.o.BudgetBytes - m.inUse + m.inUse/2
			for m.Charge(room) != nil { // as much as can leave
				room -= 4096
			}
			m.Refund(room)
			if err := m.Settle(); err != nil {
				t.Fatal(err)
			}
		}
		leave()
		if err := s.Truncate(16); err != nil {
			t.Fatal(err)
		}
		for i := range want.ids {
			want.ids[i], want.pos[i] = want.ids[i][:16], want.pos[i][:16]
		}
		grow(t, o, s, want, ids(40), 16)
		leave()
		rng := rand.New(rand.NewPCG(1, 1))
		for range 2 {
			walk(t, o, f, kept, rng, seenPages{})
			walk(t, o, s, want, rng, seenPages{})
		}
	})
}
