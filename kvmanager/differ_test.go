package kvmanager

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"

	"terrace/internal/cacheshape"
	"terrace/internal/kvpage"
	"terrace/kvmanager/fakes"
	"terrace/offload"
)

// differing is a model whose layers have nothing in common: heads, widths, a window, one that keeps nothing, one that reads another's, one
// whose values are its keys.
func differing() cacheshape.Model {
	return cacheshape.Model{
		{Heads: 4, Owner: 0, KV: cacheshape.KV{Heads: 2, KeyDim: 32, ValueDim: 16}},
		{State: cacheshape.State{Bytes: 64}},
		{Heads: 4, Owner: 2, KV: cacheshape.KV{Heads: 4, KeyDim: 16, ValueDim: 16, Window: 40}},
		{Heads: 4, Owner: 0},
		{Heads: 2, Owner: 4, KV: cacheshape.KV{Heads: 1, KeyDim: 48, ValueDim: 48, ValueInKey: true}},
	}
}

// differ is a text of a cache of such layers, with what each layer and head must hold.
type differ struct {
	t    *testing.T
	m    *Manager
	s    *Sequence
	want map[[2]int][]int32 // positions by layer and head
	next int32
}

// number is one of a token's key or value, the same each time.
func (d *differ) number(layer, head int, pos int32, dim int, value bool) float32 {
	x := float32(pos%50) + float32(layer)/8 + float32(head)/32 + float32(dim)/2048
	if value && !d.m.main(layer).ValueInKey {
		return -x
	}
	return x
}

// append adds tokens to every layer that keeps some.
func (d *differ) append(n int) error {
	pos := make([]int32, n)
	for i := range pos {
		pos[i] = d.next + int32(i)
	}
	for layer := range d.m.layers {
		heads := d.m.heads(layer)
		if heads == 0 {
			continue
		}
		l := d.m.main(layer)
		var k, v []float32
		for _, p := range pos {
			for g := range heads {
				for dim := range l.KeyDim {
					k = append(k, d.number(layer, g, p, dim, false))
				}
			}
			for g := range heads {
				for dim := range l.ValueDim {
					v = append(v, d.number(layer, g, p, dim, true))
				}
			}
		}
		if l.ValueInKey {
			v = nil
		}
		if err := errors.Join(d.s.Append(layer, k, v, pos), d.s.Release(layer)); err != nil {
			return err
		}
		for g := range heads {
			d.want[[2]int{layer, g}] = append(d.want[[2]int{layer, g}], pos...)
		}
	}
	d.next += int32(n)
	d.s.States().Commit(d.next)
	return nil
}

// keep drops some tokens of a layer and head.
func (d *differ) keep(rng *rand.Rand, layer, g int) error {
	list, at := d.want[[2]int{layer, g}], []int{}
	var left []int32
	for i, p := range list {
		if rng.IntN(5) > 0 {
			at, left = append(at, i), append(left, p)
		}
	}
	d.want[[2]int{layer, g}] = left
	return errors.Join(d.s.Keep(layer, g, at), d.s.Release(layer))
}

// compare looks at every layer as a pass does; those that read another's see the owner's tokens.
func (d *differ) compare() {
	d.t.Helper()
	for layer := range d.m.layers {
		owner := d.m.o.Layers.Owner(layer)
		if owner < 0 {
			continue
		}
		if err := d.s.Acquire(owner, 0); err != nil {
			d.t.Fatal(err)
		}
		l := d.m.Layout(layer)
		k, v := make([]float32, l.KeyDim), make([]float32, l.ValueDim)
		for g, view := range d.s.Views(layer) {
			want := d.want[[2]int{owner, g}]
			if !slices.Equal(d.s.PositionList(layer, g), want) || view.Tokens() != len(want) {
				d.t.Fatalf("layer %d head %d holds %v, want %v", layer, g, d.s.PositionList(layer, g), want)
			}
			for i, p := range want {
				page := view.Pages[i/l.Tokens].Data
				kvpage.ReadK(l, page, i%l.Tokens, k)
				kvpage.ReadV(l, page, i%l.Tokens, v)
				if k[l.KeyDim-1] != d.number(owner, g, p, l.KeyDim-1, false) || v[1] != d.number(owner, g, p, 1, true) {
					d.t.Fatalf("layer %d head %d, position %d: other bytes", layer, g, p)
				}
			}
		}
		if err := d.s.Release(owner); err != nil {
			d.t.Fatal(err)
		}
	}
}

// TestLayersThatDiffer: each layer has pages and blocks of its own size, in memory and on tiers, through appends, drops, windows that pass,
// cuts and forks; all accounts agree.
func TestLayersThatDiffer(t *testing.T) {
	for _, blocks := range []int{0, 70} {
		for seed := range uint64(6) {
			t.Run(fmt.Sprint(blocks, " ", seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					rng := rand.New(rand.NewPCG(seed, 12))
					o := Options{Layers: differing(), Layout: kvpage.Layout{K: kvpage.F32, V: kvpage.F32, Tokens: 16}}
					if blocks > 0 {
						d := fakes.New(o.Layers, o.Layout)
						q := offload.NewQueue(d, offload.QueueOptions{})
						t.Cleanup(func() { _ = q.Close() })
						o.Backing, o.BudgetBytes = q, int64(blocks)*8192
					}
					m := open(t, o)
					d := &differ{t: t, m: m, s: m.NewSequence(), want: map[[2]int][]int32{}}
					for range 30 {
						if err := m.Plan([]Growth{{Seq: d.s, Rows: 20}}); err != nil {
							t.Fatal(err)
						}
						if err := d.step(rng); err != nil {
							t.Fatal(err)
						}
						check(t, m, nil, d.s)
						d.compare()
						check(t, m, nil, d.s)
					}
					d.s.Free()
					check(t, m, nil)
				})
			})
		}
	}
}

// step does something.
func (d *differ) step(rng *rand.Rand) error {
	switch rng.IntN(6) {
	case 0:
		layer := []int{0, 2, 4}[rng.IntN(3)]
		return d.keep(rng, layer, rng.IntN(d.m.heads(layer)))
	case 1:
		d.s.Slide(d.next)
		for g := range 4 {
			list := d.s.PositionList(2, g)
			at := [2]int{2, g}
			if dropped := len(d.want[at]) - len(list); dropped > 0 && d.want[at][dropped-1] > d.next-40 {
				return fmt.Errorf("a window of 40 lost position %d of %d", d.want[at][dropped-1], d.next)
			}
			d.want[at] = slices.Clone(list)
		}
	case 2:
		return d.cut(max(d.next-int32(rng.IntN(15)), 0))
	case 3:
		f, err := d.s.Fork()
		if err != nil {
			return err
		}
		d.s, f = f, d.s
		f.Free()
	default:
		return d.append(1 + rng.IntN(20))
	}
	return nil
}

// cut takes tokens back, unless a window has let go of what they read.
func (d *differ) cut(next int32) error {
	err := d.s.Truncate(next)
	if errors.Is(err, ErrSlid) || err != nil {
		if errors.Is(err, ErrSlid) {
			return nil
		}
		return err
	}
	for at, list := range d.want {
		i, _ := slices.BinarySearch(list, next)
		d.want[at] = list[:i]
	}
	d.next = min(d.next, next)
	return nil
}

// TestSizesOfLayers recomputes what a text of such layers takes.
func TestSizesOfLayers(t *testing.T) {
	m := open(t, Options{Layers: differing(), Layout: kvpage.Layout{K: kvpage.F32, V: kvpage.F32, Tokens: 16}})
	for tokens := range 70 {
		pages := int64((tokens + 15) / 16)
		want := pages * 16 * 4 * (2*(32+16) + 4*(16+16) + 48)
		if tokens > 0 {
			want += 2 * 64
		}
		if got := m.BytesFor(tokens); got != want {
			t.Fatalf("%d tokens take %d bytes, want %d", tokens, got, want)
		}
	}
	if m.StateBytes() != 64 || m.BlockBytes() == 0 || m.Shape().Keepers() != 3 || m.Layout(3).KeyDim != 32 || m.Layout(4).ValueInKey != true || !m.DefersAppend() {
		t.Errorf("%d bytes of state, blocks of %d, layer 3 reads %+v", m.StateBytes(), m.BlockBytes(), m.Layout(3))
	}
	if most, now := m.Most(Course{Prompt: 64, Steps: 6, Rows: func(left int) int { return min(left, 10) }}); most != m.BytesFor(70) || now != 0 {
		t.Errorf("70 tokens take %d bytes on the way and %d at its end, %d before", most, m.BytesFor(70), now)
	}
	if a, b := m.NewHome(), m.NewHome(); a == b {
		t.Error("two homes have one number")
	}
}
