package kvmanager

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"terrace/internal/clock"
	"terrace/internal/kvpage"
	"terrace/kvmanager/fakes"
	"terrace/offload"
)

// words say where a block is: of memory, newer than the store, stored, being written or read; and who needs it.
func (b *block) words() string {
	var out []string
	add := func(yes bool, what string) {
		if yes {
			out = append(out, what)
		}
	}
	add(b.inMemory() && !b.reading(), "memory")
	add(b.reading(), "reading")
	add(b.status == storing, "writing")
	add(b.status == cached || b.status == below || b.status == fetching, "stored")
	add(b.writable > 0, "open")
	add(b.pins > 0, "held")
	add(b.stays(), "stays")
	add(b.refs > 1, "shared")
	return strings.Join(out, " ")
}

// life is a cache of one block's worth of lists, and what happens to it.
type life struct {
	t     *testing.T
	o     Options
	m     *Manager
	store *fakes.Store
	s     *Sequence
	next  int
}

func newLife(t *testing.T, blocks int) *life {
	t.Helper()
	l := &life{t: t}
	l.o, l.store = onTiers(t, shape(kvpage.F32, 0), blocks)
	l.m = open(t, l.o)
	l.s = l.m.NewSequence()
	return l
}

// block is the first of layer 0.
func (l *life) block() *block { return l.s.store.(*tiered).layers[0].blocks[0] }

// is checks the block's status and all accounts.
func (l *life) is(want string, others ...*Sequence) {
	l.t.Helper()
	if got := l.block().words(); got != want {
		l.t.Fatalf("the block is %q, want %q", got, want)
	}
	check(l.t, l.m, nil, append(others, l.s)...)
}

func (l *life) do(errs ...error) {
	l.t.Helper()
	if err := errors.Join(errs...); err != nil {
		l.t.Fatal(err)
	}
}

// add appends tokens to layer 0.
func (l *life) add(n int) {
	l.t.Helper()
	ids := make([]int, n)
	pos := make([]int32, n)
	for i := range ids {
		ids[i], pos[i] = (l.next+i)%97, int32(l.next+i)
	}
	k, v := rows(l.o, 0, ids)
	l.do(l.s.Append(0, k, v, pos))
	l.next += n
}

func (l *life) wait() { _ = clock.Real().Sleep(l.t.Context(), time.Minute) }

// TestLifeOfABlock walks a block through every status that it can have: filled, written, gone, fetched, held, shared, owned again, kept in
// memory by the plan, yielding where room is short, lost on the way and read again.
func TestLifeOfABlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLife(t, 30)
		l.add(1)
		l.is("memory open")
		l.add(15)
		l.is("memory")
		l.do(l.s.Release(0)) // nothing says that it is to stay
		l.is("memory writing")
		l.wait()
		l.do(l.m.Settle())
		l.is("stored")
		l.s.Prefetch(0, 0)
		l.is("reading stored held")
		l.wait()
		l.do(l.s.Acquire(0, 0))
		l.is("memory stored held")
		l.do(l.m.Plan([]Growth{{Seq: l.s}}), l.s.Release(0))
		l.is("memory stored stays")
		f, err := l.s.Fork()
		l.do(err)
		l.is("memory stored stays shared", f)
		l.do(l.s.Keep(0, 0, upTo(15))) // writes: a copy of its own
		l.is("memory open held stays", f)
		l.do(l.s.Release(0))
		l.is("memory open stays", f)
		if err := f.Acquire(0, 0); err != nil {
			t.Fatal(err)
		}
		if got := f.Tokens(0, 0); got != 16 {
			t.Errorf("the fork has %d tokens", got)
		}
		l.do(f.Release(0))
		f.Free()
		l.is("memory open stays")
		l.add(1) // heads 1 and 2 begin another block, head 0 fills this one
		l.is("memory stays")
		l.do(l.m.Charge(int64(26) * 4096)) // room is short: what is to stay leaves too
		l.do(l.m.Charge(3 * 4096))
		l.wait()
		l.do(l.m.takeAll())
		l.is("stored stays")
		l.m.Refund(29 * 4096)
		l.store.Change(func() { l.store.Fail = func(offload.Key, bool) error { return errMachine } })
		l.s.Prefetch(0, 0)
		l.wait()
		if err := l.s.Acquire(0, 0); !errors.Is(err, errMachine) {
			t.Fatalf("a read that fails: %v", err)
		}
		l.is("stored held stays")
		l.store.Change(func() { l.store.Fail = nil })
		l.do(l.s.Acquire(0, 0))
		l.is("memory stored held stays")
		l.do(l.s.Truncate(8))
		l.is("memory stored open stays")
		l.do(l.s.Truncate(0))
		if n := len(l.s.store.(*tiered).layers[0].blocks); n != 0 {
			t.Errorf("%d blocks of no token", n)
		}
		l.s.Free()
		check(t, l.m, nil)
		if n := stored(l.store); n != 0 {
			t.Errorf("%d records are left", n)
		}
	})
}

// takeAll takes blocks back whose writes have ended.
func (m *Manager) takeAll() error { return m.backing.takeWritten() }

// TestWriteThatFailsIsToBeStored: a block whose write failed is in memory and newer than the store, and goes down at the next chance.
func TestWriteThatFailsIsToBeStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLife(t, 30)
		l.add(16)
		l.store.Change(func() { l.store.Fail = func(offload.Key, bool) error { return errMachine } })
		l.do(l.s.Release(0))
		l.wait()
		if err := l.m.Settle(); !errors.Is(err, errMachine) {
			t.Fatalf("a write that fails: %v", err)
		}
		l.is("memory")
		l.store.Change(func() { l.store.Fail = nil })
		l.do(l.s.Acquire(0, 0), l.s.Release(0))
		l.is("memory writing")
		l.wait()
		l.do(l.m.Settle())
		l.is("stored")
		l.s.Free()
	})
}

// TestPinsHoldBlocks: what a token cache pins does not leave whatever else wants the room, and leaves when it is let go.
func TestPinsHoldBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLife(t, 24)
		l.add(64)
		l.do(l.s.Release(0))
		b, err := l.s.Blocks()
		l.do(err)
		if b.Count(0) != 4 || !b.Complete(0, 1) || b.Manager() != l.m || b.Reordered(0) || b.Stored(0, 37) != 37 || len(b.Shape()) != 2 {
			t.Errorf("%d blocks", b.Count(0))
		}
		pin := b.Pin(0, 1)
		pinned := l.s.store.(*tiered).layers[0].blocks[1]
		l.wait()
		l.do(l.m.Charge(20 * 4096))
		l.wait()
		l.do(l.m.takeAll())
		if b.Resident(0, 1) == nil || b.Resident(0, 0) != nil && l.m.inUse > 24*4096 {
			t.Error("a pinned block left")
		}
		check(t, l.m, map[*block]int{pinned: 1}, l.s)
		pin.Unpin()
		l.m.Refund(20 * 4096)
		l.do(l.s.AwaitStored(0, 4))
		if !b.Gatherable(0, 2) || b.Gathers() {
			t.Error("what is stored can be read by token, where the store does so")
		}
		if err := l.s.AwaitStored(0, 9); !errors.Is(err, ErrPlan) {
			t.Errorf("blocks that are not there: %v", err)
		}
		b.CountTokens(5, 3)
		if st := l.m.Stats(); st.TokensRead < 5 || st.TokensFetched < 3 {
			t.Errorf("%+v", st)
		}
		check(t, l.m, nil, l.s)
		l.s.Free()
	})
}

// TestNamesOfStoredTokens: tokens keep the numbers that their records have when blocks come and go in the middle.
func TestNamesOfStoredTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLife(t, 60)
		l.add(160)
		l.do(l.s.Release(0))
		l.wait()
		b, err := l.s.Blocks()
		l.do(err)
		rng := rand.New(rand.NewPCG(3, 9))
		out := map[int]bool{}
		for range 40 {
			at := rng.IntN(9)
			if out[at] {
				l.do(l.s.Swaps().Activate(0, int32(at*16)))
			} else {
				l.do(l.s.Swaps().Deactivate(0, int32(at*16), int32(at*16+16)))
			}
			out[at] = !out[at]
			for i, pos := range l.s.PositionList(0, 0) {
				if got := b.Stored(0, int32(i)); got != pos { // records lie by position
					t.Fatalf("token %d at position %d is record place %d", i, pos, got)
				}
			}
			check(t, l.m, nil, l.s)
		}
		l.s.Free()
	})
}

// slowStates is the states of a text as plain copies: after how many tokens which is known.
type slowStates struct {
	known map[int32]float32
	now   int32
	value float32
}

// TestStatesFollowPlainCopies: passes that end and fail, saves, cuts and forks in any order leave the state that a plain copy has, and every
// position that States.Before names is one that Truncate takes.
func TestStatesFollowPlainCopies(t *testing.T) {
	for seed := range uint64(40) {
		m := recurrent(t, 0)
		rng := rand.New(rand.NewPCG(seed, 2))
		s, ref := m.NewSequence(), slowStates{known: map[int32]float32{0: 0}}
		for op := range 60 {
			switch rng.IntN(6) {
			case 0, 1, 2:
				n := ref.now + 1 + int32(rng.IntN(5))
				ref.value += 1
				stepped(t, s, 1, n)
				ref.known[n], ref.now = ref.value, n
			case 3: // a pass that fails
				for _, layer := range []int{0, 2} {
					if _, to, err := s.States().Layer(layer); err != nil {
						t.Fatal(err)
					} else {
						to[0] = 99
					}
				}
				if err := s.Truncate(ref.now); err != nil {
					t.Fatalf("seed %d, operation %d: taking a failed pass back: %v", seed, op, err)
				}
			case 4:
				s.States().Save()
			case 5:
				ref.cut(t, s, int32(rng.IntN(int(ref.now)+1)))
			}
			if ref.now > 0 {
				if got := now(t, s, ref.now); got[0] != ref.value || got[7] != ref.value {
					t.Fatalf("seed %d, operation %d: the state after %d tokens is %v, want %g", seed, op, ref.now, got, ref.value)
				}
			}
			if len(s.states.saved) > MostSavedStates {
				t.Fatalf("%d states are saved", len(s.states.saved))
			}
			if want := int64(len(s.states.saved)) * 32; s.states.now.data != nil && m.charged != want+64 {
				t.Fatalf("%d bytes charged for %d saved states", m.charged, len(s.states.saved))
			}
		}
		f, err := s.Fork()
		if err != nil {
			t.Fatal(err)
		}
		stepped(t, f, 5, ref.now+1)
		if ref.now > 0 && now(t, s, ref.now)[0] != ref.value {
			t.Error("a fork's pass changed the state that it came from")
		}
		f.Free()
		s.Free()
		if err := errors.Join(m.Check(), m.Close()); err != nil || m.charged != 0 {
			t.Errorf("%v, %d bytes charged", err, m.charged)
		}
	}
}

// cut takes the text back to the last position before one whose state is known.
func (r *slowStates) cut(t *testing.T, s *Sequence, at int32) {
	t.Helper()
	to := s.States().Before(at)
	value, known := r.known[to]
	if to > at || !known {
		t.Fatalf("the state before %d is said to be known after %d tokens", at, to)
	}
	if at > to {
		if err := s.Truncate(at); s.states.now.data != nil && at < r.now && !errors.Is(err, ErrPlan) {
			t.Fatalf("a cut where no state is known: %v", err)
		} else if err == nil {
			to = at
			return
		}
	}
	if err := s.Truncate(to); err != nil {
		t.Fatal(err)
	}
	for n := range r.known {
		if n > to {
			delete(r.known, n)
		}
	}
	r.now, r.value = to, value
}

// TestSlidingTokensIsTheMost: a text that slides after each pass never holds more of a window's layer than SlidingTokens says, and what the
// next rows read is there.
func TestSlidingTokensIsTheMost(t *testing.T) {
	for _, page := range []int{16, 32} {
		for _, window := range []int{20, 64, 100} {
			for _, rowsEach := range []int{1, 7, 64} {
				t.Run(fmt.Sprint(page, window, rowsEach), func(t *testing.T) {
					o := shape(kvpage.F32, 0)
					o.Layout.Tokens = page
					slide(&o, []int{window, 0})
					m := open(t, o)
					s := m.NewSequence()
					defer s.Free()
					for next, passes := 0, 0; next < 700 && passes < 300; passes++ {
						ids, pos := make([]int, rowsEach), make([]int32, rowsEach)
						for i := range ids {
							ids[i], pos[i] = (next+i)%97, int32(next+i)
						}
						for layer := range 2 {
							k, v := rows(o, layer, ids)
							if err := s.Append(layer, k, v, pos); err != nil {
								t.Fatal(err)
							}
						}
						next += rowsEach
						if n, most := s.Tokens(0, 1), SlidingTokens(window, rowsEach, page); n > most {
							t.Fatalf("%d tokens of a window of %d, at most %d were foreseen", n, window, most)
						}
						s.Slide(int32(next))
						if list := s.PositionList(0, 2); int(list[0]) > max(next-window+1, 0) || s.Tokens(1, 0) != next {
							t.Fatalf("after %d tokens the window begins at %d", next, list[0])
						}
						check(t, m, nil, s)
						if err := s.Truncate(int32(max(next-window, 1))); next > 3*window+4*page+kvBlock && !errors.Is(err, ErrSlid) && s.slid > int32(next-window) {
							t.Fatalf("a cut into what slid away: %v", err)
						} else if err == nil {
							next = max(next-window, 1)
							if rowsEach == 1 {
								return
							}
						}
					}
				})
			}
		}
	}
}

// kvBlock is more than what goes at once.
const kvBlock = 256

// TestFakeStore: the store of these tests hands out what was written when its time has come, and rubbish before.
func TestFakeStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := shape(kvpage.F32, 0)
		d := fakes.New(o.Layers, o.Layout)
		key := offload.Key{Seq: 1, Layer: 1, Group: 2}
		data := make([]byte, 3*o.Layout.PageBytes())
		for i := range data {
			data[i] = byte(i)
		}
		if err := d.Write(t.Context(), []offload.Record{{Key: key, Data: data}}); err != nil {
			t.Fatal(err)
		}
		got, broken := make([]byte, len(data)), errors.New("broken")
		d.Fail = func(offload.Key, bool) error { return broken }
		if err := d.Read(t.Context(), []offload.Record{{Key: key, Data: got}}); !errors.Is(err, broken) || got[5] != 0xa5 {
			t.Errorf("a read that fails: %v, its buffer holds %x", err, got[5])
		}
		d.Fail = nil
		began := time.Now()
		if err := d.Read(t.Context(), []offload.Record{{Key: key, Data: got}}); err != nil || !slices.Equal(got, data) || time.Since(began) != time.Millisecond {
			t.Errorf("read back after %v: %v", time.Since(began), err)
		}
		if log := d.Log(); log != fmt.Sprintf("read  seq 1 layer 1 group 2: %d bytes\nwrite seq 1 layer 1 group 2: %d bytes\n", len(data), len(data)) || d.Log() != "" {
			t.Errorf("the log: %q", log)
		}
		if n, most := d.Records(); n != 1 || most != 1 {
			t.Errorf("%d records, at most %d", n, most)
		}
		if err := d.Drop(1); err != nil {
			t.Fatal(err)
		}
		if n, most := d.Records(); n != 0 || most != 1 {
			t.Errorf("%d records, at most %d", n, most)
		}
	})
}
