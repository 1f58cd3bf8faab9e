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
)

// slide is what is left once no row from next on reads more: whole blocks go.
func (r *reference) slide(o Options, next int) {
	for layer := range o.Layers {
		w := o.Layers[layer].KV.Window
		if w == 0 {
			continue
		}
		for g := range o.Layers[0].KV.Heads {
			at := layer*o.Layers[0].KV.Heads + g
			n, _ := slices.BinarySearch(r.pos[at], next-w+1)
			n -= n % slideTokens(o.Layout.Tokens)
			r.ids[at], r.pos[at] = r.ids[at][n:], r.pos[at][n:]
		}
	}
}

// reads reports whether all is there that rows from next on read.
func (r *reference) reads(o Options, next int) bool {
	for i, pos := range r.pos {
		low := 0
		if w := o.Layers[i/o.Layers[0].KV.Heads].KV.Window; w > 0 {
			low = max(next-w+1, 0)
		}
		if low < next && (len(pos) == 0 || pos[0] > low) {
			return false
		}
	}
	return true
}

// TestSlide reads texts with and without their windows' past, in host memory and on a backing store, forked and cut: what is
// left is what it was, bytes are those of the windows, and a cut that would need what is gone is refused.
func TestSlide(t *testing.T) {
	for _, tiers := range []bool{false, true} {
		for seed := range uint64(12) {
			t.Run(fmt.Sprint("tiers ", tiers, "/", seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { slides(t, tiers, rand.New(rand.NewPCG(seed, 7))) })
			})
		}
	}
}

func slides(t *testing.T, tiers bool, rng *rand.Rand) {
	o := shape(kvpage.F32, 0)
	equal(&o, 3, o.Layers[0].KV.Heads, o.Layout.KeyDim, o.Layout.ValueDim)
	slide(&o, []int{20, 0, 50})
	o.Layout.TokenMajor = rng.IntN(2) == 0
	if tiers {
		o, _ = onTiers(t, o, 500)
	}
	m := open(t, o)
	type text struct {
		s    *Sequence
		want *reference
		next int
		slid int // where Slide was called last
	}
	all := []*text{{m.NewSequence(), newReference(o), 0, 0}}
	for range 60 {
		x := all[rng.IntN(len(all))]
		switch rng.IntN(6) {
		case 0, 1, 2:
			n := 1 + rng.IntN(100)
			if err := onePass(t, o, x.s, x.want, x.next, n, 0); err != nil {
				t.Fatal(err)
			}
			if x.next += n; rng.IntN(3) > 0 {
				x.s.Slide(int32(x.next))
				if tiers { // blocks on their way go another time
					x.want = held(o, x.s, x.want)
				} else {
					x.want.slide(o, x.next)
				}
				x.slid = x.next
			}
		case 3:
			next := max(x.next-rng.IntN(150), 0)
			reads := x.want.reads(o, next)
			switch err := x.s.Truncate(int32(next)); {
			case errors.Is(err, ErrSlid):
				if next >= x.slid || next == 0 {
					t.Fatalf("truncating to %d after %d: %v", next, x.slid, err)
				}
				continue
			case err != nil || !reads && next > 0:
				t.Fatalf("truncating to %d after %d, all is there %v: %v", next, x.slid, reads, err)
			}
			for i := range x.want.pos {
				n, _ := slices.BinarySearch(x.want.pos[i], next)
				x.want.ids[i], x.want.pos[i] = x.want.ids[i][:n], x.want.pos[i][:n]
			}
			x.next, x.slid = next, min(x.slid, next)
		case 4:
			if len(all) < 3 {
				f, err := x.s.Fork()
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, &text{f, x.want.clone(), x.next, x.slid})
			}
		case 5:
			if len(all) > 1 {
				x.s.Free()
				all = slices.DeleteFunc(all, func(y *text) bool { return x == y })
			}
		}
		for _, y := range all {
			if err := m.Plan([]Growth{{Seq: y.s}}); err != nil {
				t.Fatal(err)
			}
			for layer := range o.Layers {
				if err := y.s.Acquire(layer, 0); err != nil {
					t.Fatal(err)
				}
				holdsLayer(t, o, y.s, y.want, layer)
				if err := y.s.Release(layer); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := m.Check(); err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range all {
		x.s.Free()
	}
}

// held is the reference cut at its front to what the sequence holds; nothing that a later row reads is missing.
func held(o Options, s *Sequence, want *reference) *reference {
	c := want.clone()
	for i := range c.pos {
		n := len(c.pos[i]) - len(s.lists.all[i].pos)
		c.ids[i], c.pos[i] = c.ids[i][n:], c.pos[i][n:]
	}
	least := want.clone()
	next := 0
	for i := range least.pos {
		if n := len(least.pos[i]); n > 0 {
			next = max(next, least.pos[i][n-1]+1)
		}
	}
	least.slide(o, next)
	for i := range c.pos {
		if len(c.pos[i]) < len(least.pos[i]) {
			c.pos[i] = nil // holdsLayer says what is missing
		}
	}
	return c
}

// TestSlideBytes: a text of 32 KiB tokens in Gemma 3 270M's shape (18 layers, every sixth reads all, windows of 512) holds the
// windows and those layers alone.
func TestSlideBytes(t *testing.T) {
	o := Options{Layers: cacheshape.Equal(18, 1, cacheshape.KV{Heads: 1, KeyDim: 256, ValueDim: 256}), Layout: kvpage.Layout{K: kvpage.F16, V: kvpage.F16, KeyDim: 256, ValueDim: 256, Tokens: 16}}
	for layer := range o.Layers {
		if layer%6 != 5 {
			o.Layers[layer].KV.Window = 512
		}
	}
	m := open(t, o)
	s := m.NewSequence()
	defer s.Free()
	const tokens, chunk = 32 << 10, 512
	k := make([]float32, chunk*256)
	for next := int32(0); next < tokens; next += chunk {
		pos := make([]int32, chunk)
		for i := range pos {
			pos[i] = next + int32(i)
		}
		for layer := range o.Layers {
			if err := s.Append(layer, k, k, pos); err != nil {
				t.Fatal(err)
			}
		}
		s.Slide(next + chunk)
	}
	// 3 layers of 32 Ki tokens and 15 of at most 512 and a block, 1 KiB each.
	if got, want := m.Stats().InUseBytes, int64(3*tokens+15*512)<<10; got != want {
		t.Errorf("%.1f MiB in use, want %.1f", float64(got)/(1<<20), float64(want)/(1<<20))
	}
	if got, most := m.Stats().PeakBytes, int64(3*tokens+15*(512+chunk+16))<<10; got > most {
		t.Errorf("%.1f MiB at most, want %.1f", float64(got)/(1<<20), float64(most)/(1<<20))
	}
	t.Logf("%.1f MiB, at most %.1f; all of it would be %.0f", float64(m.Stats().InUseBytes)/(1<<20), float64(m.Stats().PeakBytes)/(1<<20), float64(m.BytesFor(tokens))/(1<<20))
}
