package kvmanager

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"

	"terrace/attention"
	"terrace/internal/cacheshape"
	"terrace/internal/kvpage"
)

// quantizedShape is a small cache of 8-bit keys and 4-bit values behind a window of 32 tokens.
func quantizedShape(tokens int) Options {
	return Options{Layers: cacheshape.Equal(1, 2, cacheshape.KV{Heads: 2, KeyDim: 16, ValueDim: 32}), Window: 32, Layout: kvpage.Layout{K: kvpage.I8, V: kvpage.I4, KeyDim: 16, ValueDim: 32, Tokens: tokens}}
}

// filled appends n random tokens in steps and returns them.
func filled(t *testing.T, o Options, s *Sequence, n, step int) (k, v []float32) {
	t.Helper()
	rng := rand.New(rand.NewPCG(uint64(n), 1))
	kw, vw := o.Layers[0].KV.Heads*o.Layout.KeyDim, o.Layers[0].KV.Heads*o.Layout.ValueDim
	for range n * kw {
		k = append(k, float32(rng.NormFloat64()))
	}
	for range n * vw {
		v = append(v, float32(rng.NormFloat64()))
	}
	for from := 0; from < n; from += step {
		to := min(n, from+step)
		var pos []int32
		for i := from; i < to; i++ {
			pos = append(pos, int32(i))
		}
		if err := s.Append(0, k[from*kw:to*kw], v[from*vw:to*vw], pos); err != nil {
			t.Fatal(err)
		}
		s.Settle(0)
	}
	return k, v
}

// near checks a head against the tokens it should hold: within a step of the scales where quantized, within f16 in the window.
func near(t *testing.T, o Options, s *Sequence, g int, ids []int, k, v []float32, stepK float64) {
	t.Helper()
	view := s.Views(0)[g]
	if view.Tokens() != len(ids) {
		t.Fatalf("%d tokens, want %d", view.Tokens(), len(ids))
	}
	var r attention.Reader
	dk, dv := o.Layout.KeyDim, o.Layout.ValueDim
	keys, values := make([]float32, len(ids)*dk), make([]float32, len(ids)*dv)
	r.Keys(&view, 0, len(ids), keys)
	r.Values(&view, 0, len(ids), values)
	late := len(ids) - s.lists.at(0, g).main.tokens
	if late > o.Window+2*kvpage.Tile-1 {
		t.Errorf("%d tokens in a window of %d", late, o.Window)
	}
	for i, id := range ids {
		if int(s.PositionList(0, g)[i]) != id {
			t.Fatalf("token %d has position %d, want %d", i, s.PositionList(0, g)[i], id)
		}
		limitK, limitV := stepK, 0.6
		if i >= len(ids)-late {
			limitK, limitV = max(0.004, stepK-0.03), 0.6
		}
		for d := range dk {
			if e := math.Abs(float64(keys[i*dk+d] - k[(id*o.Layers[0].KV.Heads+g)*dk+d])); e > limitK {
				t.Fatalf("token %d of %d: key off by %v", i, len(ids), e)
			}
		}
		for d := range dv {
			if e := math.Abs(float64(values[i*dv+d] - v[(id*o.Layers[0].KV.Heads+g)*dv+d])); e > limitV {
				t.Fatalf("token %d: value off by %v", i, e)
			}
		}
	}
}

func upTo(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

func TestWindowBeforeAQuantizedCache(t *testing.T) {
	for _, tokens := range []int{16, 64} {
		for _, step := range []int{1, 7, 200} {
			o := quantizedShape(tokens)
			m := open(t, o)
			s := m.NewSequence()
			k, v := filled(t, o, s, 200, step)
			for g := range 2 {
				near(t, o, s, g, upTo(200), k, v, 0.03)
				if n := s.lists.at(0, g).main.tokens; n != 160 { // 200 - 32, whole tiles
					t.Errorf("steps of %d: %d tokens quantized, want 160", step, n)
				}
			}
			if got, want := s.Bytes(), m.BytesFor(200); got != want {
				t.Errorf("%d bytes, computed %d", got, want)
			}
			s.Free()
		}
	}
}

func TestEvictionRequantizesTiles(t *testing.T) {
	o := quantizedShape(16)
	m := open(t, o)
	s := m.NewSequence()
	k, v := filled(t, o, s, 200, 50)
	f, err := s.Fork()
	if err != nil {
		t.Fatal(err)
	}
	ids := slices.Concat(upTo(40), []int{60, 61, 75, 90, 100, 101, 102, 103, 120, 140, 150, 151, 152, 170, 180, 181, 199})
	if err := s.Keep(0, 1, ids); err != nil {
		t.Fatal(err)
	}
	near(t, o, s, 1, ids, k, v, 0.06) // two roundings
	near(t, o, f, 1, upTo(200), k, v, 0.03)
	near(t, o, s, 0, upTo(200), k, v, 0.03)
	if err := s.Truncate(100); err != nil {
		t.Fatal(err)
	}
	near(t, o, s, 1, ids[:slices.Index(ids, 100)], k, v, 0.09)
	near(t, o, f, 0, upTo(200), k, v, 0.03)
	if err := m.Check(); err != nil {
		t.Fatal(err)
	}
	s.Free()
	near(t, o, f, 1, upTo(200), k, v, 0.03)
	f.Free()
}

func TestQuantizedBudgetLeavesNothingBehind(t *testing.T) {
	o := quantizedShape(16)
	probe := open(t, o)
	o.BudgetBytes = probe.BytesFor(100)
	m := open(t, o)
	s := m.NewSequence()
	k, v := filled(t, o, s, 96, 8)
	before := m.Stats().InUseBytes
	kw, vw := o.Layers[0].KV.Heads*o.Layout.KeyDim, o.Layers[0].KV.Heads*o.Layout.ValueDim
	pos := make([]int32, 40)
	for i := range pos {
		pos[i] = int32(96 + i)
	}
	if err := s.Append(0, k[:40*kw], v[:40*vw], pos); !errors.Is(err, ErrBudget) {
		t.Fatalf("append past the budget: %v", err)
	}
	if m.Stats().InUseBytes != before {
		t.Errorf("%d bytes in use, %d before", m.Stats().InUseBytes, before)
	}
	near(t, o, s, 0, upTo(96), k, v, 0.03)
	s.Free()
}

// A window of 0 that was chosen leaves only what does not fill a tile; one that was not is DefaultWindow.
func TestNoWindow(t *testing.T) {
	for _, set := range []bool{false, true} {
		for _, step := range []int{1, 7, 200} {
			o := quantizedShape(16)
			o.Window, o.WindowSet = 0, set
			m := open(t, o)
			s := m.NewSequence()
			k, v := filled(t, o, s, 200, step)
			quantizedTokens := 192
			if !set {
				quantizedTokens, o.Window = 64, DefaultWindow // 200 - 128, whole tiles
			}
			for g := range 2 {
				near(t, o, s, g, upTo(200), k, v, 0.03)
				if n := s.lists.at(0, g).main.tokens; n != quantizedTokens {
					t.Errorf("chosen %v, steps of %d: %d tokens quantized, want %d", set, step, n, quantizedTokens)
				}
			}
			ids := slices.Concat(upTo(40), []int{60, 61, 75, 181, 199})
			if err := s.Keep(0, 1, ids); err != nil {
				t.Fatal(err)
			}
			near(t, o, s, 1, ids, k, v, 0.06)
			if got, want := s.Bytes(), m.BytesFor(200); got >= want {
				t.Errorf("%d bytes after eviction, %d before", got, want)
			}
			s.Free()
		}
	}
}

// TestGroupsLeaveTheWindow: int3 and int2 tokens leave the window 128 at a time and become the bytes that their group gives alone, in appends
// and pages of any size; a fork keeps its own, and what a cut leaves of a group goes back into the window.
func TestGroupsLeaveTheWindow(t *testing.T) {
	for _, tokens := range []int{128, 256} {
		for _, step := range []int{1, 7, 400} {
			o := Options{Layers: cacheshape.Equal(1, 2, cacheshape.KV{Heads: 2, KeyDim: 16, ValueDim: 32}), Window: 20, WindowSet: true, Layout: kvpage.Layout{K: kvpage.I3, V: kvpage.I2, Tokens: tokens}}
			o.Layout.KeyDim, o.Layout.ValueDim = 16, 32
			m := open(t, o)
			s := m.NewSequence()
			k, v := filled(t, o, s, 400, step)
			wholeGroups(t, o, s, k, v, 256, 144)
			if got, want := s.Bytes(), m.BytesFor(400); got != want {
				t.Errorf("%d bytes, computed %d", got, want)
			}
			f, err := s.Fork()
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Truncate(200); err != nil {
				t.Fatal(err)
			}
			wholeGroups(t, o, s, k, v, 128, 72)
			wholeGroups(t, o, f, k, v, 256, 144)
			keep := slices.Concat(upTo(100), []int{130, 150, 199})
			if err := s.Keep(0, 1, keep); err != nil {
				t.Fatal(err)
			}
			if n := s.lists.at(0, 1).main.tokens; n != 0 || s.Tokens(0, 1) != len(keep) {
				t.Errorf("%d tokens quantized of %d, want none of %d", n, s.Tokens(0, 1), len(keep))
			}
			wholeGroups(t, o, f, k, v, 256, 144)
			s.Free()
			f.Free()
			if err := m.Check(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// wholeGroups checks the main pages of both heads against kvpage's of the same tokens as float16, and how many tokens lie there and in the window.
func wholeGroups(t *testing.T, o Options, s *Sequence, k, v []float32, main, late int) {
	t.Helper()
	l := o.Layout
	half := func(x []float32) []float32 {
		out := make([]float32, len(x))
		f := kvpage.Layout{K: kvpage.F16, V: kvpage.F16, KeyDim: len(x), ValueDim: 1, Tokens: kvpage.Tile}
		page := make([]byte, f.PageBytes())
		kvpage.PutK(f, page, 0, x)
		kvpage.ReadK(f, page, 0, out)
		return out
	}
	for g := range 2 {
		data, pos, err := s.AppendMain(nil, 0, g, 0, s.MainTokens(0, g))
		if err != nil || len(pos) != main || s.Tokens(0, g)-len(pos) != late {
			t.Fatalf("head %d: %d tokens quantized and %d late, want %d and %d; %v", g, len(pos), s.Tokens(0, g)-len(pos), main, late, err)
		}
		for first := 0; first < main; first += l.Tokens {
			page := make([]byte, l.PageBytes())
			n := min(l.Tokens, main-first)
			for group := 0; group < n; group += 128 {
				var keys, values []float32
				for i := first + group; i < first+group+128; i++ {
					keys, values = append(keys, half(k[(2*i+g)*16:][:16])...), append(values, half(v[(2*i+g)*32:][:32])...)
				}
				kvpage.Append(l, page, group, 128, keys, 16, values, 32)
				if first+group == 0 { // a text's first token is exact
					kvpage.PutGroupK(l, page, 0, 128, keys, 16, 0)
				}
			}
			got := data[first/l.Tokens*l.PageBytes():][:l.PageBytes()]
			for i := range n {
				want, have := make([]float32, 48), make([]float32, 48)
				kvpage.ReadK(l, page, i, want[:16])
				kvpage.ReadK(l, got, i, have[:16])
				kvpage.ReadV(l, page, i, want[16:])
				kvpage.ReadV(l, got, i, have[16:])
				if !slices.Equal(want, have) {
					t.Fatalf("head %d, token %d: %v, want %v", g, first+i, have, want)
				}
			}
		}
	}
}

// TestOwnRowsReadFullPrecision: what is appended together is read as float16 until Settle, and so are the tokens of the window before its
// first; then it is the bytes that it is where tokens come one by one.
func TestOwnRowsReadFullPrecision(t *testing.T) {
	for _, c := range caches {
		if !c.layout.K.Quantised() && !c.layout.V.Quantised() {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := open(t, cacheOptions(t, c.layout, c.window, c.blocks))
				s, single := m.NewSequence(), m.NewSequence()
				if err := extend(s, 0, 303); err != nil {
					t.Fatal(err)
				}
				at, n := 303, 150
				pos := make([]int32, n)
				for i := range pos {
					pos[i] = int32(at + i)
				}
				k, v := randomRows(1, 1, at, n), randomRows(2, 1, at, n)
				if err := s.Append(1, k, v, pos); err != nil {
					t.Fatal(err)
				}
				if err := s.Acquire(1, 0); err != nil {
					t.Fatal(err)
				}
				late := at + 1 - s.m.codec.(*quantizer).leaving(0, at+1) // the window that the first row alone would read
				for g := range 2 {
					if got := s.Tokens(1, g) - s.MainTokens(1, g); got != late-1+n {
						t.Fatalf("%d tokens of head %d in full precision, want %d and the %d appended", got, g, late-1, n)
					}
					keys, values := rowsOf(s, 1, g)
					for i := n - min(n, late-1+n); i < n; i++ { // without a window the first fills a group
						for d := range 32 {
							x, y := keys[(at+i)*32+d]-k[(2*i+g)*32+d], values[(at+i)*32+d]-v[(2*i+g)*32+d]
							if max(x, -x, y, -y) > 1.0/512 {
								t.Fatalf("token %d of head %d is off by %v and %v", at+i, g, x, y)
							}
						}
					}
				}
				if err := s.Release(1); err != nil {
					t.Fatal(err)
				}
				if err := s.Append(0, randomRows(1, 0, at, n), randomRows(2, 0, at, n), pos); err != nil {
					t.Fatal(err)
				}
				s.Settle(0)
				for i := range at + n {
					if err := extend(single, i, 1); err != nil {
						t.Fatal(err)
					}
				}
				check(t, m, nil, s, single)
				sameContent(t, single, s)
				if m.backing == nil && s.Bytes() != m.BytesFor(at+n) {
					t.Errorf("%d bytes, %d were foreseen", s.Bytes(), m.BytesFor(at+n))
				}
				s.Free()
				single.Free()
			})
		})
	}
}

// TestNothingIsLeftUnsettled: whatever comes behind an append (a fork, a cut, a dropped token, changed keys, another append) finds what it
// finds where the append was settled at once, and leaves the same.
func TestNothingIsLeftUnsettled(t *testing.T) {
	changed := func(_ int, keys []float32) {
		for i := range keys {
			keys[i] *= 0.5
		}
	}
	for _, c := range caches {
		if !c.layout.K.Quantised() && !c.layout.V.Quantised() {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for seed := range uint64(8) {
					m := open(t, cacheOptions(t, c.layout, c.window, 3*c.blocks))
					late, atOnce := []*Sequence{m.NewSequence()}, []*Sequence{m.NewSequence()}
					rng, have := rand.New(rand.NewPCG(seed, 46)), []int{0}
					for range 24 {
						at := rng.IntN(len(late))
						a, b := late[at], atOnce[at]
						var err error
						switch do := rng.IntN(7); {
						case do < 3:
							n := 1 + rng.IntN(90)
							pos := make([]int32, n)
							for i := range pos {
								pos[i] = int32(have[at] + i)
							}
							for layer := range 2 {
								k, v := randomRows(1, layer, have[at], n), randomRows(2, layer, have[at], n)
								err = errors.Join(err, a.Append(layer, k, v, pos), b.Append(layer, k, v, pos))
								b.Settle(layer)
							}
							have[at] += n
						case do == 3 && len(late) < 3:
							f, ferr := a.Fork()
							g, gerr := b.Fork()
							err = errors.Join(ferr, gerr)
							late, atOnce, have = append(late, f), append(atOnce, g), append(have, have[at])
						case do == 4: // guesses that were wrong
							b.settleAll()
							have[at] -= min(have[at], rng.IntN(12))
							a.settleAll()
							err = errors.Join(a.Truncate(int32(have[at])), b.Truncate(int32(have[at])))
						case do == 5 && a.Tokens(0, 1) > 4:
							keep := slices.Delete(upTo(a.Tokens(0, 1)), 2, 4)
							err = errors.Join(a.Keep(0, 1, keep), b.Keep(0, 1, keep), a.Release(0), b.Release(0))
						case do == 6:
							err = errors.Join(a.EditKeys(1, 0, changed), b.EditKeys(1, 0, changed), a.Release(1), b.Release(1))
						}
						if err != nil {
							t.Fatalf("seed %d: %v", seed, err)
						}
					}
					for i := range late {
						late[i].settleAll()
						sameContent(t, atOnce[i], late[i])
					}
					check(t, m, nil, slices.Concat(late, atOnce)...)
					for _, s := range slices.Concat(late, atOnce) {
						s.Free()
					}
				}
			})
		})
	}
}

// TestCutOfAnAppend: what is taken back of an append before it is settled leaves what was there, and a part of it what that part alone would.
func TestCutOfAnAppend(t *testing.T) {
	for _, c := range caches {
		if !c.layout.K.Quantised() && !c.layout.V.Quantised() {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := open(t, cacheOptions(t, c.layout, c.window, c.blocks))
				for _, stay := range []int{5, 40, 99} {
					a, b := m.NewSequence(), m.NewSequence()
					if err := errors.Join(extend(a, 0, 200), extend(b, 0, 200), extend(b, 200, stay)); err != nil {
						t.Fatal(err)
					}
					pos := make([]int32, 100)
					for i := range pos {
						pos[i] = int32(200 + i)
					}
					for layer := range 2 {
						if err := a.Append(layer, randomRows(1, layer, 200, 100), randomRows(2, layer, 200, 100), pos); err != nil {
							t.Fatal(err)
						}
					}
					if err := a.Truncate(int32(200 + stay)); err != nil {
						t.Fatal(err)
					}
					check(t, m, nil, a, b)
					sameContent(t, b, a)
					a.Free()
					b.Free()
				}
			})
		})
	}
}
