package kvmanager

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"terrace/internal/clock"
	"terrace/internal/kvpage"
	"terrace/kvmanager/fakes"
	"terrace/offload"
)

// onTiers is a cache whose budget holds some blocks, and its backing store. The test is in a bubble of synctest.
func onTiers(t interface {
	fataler
	Cleanup(func())
}, o Options, blocks int) (Options, *fakes.Store) {
	store := fakes.New(o.Layers, o.Layout)
	o.Backing = offload.NewQueue(store, offload.QueueOptions{})
	o.BudgetBytes = int64(blocks) * int64(roundUp(o.Layers[0].KV.Heads*o.Layout.PageBytes(), frameAlign))
	t.Cleanup(func() {
		if err := o.Backing.Close(); err != nil {
			t.Fatalf("%v", err)
		}
	})
	return o, store
}

// reads is how many records were read, stored how many there are.
func reads(d *fakes.Store) int {
	n, _ := d.Moved()
	return n
}

func writes(d *fakes.Store) int {
	_, n := d.Moved()
	return n
}

func stored(d *fakes.Store) int {
	n, _ := d.Records()
	return n
}

// noDeadline hides testing.T's deadline, which is not to be asked for in a bubble.
type noDeadline struct{ testing.TB }

// walk reads every layer of a sequence as a pass does and looks at what it holds.
func walk(t fataler, o Options, s *Sequence, want *reference, rng *rand.Rand, seen seenPages) {
	t.Helper()
	if err := s.m.Plan([]Growth{{Seq: s}}); err != nil {
		t.Fatalf("plan: %v", err)
	}
	for layer := range o.Layers {
		if err := s.Acquire(layer, 0); err != nil {
			t.Fatalf("acquire: %v", err)
		}
		if rng.IntN(2) == 0 {
			s.Prefetch((layer+1)%len(o.Layers), 0)
		}
		holdsLayer(t, o, s, want, layer)
		seen.checkLayer(t, o, s, layer)
		if err := s.Release(layer); err != nil {
			t.Fatalf("release: %v", err)
		}
	}
}

// grow appends tokens as a pass does.
func grow(t fataler, o Options, s *Sequence, want *reference, ids []int, next int) {
	t.Helper()
	if err := s.m.Plan([]Growth{{Seq: s, Rows: len(ids)}}); err != nil {
		t.Fatalf("plan: %v", err)
	}
	add(t, o, s, want, ids, next)
}

// TestTiersAgainstReference runs random lists of operations on sequences whose KV does not fit the budget.
func TestTiersAgainstReference(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(noDeadline{t}, func(t *rapid.T) {
			o := shape(kvpage.F32, 0)
			o.Layout.Tokens = rapid.SampledFrom([]int{16, 32}).Draw(t, "tokens")
			o, d := onTiers(t, o, rapid.SampledFrom([]int{40, 60, 1000}).Draw(t, "blocks"))
			rng := rand.New(rand.NewPCG(2, rapid.Uint64().Draw(t, "seed")))
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
				switch rapid.IntRange(0, 5).Draw(t, "op") {
				case 0, 1:
					ids := rapid.SliceOfN(rapid.IntRange(0, 90), 1, 60).Draw(t, "ids")
					grow(t, o, p.s, p.want, ids, p.next)
					p.next += len(ids)
				case 2:
					layer, h := rapid.IntRange(0, 1).Draw(t, "layer"), rapid.IntRange(0, 2).Draw(t, "head")
					var idx []int
					for i := range p.s.Tokens(layer, h) {
						if rng.IntN(2) == 0 {
							idx = append(idx, i)
						}
					}
					keep(t, o, p.s, p.want, layer, h, idx)
					if rng.IntN(2) == 0 {
						if err := p.s.Release(layer); err != nil {
							t.Fatalf("release: %v", err)
						}
					}
				case 3:
					if len(all) == 3 {
						continue
					}
					f, err := p.s.Fork()
					if err != nil {
						t.Fatalf("fork: %v", err)
					}
					all = append(all, &pair{f, p.want.clone(), p.next})
				case 4:
					n := rapid.IntRange(0, 80).Draw(t, "truncate")
					if err := p.s.Truncate(int32(n)); err != nil {
						t.Fatalf("truncate: %v", err)
					}
					for i := range p.want.ids {
						at, _ := slices.BinarySearch(p.want.pos[i], n)
						p.want.ids[i], p.want.pos[i] = p.want.ids[i][:at], p.want.pos[i][:at]
					}
					p.next = min(p.next, n)
				case 5:
					if len(all) > 1 {
						p.s.Free()
						all = slices.DeleteFunc(all, func(q *pair) bool { return q == p })
					}
				}
				for _, q := range all {
					walk(t, o, q.s, q.want, rng, seen)
				}
				if err := m.Check(); err != nil {
					t.Fatalf("%v", err)
				}
				if m.Stats().PeakBytes > o.BudgetBytes {
					t.Fatalf("%d bytes in use, the budget is %d", m.Stats().PeakBytes, o.BudgetBytes)
				}
			}
			for _, q := range all {
				q.s.Free()
			}
			if err := m.Check(); err != nil {
				t.Fatalf("%v", err)
			}
			if stored(d) > 0 || m.late != nil {
				t.Fatalf("%d records are left, %v", stored(d), m.late)
			}
		})
	})
}

// TestTiersStream fills a cache far past its budget and reads it again and again: what fits stays, the rest is read.
func TestTiersStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := shape(kvpage.F32, 0)
		equal(&o, 6, o.Layers[0].KV.Heads, o.Layout.KeyDim, o.Layout.ValueDim)
		o, d := onTiers(t, o, 100)
		m := open(t, o)
		s, want := m.NewSequence(), newReference(o)
		rng := rand.New(rand.NewPCG(1, 1))
		for next := 0; next < 400; next += 25 {
			ids := make([]int, 25)
			for i := range ids {
				ids[i] = next + i
			}
			if err := m.Plan([]Growth{{Seq: s, Rows: 25, Tokens: 400}}); err != nil {
				t.Fatal(err)
			}
			add(t, o, s, want, ids, next)
			walk(t, o, s, want, rng, seenPages{})
		}
		before := reads(d)
		for range 5 {
			walk(t, o, s, want, rng, seenPages{})
		}
		perPass := float64(reads(d)-before) / 5
		if perPass < 50 || perPass > 100 { // 150 blocks, room for 100, of which two layers are a ring
			t.Errorf("%v blocks read a pass of 150 with room for 100", perPass)
		}
		s.Free()
		if stored(d) > 0 {
			t.Errorf("%d records left", stored(d))
		}
	})
}

// TestTiersTooSmall says what is missing before anything is done.
func TestTiersTooSmall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, _ := onTiers(t, shape(kvpage.F32, 0), 8)
		m := open(t, o)
		s := m.NewSequence()
		if err := m.Plan([]Growth{{Seq: s, Rows: 25, Tokens: 400}}); !errors.Is(err, ErrBudget) {
			t.Errorf("a layer of 25 blocks in 8: %v", err)
		}
		s.Free()
	})
}

// TestTiersApart: blocks set apart for tokens being written are counted once, however many heads share one.
func TestTiersApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var want int
		for i, heads := range []int{1, 3, 8} {
			o := shape(kvpage.F32, 0)
			equal(&o, len(o.Layers), heads, o.Layout.KeyDim, o.Layout.ValueDim)
			o, _ = onTiers(t, o, 40)
			m := open(t, o)
			s := m.NewSequence()
			grow(t, o, s, newReference(o), []int{0, 1, 2, 3, 4}, 0)
			got := m.backing.apart([]Growth{{Seq: s, Rows: 1}})
			if i == 0 {
				want = got
			}
			if got != want {
				t.Errorf("%d heads: %d blocks apart, with one head %d", heads, got, want)
			}
			s.Free()
		}
	})
}

// TestTiersFaults fails the nth transfer: the operation reports it and the bytes that are shown are never wrong.
func TestTiersFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		for n := range 60 {
			o, d := onTiers(t, shape(kvpage.F32, 0), 44)
			m := open(t, o)
			s, want := m.NewSequence(), newReference(o)
			count := 0
			var bad offload.Key
			tries := 0
			d.Fail = func(key offload.Key, write bool) error { // twice: the queue tries once more
				if count++; count == n+1 {
					bad, tries = key, 2
				}
				if tries > 0 && key == bad {
					tries--
					return broken
				}
				return nil
			}
			ids := make([]int, 25)
			seen := 0
			for next := 0; next < 400; next += 25 {
				err := m.Plan([]Growth{{Seq: s, Rows: 25, Tokens: 400}})
				if err == nil {
					add(t, o, s, want, ids, next)
					for layer := 0; layer < len(o.Layers) && err == nil; layer++ {
						if err = s.Acquire(layer, 0); err == nil {
							holdsLayer(t, o, s, want, layer)
							err = s.Release(layer)
						}
					}
				} else {
					next -= 25
				}
				if err != nil {
					if !errors.Is(err, broken) || seen > 2 {
						t.Fatalf("fault %d: %v (seen %d)", n, err, seen)
					}
					seen++
				}
			}
			for layer := range o.Layers {
				if err := s.Acquire(layer, 0); err != nil {
					t.Fatalf("fault %d: afterwards: %v", n, err)
				}
				holdsLayer(t, o, s, want, layer)
				if err := s.Release(layer); err != nil {
					t.Fatal(err)
				}
			}
			s.Free()
		}
	})
}

// TestWritesThatFailAtOnce: a tier that refuses every write ends the request, whether it fails before or after somebody waits;
// it does not try for ever.
func TestWritesThatFailAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, refusal := range []error{offload.ErrFull, errors.New("broken")} {
			for _, eager := range []bool{false, true} {
				o, d := onTiers(t, shape(kvpage.F32, 0), 44)
				m := open(t, o)
				s := m.NewSequence()
				tries := 0
				if eager {
					d.Delay = func(bool, []offload.Record) time.Duration { return 0 }
				}
				d.Fail = func(offload.Key, bool) error {
					if tries++; tries > 10_000 {
						t.Fatalf("%v, at once %v: it is tried for ever", refusal, eager)
					}
					return refusal
				}
				var err error
				for next := 0; next < 400 && err == nil; next += 25 {
					pos := make([]int32, 25)
					for i := range pos {
						pos[i] = int32(next + i)
					}
					err = m.Plan([]Growth{{Seq: s, Rows: 25, Tokens: 400}})
					for layer := 0; layer < len(o.Layers) && err == nil; layer++ {
						k, v := rows(o, layer, make([]int, 25))
						err = s.Append(layer, k, v, pos)
					}
				}
				if !errors.Is(err, refusal) {
					t.Errorf("%v, at once %v: the request ends with %v", refusal, eager, err)
				}
				d.Change(func() { d.Fail = nil })
				s.Free()
			}
		}
	})
}

// TestSameShareStays: passes that read everything keep the same first blocks of every layer in memory, as FlexGen's fixed
// percentage does, and read the same others each time: not what was used last, which a scan would always displace.
func TestSameShareStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := shape(kvpage.F32, 0)
		equal(&o, 4, o.Layers[0].KV.Heads, o.Layout.KeyDim, o.Layout.ValueDim)
		o, d := onTiers(t, o, 56)
		m := open(t, o)
		s, want := m.NewSequence(), newReference(o)
		defer s.Free()
		for next := 0; next < 250; next += 25 { // 16 blocks a layer
			grow(t, o, s, want, make([]int, 25), next)
		}
		var stay [][]int
		for pass := range 6 {
			before := reads(d)
			if err := m.Plan([]Growth{{Seq: s}}); err != nil {
				t.Fatal(err)
			}
			for layer := range o.Layers {
				if err := s.Acquire(layer, 0); err != nil {
					t.Fatal(err)
				}
				s.Prefetch((layer+1)%len(o.Layers), 0)
				if err := s.Release(layer); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait() // what is fetched ahead for the next pass is read
			var now [][]int
			for layer := range o.Layers {
				now = append(now, nil)
				for i, b := range s.store.(*tiered).layers[layer].blocks[:15] { // the last has room
					if b.stays() && b.data != nil {
						now[layer] = append(now[layer], i)
					}
				}
				if n := len(now[layer]); n == 0 || n > 12 || now[layer][n-1] != n-1 {
					t.Fatalf("pass %d: of layer %d the blocks %v stay, want the first few", pass, layer, now[layer])
				}
			}
			if pass > 1 && (!slices.EqualFunc(stay, now, slices.Equal[[]int]) || reads(d)-before != 4*15-4*len(now[0])) {
				t.Errorf("pass %d: %v stay, before %v; %d blocks were read", pass, now, stay, reads(d)-before)
			}
			stay = now
		}
	})
}

// TestStall: a read that does not end fails its request after stallTimeout, and its frames are not used again while the store
// may still write there.
func TestStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, d := onTiers(t, shape(kvpage.F32, 0), 60)
		m := open(t, o)
		s, want := m.NewSequence(), newReference(o)
		add(t, o, s, want, make([]int, 40), 0) // no plan: nothing is to stay
		for layer := range o.Layers {
			if err := errors.Join(s.Acquire(layer, 0), s.Release(layer)); err != nil {
				t.Fatal(err)
			}
		}
		_ = clock.Real().Sleep(context.Background(), time.Second)
		if err := m.backing.takeWritten(); err != nil {
			t.Fatal(err)
		}
		d.Change(func() {
			d.Delay = func(bool, []offload.Record) time.Duration { return time.Hour }
		})
		before, start := m.Stats().InUseBytes, time.Now()
		if err := s.Acquire(0, 0); !errors.Is(err, ErrStalled) || time.Since(start) != stallTimeout {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		if n := m.Stats().InUseBytes - before; n != 2*m.layers[0].blockBytes() {
			t.Errorf("%d bytes more in use, want the two frames that are read", n)
		}
		_ = clock.Real().Sleep(context.Background(), 2*time.Hour)
		d.Change(func() { d.Delay = nil })
		if err := s.Acquire(0, 0); err != nil {
			t.Fatal(err)
		}
		holdsLayer(t, o, s, want, 0)
		s.Free()
	})
}
