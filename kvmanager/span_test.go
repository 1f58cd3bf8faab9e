package kvmanager

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"

	"terrace/internal/kvpage"
)

// caches are element types, with and without a backing store, that must hold the same bytes after the same appends.
var caches = []struct {
	name   string
	layout kvpage.Layout
	window int
	blocks int
}{
	{"f32", kvpage.Layout{K: kvpage.F32, V: kvpage.F32, Tokens: 16}, 0, 0},
	{"f32 on tiers", kvpage.Layout{K: kvpage.F32, V: kvpage.F32, Tokens: 16}, 0, 120},
	{"bf16 by token", kvpage.Layout{K: kvpage.BF16, V: kvpage.BF16, Tokens: 32, TokenMajor: true}, 0, 120},
	{"i8", kvpage.Layout{K: kvpage.I8, V: kvpage.I8, Tokens: 16}, 32, 0},
	{"i8 on tiers", kvpage.Layout{K: kvpage.I8, V: kvpage.I8, Tokens: 16}, 32, 120},
	{"i4, no window", kvpage.Layout{K: kvpage.I4, V: kvpage.I4, Tokens: 16}, 0, 0},
	{"i4 and f16", kvpage.Layout{K: kvpage.I4, V: kvpage.F16, Tokens: 32}, 48, 120},
	{"i3", kvpage.Layout{K: kvpage.I3, V: kvpage.I3, Tokens: 128}, 32, 0},
	{"i3 and i2 on tiers", kvpage.Layout{K: kvpage.I3, V: kvpage.I2, Tokens: 128}, 0, 120},
	{"f16 and i2", kvpage.Layout{K: kvpage.F16, V: kvpage.I2, Tokens: 32}, 32, 0},
}

// cacheOptions are two layers of two KV heads of 32.
func cacheOptions(t *testing.T, layout kvpage.Layout, window, blocks int) Options {
	t.Helper()
	layout.KeyDim, layout.ValueDim = 32, 32
	o := Options{Layout: layout, Window: window, WindowSet: true}
	equal(&o, 2, 2, 32, 32)
	if blocks > 0 {
		o, _ = onTiers(t, o, blocks)
	}
	return o
}

// randomRows are keys or values of n tokens from a position on, the same each time.
func randomRows(kind uint64, layer, from, n int) []float32 {
	var out []float32
	for pos := from; pos < from+n; pos++ {
		rng := rand.New(rand.NewPCG(kind, uint64(layer)<<32|uint64(pos)))
		for range 2 * 32 {
			out = append(out, float32(rng.NormFloat64()))
		}
	}
	return out
}

// extend appends tokens to every layer.
func extend(s *Sequence, from, n int) error {
	pos := make([]int32, n)
	for i := range pos {
		pos[i] = int32(from + i)
	}
	var err error
	for layer := range s.m.layers {
		err = errors.Join(err, s.Append(layer, randomRows(1, layer, from, n), randomRows(2, layer, from, n), pos), s.Release(layer))
	}
	return err
}

// content is the bytes and positions of a layer and head, as they outlive the sequence.
func content(t *testing.T, s *Sequence, layer, g int) (main, recent Span) {
	t.Helper()
	if err := s.Acquire(layer, 0); err != nil {
		t.Fatal(err)
	}
	data, pos, err := s.AppendMain(nil, layer, g, 0, s.MainTokens(layer, g))
	if err != nil {
		t.Fatal(err)
	}
	main = Span{slices.Clone(pos), data}
	if data, pos, err = s.AppendRecent(nil, layer, g); err != nil {
		t.Fatal(err)
	}
	recent = Span{slices.Clone(pos), data}
	if err := s.Release(layer); err != nil {
		t.Fatal(err)
	}
	return main, recent
}

// sameContent compares two sequences bit by bit, the room behind their tokens left out.
func sameContent(t *testing.T, a, b *Sequence) {
	t.Helper()
	for layer := range a.m.layers {
		for g := range a.m.heads(layer) {
			am, ar := content(t, a, layer, g)
			bm, br := content(t, b, layer, g)
			if !slices.Equal(am.Pos, bm.Pos) || !slices.Equal(ar.Pos, br.Pos) {
				t.Fatalf("layer %d head %d: tokens %v and %v, want %v and %v", layer, g, bm.Pos, br.Pos, am.Pos, ar.Pos)
			}
			x, y := a.rowsOfTokens(t, layer, g), b.rowsOfTokens(t, layer, g)
			if !slices.Equal(x, y) {
				t.Fatalf("layer %d head %d: other keys or values", layer, g)
			}
			if whole := len(am.Pos) / a.m.o.Layout.Tokens * a.m.main(layer).PageBytes(); !bytes.Equal(am.Data[:whole], bm.Data[:whole]) {
				t.Fatalf("layer %d head %d: other bytes", layer, g)
			}
		}
	}
}

// rowsOfTokens are all keys and values of a layer and head as read.
func (s *Sequence) rowsOfTokens(t *testing.T, layer, g int) (out []float32) {
	t.Helper()
	if err := s.Acquire(layer, 0); err != nil {
		t.Fatal(err)
	}
	k, v := rowsOf(s, layer, g)
	if err := s.Release(layer); err != nil {
		t.Fatal(err)
	}
	return append(k, v...)
}

// TestChunksChangeNothing: tokens that come one by one, in odd chunks, or all at once leave the same bytes, in every cache; Together says how
// many may come at once so that each reads what it would alone.
func TestChunksChangeNothing(t *testing.T) {
	for _, c := range caches {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := open(t, cacheOptions(t, c.layout, c.window, c.blocks))
				whole, single, odd := m.NewSequence(), m.NewSequence(), m.NewSequence()
				const n = 150
				if err := extend(whole, 0, n); err != nil {
					t.Fatal(err)
				}
				rng := rand.New(rand.NewPCG(4, 4))
				for at := range n {
					if err := extend(single, at, 1); err != nil {
						t.Fatal(err)
					}
				}
				for at := 0; at < n; {
					k := min(1+rng.IntN(40), n-at)
					together := odd.Together(k)
					if together < 1 || together > k || c.layout.K == kvpage.F32 && together != k {
						t.Fatalf("%d of %d tokens may come together", together, k)
					}
					if err := extend(odd, at, k); err != nil {
						t.Fatal(err)
					}
					at += k
				}
				check(t, m, nil, whole, single, odd)
				sameContent(t, whole, single)
				sameContent(t, whole, odd)
				main, residual := m.codec.split(n)
				if whole.MainTokens(0, 0) != main || whole.Tokens(0, 0) != n || m.MainOf(n) != main || main+residual != n {
					t.Errorf("%d tokens in main pages, want %d of %d", whole.MainTokens(0, 0), main, n)
				}
				if m.backing == nil {
					if want := m.BytesFor(n); whole.Bytes() != want {
						t.Errorf("%d bytes, %d were foreseen", whole.Bytes(), want)
					}
				}
				for _, s := range []*Sequence{whole, single, odd} {
					s.Free()
				}
				check(t, m, nil)
			})
		})
	}
}

// TestSpansComeBack: what a sequence holds, taken out page by page and restored, is the same to the bit, and goes on alike.
func TestSpansComeBack(t *testing.T) {
	for _, c := range caches {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := open(t, cacheOptions(t, c.layout, c.window, c.blocks))
				a, b := m.NewSequence(), m.NewSequence()
				if err := extend(a, 0, 117); err != nil {
					t.Fatal(err)
				}
				for layer := range 2 {
					main, recent := make([]Span, 2), make([]Span, 2)
					for g := range main {
						main[g], recent[g] = content(t, a, layer, g)
					}
					if c.layout.K == kvpage.F32 || c.layout.K == kvpage.BF16 {
						recent = nil
					}
					page, size := m.o.Layout.Tokens, m.main(layer).PageBytes()
					var first, rest []Span // in two pieces
					for _, s := range main {
						at := min(2*page, len(s.Pos)/page*page)
						first, rest = append(first, Span{s.Pos[:at], s.Data[:at/page*size]}), append(rest, Span{s.Pos[at:], s.Data[at/page*size:]})
					}
					if err := errors.Join(b.Restore(layer, first, nil), b.Restore(layer, rest, recent), b.Release(layer)); err != nil {
						t.Fatal(err)
					}
				}
				check(t, m, nil, a, b)
				sameContent(t, a, b)
				if err := errors.Join(extend(a, 117, 60), extend(b, 117, 60)); err != nil {
					t.Fatal(err)
				}
				check(t, m, nil, a, b)
				sameContent(t, a, b)
				a.Free()
				b.Free()
			})
		})
	}
}

// TestBadSpansAreRefused: what does not fit a sequence is refused by name, before or after something was restored.
func TestBadSpansAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := open(t, cacheOptions(t, caches[3].layout, 32, 0))
		a := m.NewSequence()
		if err := extend(a, 0, 117); err != nil {
			t.Fatal(err)
		}
		good, recent := content(t, a, 0, 0)
		short := Span{good.Pos, good.Data[:len(good.Data)-1]}
		back := Span{slices.Clone(good.Pos), good.Data}
		back.Pos[1] = back.Pos[0]
		for what, restore := range map[string]func(s *Sequence) error{
			"one head":          func(s *Sequence) error { return s.Restore(0, []Span{good}, nil) },
			"one window":        func(s *Sequence) error { return s.Restore(0, []Span{good, good}, []Span{recent}) },
			"too few bytes":     func(s *Sequence) error { return s.Restore(0, []Span{good, short}, nil) },
			"positions back":    func(s *Sequence) error { return s.Restore(0, []Span{good, back}, nil) },
			"bytes alone":       func(s *Sequence) error { return s.Restore(0, []Span{good, {Data: good.Data}}, nil) },
			"a window before":   func(s *Sequence) error { return s.Restore(0, []Span{good, good}, []Span{good, recent}) },
			"a sequence closed": func(s *Sequence) error { s.Free(); return s.Restore(0, []Span{good, good}, nil) },
		} {
			s := m.NewSequence()
			if err := restore(s); !errors.Is(err, ErrPlan) && !errors.Is(err, ErrClosed) {
				t.Errorf("%s: %v", what, err)
			}
			s.Free()
		}
		for _, r := range [][2]int{{1, 16}, {-16, 16}, {0, 17}, {32, 16}, {0, 1 << 20}} {
			if _, _, err := a.AppendMain(nil, 0, 0, r[0], r[1]); !errors.Is(err, ErrPlan) {
				t.Errorf("tokens %v: %v", r, err)
			}
		}
		check(t, m, nil, a)
		a.Free()
		check(t, m, nil)
	})
}

// TestCutsAndForksAreAppends: a sequence that was cut, or forked and cut, and extended is one that was only appended to; quantized tokens
// that come back into the window are read within a step of their scale.
func TestCutsAndForksAreAppends(t *testing.T) {
	for _, c := range caches {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := open(t, cacheOptions(t, c.layout, c.window, c.blocks))
				rng := rand.New(rand.NewPCG(8, 8))
				s, never := m.NewSequence(), m.NewSequence()
				for round := range 6 {
					n := s.Tokens(0, 0)
					if err := extend(s, n, 40+rng.IntN(40)); err != nil {
						t.Fatal(err)
					}
					f, err := s.Fork()
					if err != nil {
						t.Fatal(err)
					}
					sameContent(t, s, f)
					cut := s.Tokens(0, 0) - rng.IntN(20)
					if err := errors.Join(f.Truncate(int32(cut)), extend(f, cut, 5)); err != nil {
						t.Fatal(err)
					}
					check(t, m, nil, s, f, never)
					if round%2 == 0 {
						s, f = f, s
					}
					f.Free()
					check(t, m, nil, s, never)
				}
				floats := !m.o.Layout.K.Quantised() && !m.o.Layout.V.Quantised()
				if err := extend(never, 0, s.Tokens(0, 0)); err != nil {
					t.Fatal(err)
				}
				if floats {
					sameContent(t, s, never)
				} else if err := close2(s.rowsOfTokens(t, 1, 1), never.rowsOfTokens(t, 1, 1), 0.6); err != nil {
					t.Error(err)
				}
				s.Free()
				never.Free()
			})
		})
	}
}

// close2 compares numbers within a bound.
func close2(a, b []float32, most float32) error {
	if len(a) != len(b) {
		return fmt.Errorf("%d numbers, want %d", len(a), len(b))
	}
	for i := range a {
		if d := a[i] - b[i]; d > most || d < -most {
			return fmt.Errorf("number %d is %g, want %g", i, a[i], b[i])
		}
	}
	return nil
}
