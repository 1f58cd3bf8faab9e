package kvmanager

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"terrace/internal/kvpage"
	"terrace/kvmanager/fakes"
	"terrace/offload"
)

var errMachine = errors.New("the store is broken")

// machine does random things to sequences of a cache, and to plain lists of tokens that must be the same.
type machine struct {
	o     Options
	m     *Manager
	store *fakes.Store // nil = all is in host memory
	rng   *rand.Rand
	all   []*machineSeq
	now   *machineSeq  // the one that the operation is done to
	fails atomic.Int32 // calls to the store that will fail
}

// machineSeq is a sequence, its tokens, those that are inactive by layer and first position, and the next position of each layer.
type machineSeq struct {
	s        *Sequence
	want     *reference
	inactive map[inactiveKey][]int
	next     int
	away     bool // suspended
}

// operations are what a machine does, by name.
var operations = []struct {
	name string
	do   func(m *machine) error
}{
	{"append", (*machine).append}, {"append", (*machine).append}, {"pass", (*machine).pass}, {"pass", (*machine).pass}, {"keep", (*machine).keep}, {"fork", (*machine).fork},
	{"truncate", (*machine).truncate}, {"free", (*machine).free}, {"deactivate", (*machine).deactivate}, {"activate", (*machine).activate}, {"insert", (*machine).insert},
	{"edit keys", (*machine).editKeys}, {"prefetch", (*machine).prefetch}, {"bring", (*machine).bring}, {"charge", (*machine).charge}, {"suspend", (*machine).suspend}, {"settle", func(m *machine) error { return m.m.Settle() }},
}

// TestMachine runs operations in any order: every sequence holds what plain lists hold, bit for bit, and all accounts agree after each.
func TestMachine(t *testing.T) {
	seeds := uint64(12)
	if os.Getenv("TERRACE_TEST_THOROUGH") != "" {
		seeds = 300
	}
	for _, blocks := range []int{0, 44, 90, 1000} {
		for seed := range seeds {
			t.Run(fmt.Sprint(blocks, " blocks ", seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { newMachine(t, blocks, seed).run(t, 60) })
			})
		}
	}
}

func newMachine(t *testing.T, blocks int, seed uint64) *machine {
	t.Helper()
	x := &machine{o: shape(kvpage.F32, 0), rng: rand.New(rand.NewPCG(seed, uint64(blocks)))}
	x.o.Layout.TokenMajor = seed%3 == 0
	if blocks > 0 {
		x.o, x.store = onTiers(t, x.o, blocks)
		x.store.Fail = func(offload.Key, bool) error {
			if x.fails.Add(-1) >= 0 {
				return errMachine
			}
			return nil
		}
	}
	var err error
	if x.m, err = New(x.o); err != nil {
		t.Fatal(err)
	}
	return x
}

func (x *machine) run(t *testing.T, steps int) {
	for step := range steps {
		if len(x.all) == 0 {
			x.all = append(x.all, &machineSeq{s: x.m.NewSequence(), want: newReference(x.o), inactive: map[inactiveKey][]int{}})
		}
		x.now = x.all[x.rng.IntN(len(x.all))]
		op := operations[x.rng.IntN(len(operations))]
		if x.now.away {
			op.name, op.do = "resume", (*machine).resume
		}
		if err := op.do(x); err != nil && !errors.Is(err, ErrBudget) {
			t.Fatalf("step %d, %s: %v", step, op.name, err)
		}
		check(t, x.m, nil, x.open()...)
		if x.compare(t); t.Failed() {
			t.Fatalf("step %d: %s", step, op.name)
		}
	}
	for _, q := range x.all {
		q.s.Free()
	}
	check(t, x.m, nil)
	if err := x.m.Settle(); err != nil {
		t.Error(err)
	}
	if x.store != nil && stored(x.store) > 0 {
		t.Errorf("%d records are left", stored(x.store))
	}
	if err := x.m.Close(); err != nil || x.m.inUse != x.m.charged {
		t.Errorf("%v, %d bytes in use", err, x.m.inUse)
	}
}

func (x *machine) open() (all []*Sequence) {
	for _, q := range x.all {
		all = append(all, q.s)
	}
	return all
}

// compare looks at positions always, and at bytes where they are in memory.
func (x *machine) compare(t *testing.T) {
	t.Helper()
	heads := x.o.Layers[0].KV.Heads
	k, v := make([]float32, x.o.Layout.KeyDim), make([]float32, x.o.Layout.ValueDim)
	for n, q := range x.all {
		for i, pos := range q.want.pos {
			layer, g := i/heads, i%heads
			if got := q.s.PositionList(layer, g); len(got) != len(pos) || slices.ContainsFunc(zip(got, pos), func(p [2]int) bool { return p[0] != p[1] }) {
				t.Fatalf("sequence %d, layer %d head %d holds %v, want %v", n, layer, g, got, pos)
			}
			for at, id := range q.want.ids[i] {
				page := q.s.lists.at(layer, g).main.pages[at/16]
				if page.Data == nil {
					continue
				}
				if x.m.backing != nil { // what was shown lately may have left
					b := q.s.store.(*tiered).layers[layer].blocks[at/16]
					if b.data == nil || b.reading() || &b.page(x.m, g)[0] != &page.Data[0] {
						continue
					}
				}
				kvpage.ReadK(x.o.Layout, page.Data, at%16, k)
				kvpage.ReadV(x.o.Layout, page.Data, at%16, v)
				if k[0] != kvOf(id, layer, g, len(k), 0) || v[len(v)-1] != -kvOf(id, layer, g, len(v), len(v)-1) {
					t.Fatalf("sequence %d, layer %d head %d, token %d: other bytes", n, layer, g, at)
				}
			}
		}
	}
}

func zip(a []int32, b []int) (out [][2]int) {
	for i := range a {
		out = append(out, [2]int{int(a[i]), b[i]})
	}
	return out
}

// pass reads every layer of one or two sequences as a pass does, after some tokens, and compares; a store that fails once fails it once.
func (x *machine) pass() error {
	passes := []Growth{{Seq: x.now.s}}
	if other := x.all[x.rng.IntN(len(x.all))]; other != x.now && !other.away {
		passes = append(passes, Growth{Seq: other.s})
	}
	if err := x.m.Plan(passes); err != nil {
		return err
	}
	x.fails.Store(int32(max(x.rng.IntN(12)-10, 0)))
	var failed error
	for layer := range x.o.Layers {
		for _, p := range passes {
			err := p.Seq.Acquire(layer, 0)
			if x.rng.IntN(2) == 0 {
				p.Seq.Prefetch((layer+1)%len(x.o.Layers), 0)
			}
			failed = errors.Join(failed, err, p.Seq.Release(layer))
		}
	}
	x.fails.Store(0)
	if errors.Is(failed, errMachine) {
		failed = nil // what was lost is read, or written, again
		if err := x.m.Settle(); err != nil && !errors.Is(err, errMachine) {
			failed = err
		}
		x.m.late = nil
	}
	return failed
}

// append adds tokens to every layer, or to none.
func (x *machine) append() error {
	n := 1 + x.rng.IntN(40)
	if err := x.m.Plan([]Growth{{Seq: x.now.s, Rows: n}}); err != nil {
		return err
	}
	ids := make([]int, n)
	for i := range ids {
		ids[i] = x.rng.IntN(97)
	}
	return x.write(x.now, ids)
}

func (x *machine) write(q *machineSeq, ids []int) error {
	pos := make([]int32, len(ids))
	for i := range pos {
		pos[i] = int32(q.next + i)
	}
	for layer := range x.o.Layers {
		k, v := rows(x.o, layer, ids)
		if err := q.s.Append(layer, k, v, pos); err != nil {
			return errors.Join(err, q.s.Truncate(int32(q.next)), q.cut(q.next))
		}
		for h := range x.o.Layers[0].KV.Heads {
			at := layer*x.o.Layers[0].KV.Heads + h
			q.want.ids[at] = append(q.want.ids[at], ids...)
			for _, p := range pos {
				q.want.pos[at] = append(q.want.pos[at], int(p))
			}
		}
	}
	q.next += len(ids)
	return nil
}

// cut takes tokens back in the lists.
func (q *machineSeq) cut(next int) error {
	for i := range q.want.ids {
		at, _ := slices.BinarySearch(q.want.pos[i], next)
		q.want.ids[i], q.want.pos[i] = q.want.ids[i][:at], q.want.pos[i][:at]
	}
	for key := range q.inactive {
		if int(key.from) >= next {
			delete(q.inactive, key)
		}
	}
	q.next = min(q.next, next)
	return nil
}

func (x *machine) keep() error {
	layer, h := x.rng.IntN(2), x.rng.IntN(3)
	if len(x.now.inactive) > 0 {
		return nil // blocks come back whole
	}
	var idx []int
	for i := range x.now.s.Tokens(layer, h) {
		if x.rng.IntN(4) > 0 {
			idx = append(idx, i)
		}
	}
	if err := x.now.s.Keep(layer, h, idx); err != nil {
		return err
	}
	at := layer*3 + h
	var ids, pos []int
	for _, i := range idx {
		ids, pos = append(ids, x.now.want.ids[at][i]), append(pos, x.now.want.pos[at][i])
	}
	x.now.want.ids[at], x.now.want.pos[at] = ids, pos
	return x.now.s.Release(layer)
}

func (x *machine) fork() error {
	f, err := x.now.s.Fork()
	switch {
	case len(x.now.inactive) > 0:
		if !errors.Is(err, ErrPlan) {
			return fmt.Errorf("a fork with inactive tokens: %w", err)
		}
		return nil
	case err != nil:
		return err
	case len(x.all) == 3:
		f.Free()
		return nil
	}
	x.all = append(x.all, &machineSeq{f, x.now.want.clone(), map[inactiveKey][]int{}, x.now.next, false})
	return nil
}

func (x *machine) truncate() error {
	n := x.rng.IntN(x.now.next + 20)
	if x.rng.IntN(2) == 0 {
		n = max(x.now.next-x.rng.IntN(20), 0)
	}
	err := x.now.s.Truncate(int32(n))
	for key, what := range x.now.inactive {
		if int(key.from) < n && what[63] >= n {
			if !errors.Is(err, ErrPlan) {
				return fmt.Errorf("a cut within inactive tokens: %w", err)
			}
			return nil
		}
	}
	if err != nil {
		return err
	}
	return x.now.cut(n)
}

func (x *machine) free() error {
	if x.rng.IntN(3) > 0 {
		return nil
	}
	x.now.s.Free()
	x.now.s.Free() // a second call does nothing
	x.all = slices.DeleteFunc(x.all, func(q *machineSeq) bool { return q == x.now })
	return nil
}

// deactivate takes a run of whole pages out, which all heads have, on tiers at the same places.
func (x *machine) deactivate() error {
	q, layer := x.now, x.rng.IntN(2)
	first := q.want.pos[layer*3]
	if len(first) < 48 {
		return nil
	}
	at := x.rng.IntN(len(first)/16-1) * 16
	from, to := first[at], first[at+15]+1
	whole := !slices.ContainsFunc([]int{1, 2}, func(h int) bool {
		pos := q.want.pos[layer*3+h]
		i, _ := slices.BinarySearch(pos, from)
		j, _ := slices.BinarySearch(pos, to)
		return i%16 != 0 || x.store != nil && i != at || !slices.Equal(pos[i:j], first[at:at+16])
	})
	err := q.s.Swaps().Deactivate(layer, int32(from), int32(to))
	if !whole {
		if !errors.Is(err, ErrPlan) && !errors.Is(err, ErrBudget) {
			return fmt.Errorf("pages that differ by head were taken out: %w", err)
		}
		return nil
	}
	if err != nil {
		return err
	}
	key := inactiveKey{layer, int32(from)}
	for h := range 3 {
		i := layer*3 + h
		at, _ := slices.BinarySearch(q.want.pos[i], from)
		q.inactive[key] = append(q.inactive[key], q.want.ids[i][at:at+16]...)
		q.want.ids[i], q.want.pos[i] = slices.Delete(q.want.ids[i], at, at+16), slices.Delete(q.want.pos[i], at, at+16)
	}
	q.inactive[key] = append(q.inactive[key], positionsOf(q.s.swaps.inactive[key].pos)...)
	if !q.s.Swaps().Inactive(layer, int32(from)) {
		return errors.New("what was taken out is not inactive")
	}
	return nil
}

func positionsOf(pos []int32) (out []int) {
	for _, p := range pos {
		out = append(out, int(p))
	}
	return out
}

func (x *machine) activate() error {
	q := x.now
	for key, what := range q.inactive {
		pos := what[48:]
		for h := range 3 { // it fits only between pages
			list := q.want.pos[key.layer*3+h]
			if at, _ := slices.BinarySearch(list, pos[0]); at%16 != 0 {
				if err := q.s.Swaps().Activate(key.layer, key.from); !errors.Is(err, ErrPlan) {
					return fmt.Errorf("a block into the middle of a page: %w", err)
				}
				return nil
			}
		}
		if err := q.s.Swaps().Activate(key.layer, key.from); err != nil {
			return err
		}
		for h := range 3 {
			i := key.layer*3 + h
			at, _ := slices.BinarySearch(q.want.pos[i], pos[0])
			q.want.ids[i], q.want.pos[i] = slices.Insert(q.want.ids[i], at, what[h*16:h*16+16]...), slices.Insert(q.want.pos[i], at, pos...)
		}
		delete(q.inactive, key)
		return nil
	}
	return nil
}

// insert puts tokens at positions that are missing in every head of a layer.
func (x *machine) insert() error {
	q, layer := x.now, x.rng.IntN(2)
	var free []int32
	for pos := range q.next {
		taken := false
		for h := range 3 {
			_, found := slices.BinarySearch(q.want.pos[layer*3+h], pos)
			taken = taken || found
		}
		for key, what := range q.inactive {
			taken = taken || key.layer == layer && pos >= what[48] && pos <= what[63]
		}
		if !taken && len(free) < 20 {
			free = append(free, int32(pos))
		}
	}
	if len(free) == 0 || len(q.inactive) > 0 {
		return nil
	}
	ids := make([]int, len(free))
	for i := range ids {
		ids[i] = x.rng.IntN(97)
	}
	k, v := rows(x.o, layer, ids)
	if err := q.s.Insert(layer, k, v, free); err != nil {
		return err
	}
	for h := range 3 {
		i := layer*3 + h
		for n, pos := range free {
			at, _ := slices.BinarySearch(q.want.pos[i], int(pos))
			q.want.ids[i], q.want.pos[i] = slices.Insert(q.want.ids[i], at, ids[n]), slices.Insert(q.want.pos[i], at, int(pos))
		}
	}
	return q.s.Release(layer)
}

// editKeys writes each key back as it is.
func (x *machine) editKeys() error {
	layer, h, seen := x.rng.IntN(2), x.rng.IntN(3), 0
	err := x.now.s.EditKeys(layer, h, func(from int, keys []float32) {
		for i := 0; i < len(keys); i += 4 {
			if id := x.now.want.ids[layer*3+h][from+i/4]; keys[i] != kvOf(id, layer, h, 4, 0) {
				seen = -1 << 20
			}
			seen++
		}
	})
	if err == nil && seen != x.now.s.Tokens(layer, h) {
		return fmt.Errorf("%d keys were shown of %d, or others", seen, x.now.s.Tokens(layer, h))
	}
	return errors.Join(err, x.now.s.Release(layer))
}

func (x *machine) prefetch() error {
	x.now.s.Prefetch(x.rng.IntN(2), int32(x.rng.IntN(x.now.next+1)))
	return nil
}

func (x *machine) bring() error {
	x.now.s.Swaps().Bring(x.rng.IntN(2), int32(x.rng.IntN(x.now.next+1)))
	if x.rng.IntN(2) == 0 {
		return x.now.s.Swaps().Await()
	}
	return nil
}

// charge takes memory for something else, for which blocks leave, and gives it back.
func (x *machine) charge() error {
	n := int64(x.rng.IntN(20)) * 4096
	if err := x.m.Charge(n); err != nil {
		return err
	}
	if x.m.charged != n {
		return fmt.Errorf("%d bytes charged, want %d", x.m.charged, n)
	}
	x.m.Refund(n)
	return nil
}
