package policy

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"testing"

	"gonum.org/v1/gonum/mat"

	"terrace/internal/cacheshape"
)

// jointKeys are a scene's keys, all heads of a token side by side.
func jointKeys(s *scene) (out []float32) {
	for i := range s.k {
		for g := range s.kvHeads {
			out = append(out, s.key(g, i)...)
		}
	}
	return out
}

// keyBasis decomposes the keys of a scene in its layer.
func keyBasis(t *testing.T, s *scene) *Decomposition {
	t.Helper()
	d := NewKeyBasis(Model{Layers: cacheshape.Equal(s.layers, s.kvHeads, cacheshape.KV{Heads: s.kvHeads, KeyDim: s.dim})})
	keys := jointKeys(s)
	if err := d.SetLayer(s.index, keys, len(keys)/d.Dim(s.index), 1); err != nil {
		t.Fatal(err)
	}
	return d
}

// ofModel is what was seen of a model, nil for nothing.
func ofModel(o Observation, d *Decomposition) []Observed {
	if d == nil {
		return nil
	}
	return []Observed{{o, d}}
}

// TestKeyBasis: the first columns span what the first right singular vectors of the stacked keys span, by a singular value
// decomposition of the keys themselves.
func TestKeyBasis(t *testing.T) {
	s := randomScene(5, 150, 6, 3, 16)
	s.index, s.layers = 1, 2
	d, width := keyBasis(t, s), 48
	keys := mat.NewDense(150, width, nil)
	for i, x := range jointKeys(s) {
		keys.Set(i/width, i%width, float64(x))
	}
	var svd mat.SVD
	if !svd.Factorize(keys, mat.SVDThin) {
		t.Fatal("no singular values")
	}
	var v mat.Dense
	svd.VTo(&v)
	for _, rank := range []int{1, 7, 16, 48} {
		for i := range width {
			for j := range width {
				var got, want float64
				for c := range rank {
					got += float64(d.Head(1, 0)[c*width+i]) * float64(d.Head(1, 0)[c*width+j])
					want += v.At(i, c) * v.At(j, c)
				}
				if math.Abs(got-want) > 1e-5 {
					t.Fatalf("rank %d: projection [%d, %d] is %g, want %g", rank, i, j, got, want)
				}
			}
		}
	}
}

// swapped are the picks of kvswap on a scene.
func swapped(t *testing.T, s *scene, params string, basis *Decomposition) [][]int32 {
	t.Helper()
	spec, err := Parse("kvswap:budget=40,query=exact" + params)
	if err != nil {
		t.Fatal(err)
	}
	set, err := spec.New(Model{Layers: cacheshape.Equal(s.layers, s.heads, cacheshape.KV{Heads: s.kvHeads, KeyDim: s.dim, ValueDim: s.dim}), Observed: ofModel(KeyBasis{}, basis)})
	if err != nil {
		t.Fatal(err)
	}
	l := s.layer(0, 1)
	l.Scores = project(s, set.Projector)
	var read Selection
	set.Selector.Select(l, &read)
	return read.Heads
}

// TestKVSwapCalibrated: calibrated on a text's own keys it reads what it reads by itself; on another text's other tokens, unless the
// columns are all there are.
func TestKVSwapCalibrated(t *testing.T) {
	s, other := randomScene(7, 200, 4, 2, 16), randomScene(8, 90, 4, 2, 16)
	for _, x := range []*scene{s, other} {
		x.index, x.layers = 2, 4
		x.fill()
	}
	own, theirs := keyBasis(t, s), keyBasis(t, other)
	for rank, same := range map[string]bool{"6": false, "32": true} {
		want := swapped(t, s, ",rank="+rank, nil)
		if got := swapped(t, s, ",calibrate=model,rank="+rank, own); !slices.EqualFunc(got, want, slices.Equal) {
			t.Errorf("rank %s, the same keys: %v, want %v", rank, got, want)
		}
		if got := swapped(t, s, ",calibrate=model,rank="+rank, theirs); slices.EqualFunc(got, want, slices.Equal) != same {
			t.Errorf("rank %s, another text's keys: the same tokens %v, want %v", rank, !same, same)
		}
	}
}

func TestKVSwapNeedsItsBasis(t *testing.T) {
	spec, err := Parse("kvswap:calibrate=model")
	if err != nil {
		t.Fatal(err)
	}
	if n := spec.Needs(); !slices.Equal(n.OfModel, []Observation{KeyBasis{}}) {
		t.Errorf("needs %+v", n)
	}
	m := Model{Layers: cacheshape.Equal(2, 4, cacheshape.KV{Heads: 2, KeyDim: 8, ValueDim: 8})}
	wrong := m
	wrong.Observed = ofModel(KeyBasis{}, NewDecomposition(m)) // of the heads by themselves
	for _, m := range []Model{m, wrong} {
		if _, err := spec.New(m); !errors.Is(err, ErrModel) {
			t.Errorf("basis %v: %v", m.Observed, err)
		}
	}
	if _, err := Parse("kvswap:calibrate=text"); err == nil {
		t.Error("calibrate=text is taken")
	}
}

// TestDecompositionBytes: what is written is read back, and nothing else is.
func TestDecompositionBytes(t *testing.T) {
	s := randomScene(9, 60, 4, 2, 8)
	s.layers = 3
	d := keyBasis(t, s)
	b, err := d.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	m := Model{Layers: cacheshape.Equal(3, 2, cacheshape.KV{Heads: 2, KeyDim: 8})}
	back := NewKeyBasis(m)
	if err := back.UnmarshalBinary(b); err != nil || !slices.Equal(back.Basis, d.Basis) {
		t.Fatalf("%v", err)
	}
	for i := range len(b) {
		bad := bytes.Clone(b)
		if bad[i] ^= 4; NewKeyBasis(m).UnmarshalBinary(bad) == nil {
			t.Fatalf("byte %d is damaged and nobody sees it", i)
		}
	}
	// as many numbers in another shape
	if NewDecomposition(Model{Layers: cacheshape.Equal(12, 1, cacheshape.KV{Heads: 1, KeyDim: 8})}).UnmarshalBinary(b) == nil || NewKeyBasis(m).UnmarshalBinary(b[:len(b)-4]) == nil {
		t.Error("another shape, or a part of it, is taken")
	}
}
