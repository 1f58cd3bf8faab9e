package contexts

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"terrace/internal/clock"
	"terrace/internal/vfs"
)

// lruReference is what a host tier must hold: records in the order in which they leave.
type lruReference struct {
	cap   int64
	fixed bool
	order []*Record
}

func (l *lruReference) used() (n int64) {
	for _, r := range l.order {
		n += r.Bytes()
	}
	return n
}

func (l *lruReference) find(k Key) int {
	return slices.IndexFunc(l.order, func(r *Record) bool { return r.Key == k })
}

// touch uses the end of a chain first, so that it leaves first.
func (l *lruReference) touch(keys []Key) {
	for _, k := range slices.Backward(keys) {
		if i := l.find(k); i >= 0 {
			r := l.order[i]
			l.order = append(slices.Delete(l.order, i, i+1), r)
		}
	}
}

// write makes room from the front, never by what is written, or what that goes on from.
func (l *lruReference) write(batch []*Record) error {
	keep := map[Key]bool{}
	for _, r := range batch {
		keep[r.Key], keep[r.Parent] = true, true
	}
	for _, r := range batch {
		if l.find(r.Key) >= 0 {
			continue
		}
		for i := 0; i < len(l.order) && !l.fixed && l.used()+r.Bytes() > l.cap; {
			if keep[l.order[i].Key] {
				i++
				continue
			}
			l.order = slices.Delete(l.order, i, i+1)
		}
		if l.used()+r.Bytes() > l.cap {
			return ErrFull
		}
		l.order = append(l.order, r)
	}
	for _, r := range slices.Backward(batch) {
		l.touch([]Key{r.Key})
	}
	return nil
}

// TestHostLeavesLeastRecent: whatever is written, used, removed and given back, memory holds what a plain list does, in the order in which it leaves.
func TestHostLeavesLeastRecent(t *testing.T) {
	t.Parallel()
	for _, fixed := range []bool{false, true} {
		for seed := range uint64(12) {
			rng := rand.New(rand.NewPCG(seed, 1))
			h := newHost(200 << 10)
			h.fixed = fixed
			ref := &lruReference{cap: h.cap, fixed: fixed}
			gone := map[Key]bool{}
			h.yield = func(records []*Record) {
				for _, r := range records {
					gone[r.Key] = true
				}
			}
			chains := [][]*Record{chainOf(t, 1, 12, 5000), chainOf(t, 2, 9, 9000), chainOf(t, 3, 20, 3000)}
			for op := range 120 {
				chain := chains[rng.IntN(len(chains))]
				from := rng.IntN(len(chain))
				part := chain[from:min(from+1+rng.IntN(4), len(chain))]
				var keys []Key
				for _, r := range part {
					keys = append(keys, r.Key)
				}
				switch rng.IntN(5) {
				case 0, 1:
					clear(gone)
					before := slices.Clone(ref.order)
					if got, want := h.write(t.Context(), part), ref.write(part); !errors.Is(got, want) {
						t.Fatalf("seed %d, operation %d: %v, want %v", seed, op, got, want)
					}
					for _, r := range before {
						if left := ref.find(r.Key) < 0; left != gone[r.Key] {
							t.Fatalf("seed %d, operation %d: a record left: %v, and was handed on: %v", seed, op, left, gone[r.Key])
						}
					}
				case 2:
					h.touch(keys)
					ref.touch(keys)
				case 3:
					if err := h.remove(t.Context(), keys[:1]); err != nil {
						t.Fatal(err)
					}
					if i := ref.find(keys[0]); i >= 0 {
						ref.order = slices.Delete(ref.order, i, i+1)
					}
				case 4:
					clear(gone)
					n := 0
					ref.cap = int64(rng.IntN(200 << 10))
					if len(ref.order) > 0 && rng.IntN(2) == 0 { // all others just fit
						ref.cap = ref.used() - ref.order[0].Bytes()
					}
					for ; ref.used() > ref.cap; n++ {
						ref.order = ref.order[1:]
					}
					if h.Limit(ref.cap); len(gone) != n {
						t.Fatalf("seed %d, operation %d: %d records handed on, %d gave way", seed, op, len(gone), n)
					}
				}
				entries, err := h.list(t.Context())
				if err != nil || len(entries) != len(ref.order) || h.bytes() != ref.used() || h.bytes() > h.cap {
					t.Fatalf("seed %d, operation %d: %d records of %d bytes, want %d of %d: %v", seed, op, len(entries), h.bytes(), len(ref.order), ref.used(), err)
				}
				for i, e := range entries {
					if e.Key != ref.order[i].Key || e.Bytes != ref.order[i].Bytes() || !h.has(e.Key) {
						t.Fatalf("seed %d, operation %d: record %d leaves at another time", seed, op, i)
					}
				}
			}
		}
	}
}

// TestPlacementsAreKept: where a placement says what lies on which tier, tiers hold what was put there and nothing else, all or none of it,
// also after the store was opened again; accounts are the sums of what is there.
func TestPlacementsAreKept(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		rng, mem := rand.New(rand.NewPCG(seed, 7)), vfs.NewMem(1<<30)
		specs := []Spec{{Kind: "host", CapacityBytes: 150 << 10}, {Kind: "ssd", Place: "d", CapacityBytes: 400 << 10}}
		open := func() *Store {
			s, err := Open(t.Context(), specs, Options{FS: mem, Write: WritePlaced})
			if err != nil {
				t.Fatal(err)
			}
			if !s.Placed() || s.Modelled() || len(s.Tiers()) != 2 || s.Tiers()[1].CapacityBytes != 400<<10 {
				t.Fatalf("%+v", s.Tiers())
			}
			return s
		}
		s := open()
		held := [2]map[Key]*Record{{}, {}}
		all := slices.Concat(chainOf(t, 1, 20, 7000), chainOf(t, 2, 12, 14000))
		for op := range 80 {
			tier := rng.IntN(2)
			from := rng.IntN(len(all))
			part := all[from:min(from+1+rng.IntN(3), len(all))]
			switch rng.IntN(6) {
			case 0, 1, 2:
				put(t, s, tier, part, held[tier], specs[tier].CapacityBytes)
			case 3:
				if err := s.On(tier).Drop(t.Context(), []Key{part[0].Key}); err != nil {
					t.Fatal(err)
				}
				delete(held[tier], part[0].Key)
			case 4:
				n, err := s.On(tier).DropOthers(t.Context(), func(k Key) bool { return k != part[0].Key })
				if _, there := held[tier][part[0].Key]; err != nil || (n == 1) != there {
					t.Fatalf("%d others were dropped, one was there: %v, %v", n, there, err)
				}
				delete(held[tier], part[0].Key)
			case 5:
				if rng.IntN(4) == 0 {
					if err := s.Close(); err != nil {
						t.Fatal(err)
					}
					s = open()
					held[0] = map[Key]*Record{} // memory forgets
				}
			}
			for tier := range held {
				compareHeld(t, s, tier, held[tier], op)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// put stores records on a tier if all fit.
func put(t *testing.T, s *Store, tier int, part []*Record, held map[Key]*Record, most int64) {
	t.Helper()
	sum := size(part)
	for _, r := range held {
		sum += r.Bytes()
	}
	if slices.ContainsFunc(part, func(r *Record) bool { return held[r.Key] != nil }) {
		return
	}
	err := s.On(tier).Put(t.Context(), part)
	if sum > most {
		if !errors.Is(err, ErrFull) {
			t.Fatalf("%d bytes on a tier of %d: %v", sum, most, err)
		}
		return
	}
	if errors.Is(err, ErrFull) && tier == 1 {
		return // a file's records take whole slots
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range part {
		held[r.Key] = r
	}
}

// compareHeld looks at what a tier holds.
func compareHeld(t *testing.T, s *Store, tier int, want map[Key]*Record, op int) {
	t.Helper()
	sizes, err := s.On(tier).Sizes(t.Context())
	if err != nil || len(sizes) != len(want) {
		t.Fatalf("operation %d, tier %d: %d records, want %d: %v", op, tier, len(sizes), len(want), err)
	}
	sum := int64(0)
	for k, r := range want {
		sum += r.Bytes()
		got, err := s.On(tier).Read(t.Context(), []Key{k})
		if err != nil || !same(got[0], r) || sizes[k] != r.Bytes() {
			t.Fatalf("operation %d, tier %d: a record of %d bytes is another's, or %d bytes: %v", op, tier, r.Bytes(), sizes[k], err)
		}
	}
	if bytes, peak := s.On(tier).Held(); bytes < sum || peak < bytes {
		t.Fatalf("operation %d, tier %d: %d bytes held, at most %d, records have %d", op, tier, bytes, peak, sum)
	}
	if _, err := s.On(tier).Read(t.Context(), []Key{{9, 9}}); !errors.Is(err, ErrMiss) {
		t.Fatalf("a record that nobody stored: %v", err)
	}
}

// TestThrottleIsOneLink: reads that overlap take the time of all their bytes over one link, and those that come late wait for nobody.
func TestThrottleIsOneLink(t *testing.T) {
	t.Parallel()
	c := clock.NewJumping()
	link := &throttle{clock: c, rate: 1000}
	for i, want := range []time.Duration{2 * time.Second, 5 * time.Second} { // both were asked for at 0
		if err := link.held(t.Context(), 0, int64(2000+1000*i)); err != nil || c.Now() != want {
			t.Errorf("read %d came at %v, want %v: %v", i, c.Now(), want, err)
		}
	}
	_ = c.Sleep(t.Context(), 10*time.Second)
	if err := link.held(t.Context(), link.begin(), 500); err != nil || c.Now() != 15500*time.Millisecond {
		t.Errorf("a read at 15 s came at %v: %v", c.Now(), err)
	}
	var free *throttle
	if free.begin() != 0 || free.held(t.Context(), 0, 1<<40) != nil {
		t.Error("a link without a rate")
	}
}

// TestKeysNameTheirFields: keys of texts, contexts and parts are equal exactly where all that they name is; a block's key names all before it.
func TestKeysNameTheirFields(t *testing.T) {
	t.Parallel()
	seen := map[Key]string{}
	add := func(k Key, what string) {
		if other, found := seen[k]; found {
			t.Errorf("%s and %s have one key", what, other)
		}
		seen[k] = what
	}
	for _, salt := range []string{"", "a", "salt"} {
		for _, fields := range [][]Field{nil, {{"a", "b"}}, {{"ab", ""}}, {{"", "ab"}}, {{"a", "b"}, {"c", "d"}}, {{"c", "d"}, {"a", "b"}}} {
			add(Root(fields, salt), fmt.Sprint("root ", fields, salt))
		}
	}
	root := Root(nil, "")
	ids := []int{1, 2, 3, 4, 5, 6, 7, 8, 9}
	chain := Chain(root, ids, 2)
	if len(chain) != 4 {
		t.Fatalf("%d whole blocks of 2 in 9 tokens", len(chain))
	}
	for i, k := range chain {
		add(k, fmt.Sprint("block ", i))
	}
	other := slices.Clone(ids)
	other[2] = 33
	changed := Chain(root, other, 2)
	if changed[0] != chain[0] || changed[1] == chain[1] || changed[3] == chain[3] {
		t.Error("a block's key names what comes before it, and no more")
	}
	for n := range ids {
		add(ContextKey(root, ids[:n]), fmt.Sprint("context of ", n))
		add(PartKey(ContextKey(root, ids), n), fmt.Sprint("part ", n))
	}
	if again := Root([]Field{{"a", "b"}}, "a"); seen[again] == "" || len(again.String()) != 64 {
		t.Error("the same fields have another key")
	}
}
