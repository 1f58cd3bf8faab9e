package kvmanager

import (
	"slices"
	"testing"

	"terrace/internal/kvpage"
)

// seenPages remembers what pages of each version held.
type seenPages map[uint64][]seenSlot

type seenSlot struct {
	pos  int32
	k, v []float32
}

// check compares every page of the sequence with what its version held before (invariant 5).
func (seen seenPages) check(t fataler, o Options, s *Sequence) {
	t.Helper()
	for layer := range o.Layers {
		seen.checkLayer(t, o, s, layer)
	}
}

// checkLayer is check of one layer.
func (seen seenPages) checkLayer(t fataler, o Options, s *Sequence, layer int) {
	t.Helper()
	l := o.Layout
	for h, view := range s.Views(layer) {
		if view.Cache != s.ID() || view.Cache == 0 {
			t.Fatalf("a view of cache %d is of cache %d", s.ID(), view.Cache)
		}
		for i, p := range view.Pages {
			if p.Version == 0 {
				t.Fatalf("layer %d head %d: page %d has no version", layer, h, i)
			}
			for slot := range p.N {
				now := seenSlot{p.Pos[slot], make([]float32, l.KeyDim), make([]float32, l.ValueDim)}
				kvpage.ReadK(l, p.Data, slot, now.k)
				kvpage.ReadV(l, p.Data, slot, now.v)
				if slot == len(seen[p.Version]) {
					seen[p.Version] = append(seen[p.Version], now)
				} else if was := seen[p.Version][slot]; was.pos != now.pos || !slices.Equal(was.k, now.k) || !slices.Equal(was.v, now.v) {
					t.Fatalf("layer %d head %d: slot %d of page %d (version %d) was %v, is %v", layer, h, slot, i, p.Version, was, now)
				}
			}
		}
	}
}

// TestVersions says when a page's version stays and when it does not.
func TestVersions(t *testing.T) {
	o := shape(kvpage.F32, 0)
	m := open(t, o)
	s := m.NewSequence()
	defer s.Free()
	want := newReference(o)
	versions := func(s *Sequence) (out []uint64) {
		for _, p := range s.Views(0)[0].Pages {
			out = append(out, p.Version)
		}
		return out
	}
	add(t, o, s, want, upTo(40), 0)
	first := versions(s)
	add(t, o, s, want, upTo(4), 40)
	if got := versions(s); !slices.Equal(got, first) {
		t.Errorf("appending to the last page: versions %v, want %v", got, first)
	}
	f, err := s.Fork()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Free()
	add(t, o, f, want.clone(), upTo(1), 44)
	if got := versions(f); !slices.Equal(got[:2], first[:2]) || got[2] == first[2] {
		t.Errorf("a fork that appends: versions %v, want the first two of %v and another", got, first)
	}
	if err := s.Keep(0, 0, slices.Delete(upTo(44), 20, 21)); err != nil {
		t.Fatal(err)
	}
	if got := versions(s); got[0] != first[0] || got[1] == first[1] || got[2] == first[2] {
		t.Errorf("token 20 dropped: versions %v, want only the first of %v", got, first)
	}
}
