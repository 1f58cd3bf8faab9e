package kvmanager

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"terrace/internal/cacheshape"
	"terrace/internal/kvpage"
)

// equal gives options equal layers.
func equal(o *Options, layers, heads, keyDim, valueDim int) {
	o.Layout.KeyDim, o.Layout.ValueDim = keyDim, valueDim
	o.Layers = cacheshape.Equal(layers, heads, cacheshape.KV{Heads: heads, KeyDim: keyDim, ValueDim: valueDim})
}

// slide gives layers windows.
func slide(o *Options, windows []int) {
	for layer, w := range windows {
		o.Layers[layer].KV.Window = w
	}
}

// shape is a small cache: 2 layers, 3 KV heads of width 4 and 6.
func shape(elem kvpage.Elem, budget int64) Options {
	return Options{Layers: cacheshape.Equal(2, 3, cacheshape.KV{Heads: 3, KeyDim: 4, ValueDim: 6}), BudgetBytes: budget, Layout: kvpage.Layout{K: elem, V: elem, KeyDim: 4, ValueDim: 6, Tokens: 16}}
}

func open(t testing.TB, o Options) *Manager {
	t.Helper()
	m, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Check(); err != nil {
			t.Error(err)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// kvOf is a token's key and value in one head: numbers that name the token, the head and the dimension.
func kvOf(id, layer, head, dim, d int) float32 {
	return float32(id%97) + float32(layer*3+head)/16 + float32(d)/float32(4*dim)
}

// rows makes the keys and values of tokens for Append.
func rows(o Options, layer int, ids []int) (k, v []float32) {
	l := o.Layout
	for _, id := range ids {
		for h := range o.Layers[0].KV.Heads {
			for d := range l.KeyDim {
				k = append(k, kvOf(id, layer, h, l.KeyDim, d))
			}
		}
		for h := range o.Layers[0].KV.Heads {
			for d := range l.ValueDim {
				v = append(v, -kvOf(id, layer, h, l.ValueDim, d))
			}
		}
	}
	return k, v
}

// model is what a sequence must hold: for each layer and head the token ids and positions.
type reference struct{ ids, pos [][]int }

func newReference(o Options) *reference {
	n := len(o.Layers) * o.Layers[0].KV.Heads
	return &reference{make([][]int, n), make([][]int, n)}
}

func (r *reference) clone() *reference {
	c := &reference{slices.Clone(r.ids), slices.Clone(r.pos)}
	for i := range c.ids {
		c.ids[i], c.pos[i] = slices.Clone(r.ids[i]), slices.Clone(r.pos[i])
	}
	return c
}

type fataler interface {
	Helper()
	Fatalf(string, ...any)
}

// holds compares a sequence with what it must hold, bytes included.
func holds(t fataler, o Options, s *Sequence, want *reference) {
	t.Helper()
	for layer := range o.Layers {
		holdsLayer(t, o, s, want, layer)
	}
}

// holdsLayer is holds of one layer.
func holdsLayer(t fataler, o Options, s *Sequence, want *reference, layer int) {
	t.Helper()
	l := o.Layout
	k, v := make([]float32, l.KeyDim), make([]float32, l.ValueDim)
	for h, view := range s.Views(layer) {
		ids, pos := want.ids[layer*o.Layers[0].KV.Heads+h], want.pos[layer*o.Layers[0].KV.Heads+h]
		if view.Tokens() != len(ids) || s.Tokens(layer, h) != len(ids) || len(s.PositionList(layer, h)) != len(ids) {
			t.Fatalf("layer %d head %d: %d tokens, want %d", layer, h, view.Tokens(), len(ids))
		}
		for i, id := range ids {
			p := view.Pages[i/l.Tokens]
			if int(p.Pos[i%l.Tokens]) != pos[i] || int(s.PositionList(layer, h)[i]) != pos[i] {
				t.Fatalf("layer %d head %d token %d: position %d, want %d", layer, h, i, p.Pos[i%l.Tokens], pos[i])
			}
			kvpage.ReadK(l, p.Data, i%l.Tokens, k)
			kvpage.ReadV(l, p.Data, i%l.Tokens, v)
			for d := range k {
				if k[d] != kvOf(id, layer, h, l.KeyDim, d) {
					t.Fatalf("layer %d head %d token %d: key %v at %d, want %v", layer, h, i, k[d], d, kvOf(id, layer, h, l.KeyDim, d))
				}
			}
			for d := range v {
				if v[d] != -kvOf(id, layer, h, l.ValueDim, d) {
					t.Fatalf("layer %d head %d token %d: value %v at %d", layer, h, i, v[d], d)
				}
			}
		}
	}
}

// add appends tokens to a sequence and to what it must hold.
func add(t fataler, o Options, s *Sequence, want *reference, ids []int, next int) {
	t.Helper()
	pos := make([]int32, len(ids))
	for i := range pos {
		pos[i] = int32(next + i)
	}
	for layer := range o.Layers {
		k, v := rows(o, layer, ids)
		if err := s.Append(layer, k, v, pos); err != nil {
			t.Fatalf("append: %v", err)
		}
		for h := range o.Layers[0].KV.Heads {
			at := layer*o.Layers[0].KV.Heads + h
			want.ids[at] = append(want.ids[at], ids...)
			for i := range ids {
				want.pos[at] = append(want.pos[at], next+i)
			}
		}
	}
}

// keep drops the same tokens from both.
func keep(t fataler, o Options, s *Sequence, want *reference, layer, h int, idx []int) {
	t.Helper()
	if err := s.Keep(layer, h, idx); err != nil {
		t.Fatalf("keep: %v", err)
	}
	at := layer*o.Layers[0].KV.Heads + h
	var ids, pos []int
	for _, i := range idx {
		ids, pos = append(ids, want.ids[at][i]), append(pos, want.pos[at][i])
	}
	want.ids[at], want.pos[at] = ids, pos
}

func TestAppendKeepAcrossPages(t *testing.T) {
	for i, elem := range []kvpage.Elem{kvpage.F32, kvpage.F16, kvpage.F32, kvpage.F16} {
		o := shape(elem, 0)
		o.Layout.TokenMajor = i > 1
		if elem == kvpage.F16 {
			equal(&o, len(o.Layers), o.Layers[0].KV.Heads, 4, 4) // values that f16 holds exactly
		}
		m := open(t, o)
		s, want := m.NewSequence(), newReference(o)
		ids := make([]int, 70)
		for i := range ids {
			ids[i] = i % 8
		}
		add(t, o, s, want, ids[:33], 0)
		add(t, o, s, want, ids[33:], 33)
		holds(t, o, s, want)
		keep(t, o, s, want, 1, 2, []int{0, 1, 17, 33, 34, 69})
		keep(t, o, s, want, 0, 0, nil)
		holds(t, o, s, want)
		if got := s.Bytes(); got != int64((5*4+1)*m.Layout(0).PageBytes()) {
			t.Errorf("%d bytes after eviction, want 4 whole heads of 5 pages and one page", got)
		}
		add(t, o, s, want, []int{3}, 70)
		holds(t, o, s, want)
		if err := s.Truncate(3); err != nil {
			t.Fatal(err)
		}
		s.Free()
		s.Free()
	}
}

func TestForkCopiesOnWrite(t *testing.T) {
	o := shape(kvpage.F32, 0)
	m := open(t, o)
	s, want := m.NewSequence(), newReference(o)
	add(t, o, s, want, []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20}, 0)
	before := m.Stats().InUseBytes
	f, err := s.Fork()
	if err != nil {
		t.Fatal(err)
	}
	if m.Stats().InUseBytes != before {
		t.Error("a fork that wrote nothing took memory")
	}
	fwant := want.clone()
	add(t, o, f, fwant, []int{50}, 20)
	add(t, o, s, want, []int{60, 61}, 20)
	keep(t, o, f, fwant, 0, 1, []int{2, 20})
	holds(t, o, s, want)
	holds(t, o, f, fwant)
	s.Free()
	holds(t, o, f, fwant)
	f.Free()
	if _, err := f.Fork(); !errors.Is(err, ErrClosed) {
		t.Errorf("fork of a freed sequence: %v", err)
	}
	if err := f.Append(0, nil, nil, []int32{0}); !errors.Is(err, ErrClosed) {
		t.Errorf("append to a freed sequence: %v", err)
	}
}

func TestBudgetIsHardAndLeavesNothingBehind(t *testing.T) {
	o := shape(kvpage.F32, 0)
	probe := open(t, o)
	o.BudgetBytes = probe.BytesFor(16) + 2*int64(probe.Layout(0).PageBytes())
	m := open(t, o)
	s, want := m.NewSequence(), newReference(o)
	add(t, o, s, want, []int{1, 2, 3}, 0)
	ids := make([]int, 16)
	pos := make([]int32, 16)
	for i := range pos {
		pos[i] = int32(3 + i)
	}
	k, v := rows(o, 0, ids)
	before := m.Stats()
	if err := s.Append(0, k, v, pos); !errors.Is(err, ErrBudget) {
		t.Fatalf("append past the budget: %v", err)
	}
	if after := m.Stats(); after.InUseBytes != before.InUseBytes || after.PeakBytes > o.BudgetBytes {
		t.Errorf("accounts %+v, before %+v", after, before)
	}
	holds(t, o, s, want)
	s.Free()
}

func TestBadPlansChangeNothing(t *testing.T) {
	o := shape(kvpage.F32, 0)
	m := open(t, o)
	s, want := m.NewSequence(), newReference(o)
	add(t, o, s, want, []int{1, 2, 3}, 0)
	for _, plan := range [][]int{{3}, {-1}, {1, 1}, {2, 0}} {
		if err := s.Keep(0, 0, plan); !errors.Is(err, ErrPlan) {
			t.Errorf("plan %v: %v", plan, err)
		}
	}
	holds(t, o, s, want)
	s.Free()
}

func TestOptionsAreChecked(t *testing.T) {
	one := cacheshape.Equal(1, 1, cacheshape.KV{Heads: 1, KeyDim: 4, ValueDim: 4})
	for _, o := range []Options{{}, {Layers: cacheshape.Equal(1, 1, cacheshape.KV{})}, {Layers: cacheshape.Equal(1, 1, cacheshape.KV{Heads: 1})},
		{Layers: one, BudgetBytes: -1}, {Layers: one, Layout: kvpage.Layout{K: kvpage.I8, TokenMajor: true}},
		{Layers: cacheshape.Equal(1, 1, cacheshape.KV{Heads: 1, KeyDim: 4, ValueDim: 4, ValueInKey: true}), Layout: kvpage.Layout{K: kvpage.I8, V: kvpage.I8}}} {
		if _, err := New(o); err == nil {
			t.Errorf("%+v was taken", o)
		}
	}
}

// TestAgainstReference runs random lists of operations and compares with plain slices after each.
func TestAgainstReference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := shape(kvpage.F32, 0)
		o.Layout.Tokens = rapid.SampledFrom([]int{16, 32}).Draw(t, "tokens")
		o.Layout.TokenMajor = rapid.Bool().Draw(t, "keys by token")
		m, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		type pair struct {
			s    *Sequence
			want *reference
			next int
		}
		all := []*pair{{m.NewSequence(), newReference(o), 0}}
		seen := seenPages{}
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			p := all[rapid.IntRange(0, len(all)-1).Draw(t, "which")]
			switch rapid.IntRange(0, 4).Draw(t, "op") {
			case 0, 1:
				ids := rapid.SliceOfN(rapid.IntRange(0, 90), 1, 40).Draw(t, "ids")
				add(t, o, p.s, p.want, ids, p.next)
				p.next += len(ids)
			case 2:
				layer, h := rapid.IntRange(0, 1).Draw(t, "layer"), rapid.IntRange(0, 2).Draw(t, "head")
				var idx []int
				rng := rand.New(rand.NewPCG(1, uint64(rapid.IntRange(0, 1000).Draw(t, "seed"))))
				for i := range p.s.Tokens(layer, h) {
					if rng.IntN(2) == 0 {
						idx = append(idx, i)
					}
				}
				keep(t, o, p.s, p.want, layer, h, idx)
				m.Release()
			case 3:
				f, err := p.s.Fork()
				if err != nil {
					t.Fatalf("fork: %v", err)
				}
				all = append(all, &pair{f, p.want.clone(), p.next})
			case 4:
				n := rapid.IntRange(0, 50).Draw(t, "truncate")
				if err := p.s.Truncate(int32(n)); err != nil {
					t.Fatalf("truncate: %v", err)
				}
				for i := range p.want.ids {
					at, _ := slices.BinarySearch(p.want.pos[i], n)
					p.want.ids[i], p.want.pos[i] = p.want.ids[i][:at], p.want.pos[i][:at]
				}
				p.next = min(p.next, n)
			}
			for _, q := range all {
				holds(t, o, q.s, q.want)
				seen.check(t, o, q.s)
			}
			if err := m.Check(); err != nil {
				t.Fatalf("%v", err)
			}
		}
		for _, q := range all {
			q.s.Free()
		}
		if err := m.Check(); err != nil {
			t.Fatalf("%v", err)
		}
	})
}

func BenchmarkAppendToken(b *testing.B) {
	o := Options{Layers: cacheshape.Equal(30, 3, cacheshape.KV{Heads: 3, KeyDim: 64, ValueDim: 64}), Layout: kvpage.Layout{K: kvpage.F16, V: kvpage.F16, KeyDim: 64, ValueDim: 64, Tokens: 16}}
	m, err := New(o)
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	s := m.NewSequence()
	defer s.Free()
	k, v := make([]float32, 3*64), make([]float32, 3*64)
	b.ReportAllocs()
	i := int32(0)
	for b.Loop() {
		if i == 8192 {
			if err := s.Truncate(0); err != nil {
				b.Fatal(err)
			}
			i = 0
		}
		for layer := range 30 {
			if err := s.Append(layer, k, v, []int32{i}); err != nil {
				b.Fatal(err)
			}
		}
		i++
	}
}

// BenchmarkDropOne is a decode step of a policy that holds 1,765 tokens: one token comes and one after the sinks goes, in every
// layer and head (SmolLM2's 30 and 3).
func BenchmarkDropOne(b *testing.B) {
	const held = 1765
	o := Options{Layers: cacheshape.Equal(30, 3, cacheshape.KV{Heads: 3, KeyDim: 64, ValueDim: 64}), Layout: kvpage.Layout{K: kvpage.F16, V: kvpage.F16, KeyDim: 64, ValueDim: 64, Tokens: 16}}
	m, err := New(o)
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	s := m.NewSequence()
	defer s.Free()
	k, v := make([]float32, 3*64), make([]float32, 3*64)
	keep := make([]int, 0, held)
	for i := range held + 1 {
		if i != 4 {
			keep = append(keep, i)
		}
	}
	i := int32(0)
	step := func(drop bool) {
		for layer := range 30 {
			if err := s.Append(layer, k, v, []int32{i}); err != nil {
				b.Fatal(err)
			}
			for g := range 3 {
				if !drop {
					break
				}
				if err := s.Keep(layer, g, keep); err != nil {
					b.Fatal(err)
				}
			}
		}
		i++
	}
	for range held {
		step(false)
	}
	for b.Loop() {
		step(true)
	}
}
