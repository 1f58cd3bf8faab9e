package kvmanager

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"terrace/internal/cacheshape"
	"terrace/internal/kvpage"
)

// TestAppendLater compares pages whose bytes were written later, by another goroutine, with those of Append: token by token and
// in runs that cross pages, in both layouts of keys.
func TestAppendLater(t *testing.T) {
	const layers, heads, dk, dv = 2, 2, 8, 4
	for _, tokenMajor := range []bool{false, true} {
		l := kvpage.Layout{K: kvpage.F32, V: kvpage.BF16, KeyDim: dk, ValueDim: dv, Tokens: 16, TokenMajor: tokenMajor}
		m, err := New(Options{Layers: cacheshape.Equal(layers, heads, cacheshape.KV{Heads: heads, KeyDim: l.KeyDim, ValueDim: l.ValueDim}), Layout: l})
		if err != nil {
			t.Fatal(err)
		}
		if !m.DefersAppend() {
			t.Fatal("a cache of floats without tiers defers no append")
		}
		now, later := m.NewSequence(), m.NewSequence()
		rng, next := rand.New(rand.NewPCG(1, 2)), int32(0)
		for _, n := range []int{5, 1, 30, 16, 64, 3} {
			k, v, pos := make([]float32, n*heads*dk), make([]float32, n*heads*dv), make([]int32, n)
			for i := range k {
				k[i] = rng.Float32() - 0.5
			}
			for i := range v {
				v[i] = rng.Float32() - 0.5
			}
			for i := range pos {
				pos[i] = next
				next += 1 + int32(rng.IntN(3))
			}
			for layer := range layers {
				if err := now.Append(layer, k, v, pos); err != nil {
					t.Fatal(err)
				}
				fill, err := later.AppendLater(layer, pos)
				if err != nil {
					t.Fatal(err)
				}
				if later.Tokens(layer, 1) != now.Tokens(layer, 1) {
					t.Fatal("the tokens are not there at once")
				}
				done := make(chan struct{})
				go func() {
					fill(k, v)
					close(done)
				}()
				<-done
			}
		}
		for layer := range layers {
			a, b := now.Views(layer), later.Views(layer)
			for g := range a {
				for i := range a[g].Pages {
					x, y := a[g].Pages[i], b[g].Pages[i]
					if x.N != y.N || !bytes.Equal(x.Data, y.Data) || x.Pos[x.N-1] != y.Pos[y.N-1] {
						t.Fatalf("layer %d, head %d, page %d differs", layer, g, i)
					}
				}
			}
		}
		if err := m.Check(); err != nil {
			t.Error(err)
		}
		now.Free()
		later.Free()
		if _, err := later.AppendLater(0, []int32{1}); !errors.Is(err, ErrClosed) {
			t.Errorf("append to a freed sequence: %v", err)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
}
