package kvmanager

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"terrace/attention"
	"terrace/internal/cacheshape"
	"terrace/internal/kvpage"
)

// TestInactiveAndInsert: tokens taken out, put back and inserted in any order leave the same bytes in the same order as if all had
// been appended, and no page is lost.
func TestInactiveAndInsert(t *testing.T) {
	const heads, dim, n, block = 2, 8, 150, 32
	for _, elem := range []kvpage.Elem{kvpage.F16, kvpage.F32} {
		for seed := range uint64(4) {
			rng := rand.New(rand.NewPCG(seed, 1))
			m, err := New(Options{Layers: cacheshape.Equal(2, heads, cacheshape.KV{Heads: heads, KeyDim: dim, ValueDim: dim}), Layout: kvpage.Layout{K: elem, V: elem, KeyDim: dim, ValueDim: dim, Tokens: 16}})
			if err != nil {
				t.Fatal(err)
			}
			k, v := make([]float32, n*heads*dim), make([]float32, n*heads*dim)
			for i := range k {
				k[i], v[i] = rng.Float32(), rng.Float32()
			}
			pos := make([]int32, n)
			for i := range pos {
				pos[i] = int32(i)
			}
			row := func(i int) []float32 { return k[i*heads*dim : (i+1)*heads*dim] }
			whole, s := m.NewSequence(), m.NewSequence()
			rows := func(at []int32) (a, b []float32) {
				for _, p := range at {
					a = append(a, row(int(p))...)
					b = append(b, v[int(p)*heads*dim:int(p+1)*heads*dim]...)
				}
				return a, b
			}
			must := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			must(whole.Append(1, k, v, pos))
			// Blocks 1 and 3 come later as pages, then some single tokens.
			var first, singles []int32
			for _, p := range pos {
				switch {
				case p/block == 1 || p/block == 3:
				case p >= 140 && p%3 == 0:
					singles = append(singles, p)
				default:
					first = append(first, p)
				}
			}
			a, b := rows(first)
			must(s.Append(1, a, b, first))
			a, b = rows(pos[96:128])
			must(s.Insert(1, a, b, pos[96:128]))
			a, b = rows(singles)
			must(s.Insert(1, a, b, singles))
			must(s.Swaps().Deactivate(1, 64, 96))
			must(s.Swaps().Deactivate(1, 0, 32))
			if got := s.Swaps().Bytes(); got != 2*2*heads*int64(m.Layout(0).PageBytes()) {
				t.Errorf("%d bytes inactive", got)
			}
			if slices.Contains(s.PositionList(1, 0), 70) {
				t.Error("position 70 is inactive and seen")
			}
			a, b = rows(pos[32:64])
			must(s.Insert(1, a, b, pos[32:64]))
			must(s.Swaps().Activate(1, 0))
			must(s.Swaps().Activate(1, 64))
			sameTokens(t, m, whole, s, n)
			for _, err := range []error{s.Swaps().Deactivate(1, 3, 17), s.Swaps().Activate(1, 5), s.Insert(1, a, b, pos[32:64]), s.Swaps().Deactivate(1, 128, 150)} {
				if !errors.Is(err, ErrPlan) {
					t.Errorf("wrong call: %v", err)
				}
			}
			must(s.Swaps().Deactivate(1, 0, 32))
			must(s.Truncate(0))
			whole.Free()
			must(m.Check())
			s.Free()
			must(m.Check())
			must(m.Close())
		}
	}
}

func sameTokens(t *testing.T, m *Manager, a, b *Sequence, n int) {
	t.Helper()
	var r attention.Reader
	for g := range m.o.Layers[0].KV.Heads {
		if !slices.Equal(a.PositionList(1, g), b.PositionList(1, g)) {
			t.Fatalf("head %d: %v", g, b.PositionList(1, g))
		}
		va, vb := a.Views(1)[g], b.Views(1)[g]
		l := m.Layout(0)
		x, y := make([]float32, l.KeyDim), make([]float32, l.KeyDim)
		for i := range n {
			r.Keys(&va, i, i+1, x)
			r.Keys(&vb, i, i+1, y)
			if !slices.Equal(x, y) || vb.Pages[i/l.Tokens].Pos[i%l.Tokens] != int32(i) {
				t.Fatalf("head %d token %d: keys %v, want %v", g, i, y, x)
			}
			r.Values(&va, i, i+1, x)
			r.Values(&vb, i, i+1, y)
			if !slices.Equal(x, y) {
				t.Fatalf("head %d token %d: values %v, want %v", g, i, y, x)
			}
		}
	}
}
