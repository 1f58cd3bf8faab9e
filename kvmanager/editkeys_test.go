package kvmanager

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"testing/synctest"

	"terrace/attention"
	"terrace/internal/kvpage"
)

// rowsOf are a head's keys and values [tokens, dim].
func rowsOf(s *Sequence, layer, g int) (k, v []float32) {
	var r attention.Reader
	view := s.Views(layer)[g]
	k, v = make([]float32, view.Tokens()*view.Layout.KeyDim), make([]float32, view.Tokens()*view.Layout.ValueDim)
	r.Keys(&view, 0, view.Tokens(), k)
	r.Values(&view, 0, view.Tokens(), v)
	return k, v
}

// doubled makes channel 1 twice what it was, and channel 2 nothing.
func doubled(keys []float32, dim int) {
	for at := 0; at < len(keys); at += dim {
		keys[at+1] *= 2
		keys[at+2] = 0
	}
}

// checkMove moves the tokens of a fork's head to other positions.
func checkMove(t *testing.T, s *Sequence, dim int) {
	t.Helper()
	f, err := s.Fork()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Free()
	old := slices.Clone(s.PositionList(0, 1))
	if err := f.MoveKeys(0, 1, 1000, func(_ int, keys []float32) { doubled(keys, dim) }); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(s.PositionList(0, 1), old) {
		t.Error("positions changed that were not moved")
	}
	view := f.Views(0)[1]
	var shown []int32
	for _, p := range append(slices.Clone(view.Pages), view.Recent...) {
		shown = append(shown, p.Pos[:p.N]...)
	}
	for i, p := range f.PositionList(0, 1) {
		if int(p) != 1000+i || shown[i] != p {
			t.Fatalf("token %d is at %d, its page says %d", i, p, shown[i])
		}
	}
}

// checkEdit edits the keys of a fork's head 1: they are as fn made them, within a step of a quantized scale; its values, its other
// head and all of the sequence that it was forked from stay bit for bit, and pages have new versions.
func checkEdit(t *testing.T, s *Sequence, dim int, step float64) {
	t.Helper()
	f, err := s.Fork()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Free()
	const layer = 0
	k, v := rowsOf(s, layer, 1)
	otherK, _ := rowsOf(s, layer, 0)
	version := f.Views(layer)[1].Pages[0].Version
	next := 0
	if err := f.EditKeys(layer, 1, func(from int, keys []float32) {
		if from != next {
			t.Errorf("keys from %d, want %d", from, next)
		}
		next += len(keys) / dim
		doubled(keys, dim)
	}); err != nil {
		t.Fatal(err)
	}
	want := slices.Clone(k)
	doubled(want, dim)
	got, gotV := rowsOf(f, layer, 1)
	for i := range want {
		if math.Abs(float64(got[i]-want[i])) > step {
			t.Fatalf("key %d of token %d is %g, want %g", i%dim, i/dim, got[i], want[i])
		}
	}
	if next*dim != len(k) || !slices.Equal(v, gotV) {
		t.Errorf("%d of %d tokens were shown; values equal: %v", next, len(k)/dim, slices.Equal(v, gotV))
	}
	if f.Views(layer)[1].Pages[0].Version == version {
		t.Error("a changed page keeps its version")
	}
	again, _ := rowsOf(s, layer, 1)
	other, _ := rowsOf(f, layer, 0)
	if !slices.Equal(k, again) || !slices.Equal(otherK, other) {
		t.Error("keys changed that were not edited")
	}
}

func TestEditKeys(t *testing.T) {
	for _, elem := range []kvpage.Elem{kvpage.F32, kvpage.F16} {
		for _, major := range []bool{false, true} {
			o := shape(elem, 0)
			o.Layout.TokenMajor = major
			t.Run(fmt.Sprintf("%v, token major %v", elem, major), func(t *testing.T) {
				s := open(t, o).NewSequence()
				add(t, o, s, newReference(o), upTo(70), 0)
				checkEdit(t, s, o.Layout.KeyDim, 0)
				checkMove(t, s, o.Layout.KeyDim)
				s.Free()
			})
		}
	}
	t.Run("quantized", func(t *testing.T) {
		o := quantizedShape(16)
		s := open(t, o).NewSequence()
		filled(t, o, s, 200, 50)
		checkEdit(t, s, o.Layout.KeyDim, 0.05)
		checkMove(t, s, o.Layout.KeyDim)
		s.Free()
		if err := s.EditKeys(0, 0, nil); err == nil {
			t.Error("keys of a closed sequence were edited")
		}
	})
	t.Run("tiers", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			o, _ := onTiers(t, shape(kvpage.F32, 0), 1000)
			m := open(t, o)
			s := m.NewSequence()
			grow(t, o, s, newReference(o), upTo(70), 0)
			checkEdit(t, s, o.Layout.KeyDim, 0)
			checkMove(t, s, o.Layout.KeyDim)
			s.Free()
		})
	})
}
