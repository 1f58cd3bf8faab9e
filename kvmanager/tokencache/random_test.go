package tokencache

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"terrace/internal/cacheshape"
	"terrace/internal/clock"
	"terrace/internal/kvpage"
	"terrace/kvmanager"
	"terrace/kvmanager/fakes"
	"terrace/offload"
)

// randomCaches are kinds of caches that random operations are tried on.
var randomCaches = []struct {
	name   string
	layout kvpage.Layout
	o      Options
	layers cacheshape.Model
}{
	{"single tokens", tokenRows, Options{Layers: []int{0, 1}}, nil},
	{"single tokens by head", tokenRows, Options{Layers: []int{0, 1}, ByHead: true}, nil},
	{"one layer of two", tokenRows, Options{Layers: []int{1}}, nil},
	{"pages", kvpage.Layout{K: kvpage.F32, V: kvpage.F32, Tokens: 16}, Options{Layers: []int{0, 1}, Pages: true}, nil},
	{"pages by head", kvpage.Layout{K: kvpage.F32, V: kvpage.F32, Tokens: 16}, Options{Layers: []int{0, 1}, Pages: true, ByHead: true}, nil},
	{"layers that differ", tokenRows, Options{Layers: []int{0, 1}}, cacheshape.Model{{Heads: 2, Owner: 0, KV: cacheshape.KV{Heads: 2, KeyDim: 4, ValueDim: 6}}, {Heads: 4, Owner: 1, KV: cacheshape.KV{Heads: 1, KeyDim: 4, ValueDim: 6}}}},
}

var tokenRows = kvpage.Layout{K: kvpage.F32, V: kvpage.F32, KeyDim: 4, ValueDim: 6, Tokens: 16, TokenMajor: true}

// randomCache is a cache, and what the test knows of it.
type randomCache struct {
	scenario
	rng   *rand.Rand
	was   Stats
	limit int
	hot   map[int32]bool // positions that may be kept; nil = all
}

// TestRandomOperations: whatever steps pick, tokens come, are forgotten or cut, slots are given back or reads fail, every token that is
// handed out is the right one, all accounts agree after each operation, and what was found and missed is what was in memory.
func TestRandomOperations(t *testing.T) {
	seeds := uint64(3)
	if os.Getenv("TERRACE_TEST_THOROUGH") != "" {
		seeds = 60
	}
	for _, kind := range randomCaches {
		for seed := range seeds {
			t.Run(fmt.Sprint(kind.name, " ", seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := openRandom(t, kind.layout, kind.o, kind.layers, seed)
					for step := range 50 {
						what := c.operation(t)
						c.c.check(t)
						if err := c.m.Check(); err != nil {
							t.Error(err)
						}
						if t.Failed() {
							t.Fatalf("operation %d: %s", step, what)
						}
					}
					if n, _ := c.store.Records(); n == 0 {
						t.Error("nothing was stored")
					}
					c.close(t)
				})
			})
		}
	}
}

// openRandom has a prompt of some tokens stored and a cache of it.
func openRandom(t *testing.T, layout kvpage.Layout, o Options, layers cacheshape.Model, seed uint64) *randomCache {
	t.Helper()
	c := &randomCache{rng: rand.New(rand.NewPCG(seed, 11))}
	if layers == nil {
		layers = cacheshape.Equal(2, 2, cacheshape.KV{Heads: 2, KeyDim: 4, ValueDim: 6})
	}
	c.store = fakes.New(layers, layout)
	layout.KeyDim, layout.ValueDim = 4, 6
	c.o = kvmanager.Options{Layers: layers, Layout: layout, Backing: offload.NewQueue(c.store, offload.QueueOptions{}), BudgetBytes: int64(60+c.rng.IntN(80)) * 4096}
	t.Cleanup(func() { _ = c.o.Backing.Close() })
	var err error
	if c.m, err = kvmanager.New(c.o); err != nil {
		t.Fatal(err)
	}
	c.seq = c.m.NewSequence()
	if err := c.append(100 + c.rng.IntN(200)); err != nil {
		t.Fatal(err)
	}
	c.rest()
	o.StagingBytes = int64(c.rng.IntN(20)) * 1000
	if err := c.plan(); err != nil {
		t.Fatal(err)
	}
	if c.c, err = New(c.seq, o); err != nil {
		t.Fatal(err)
	}
	c.limit = c.rng.IntN(200)
	c.c.SetLimit(c.limit)
	return c
}

// rest waits until nothing is under way.
func (c *randomCache) rest() { _ = clock.Real().Sleep(context.Background(), time.Second) }

// operation does something; it returns what.
func (c *randomCache) operation(t *testing.T) string {
	switch c.rng.IntN(10) {
	case 0:
		layer := c.served()
		first := int32(c.rng.IntN(c.next))
		if err := c.c.Absorb(layer, first); err != nil && !errors.Is(err, kvmanager.ErrBudget) {
			t.Error(err)
		}
		return "absorb"
	case 1:
		c.limit = c.rng.IntN(260)
		c.c.SetLimit(c.limit)
		for i := range c.c.shards {
			if s := &c.c.shards[i]; len(s.owner)-len(s.free) > c.limit {
				t.Errorf("%d slots are used, the limit is %d", len(s.owner)-len(s.free), c.limit)
			}
		}
		return "limit"
	case 2:
		return c.forget(t)
	case 3:
		had := c.slotsOfAll()
		if gave := c.c.Reclaim(); gave != (had > 0) || gave && c.slotsOfAll() != had-chunkSlots {
			t.Errorf("gave %v: %d slots, %d before", gave, c.slotsOfAll(), had)
		}
		return "reclaim"
	case 4:
		return c.cut(t)
	case 5:
		return c.chooseHot()
	case 6:
		c.rest()
		return "wait"
	}
	return c.step(t)
}

func (c *randomCache) served() int { return c.c.o.Layers[c.rng.IntN(len(c.c.o.Layers))] }

func (c *randomCache) slotsOfAll() (n int) {
	for i := range c.c.shards {
		n += len(c.c.shards[i].owner)
	}
	return n
}

// forget drops a token of every shard.
func (c *randomCache) forget(t *testing.T) string {
	position := int32(c.rng.IntN(c.next + 5))
	c.c.Forget(position)
	c.c.eachShard(func(s *shard, pos []int32) {
		if i, there := slices.BinarySearch(pos, position); there && i/c.c.granule < len(s.at) && s.at[i/c.c.granule] >= 0 {
			t.Errorf("position %d has a slot", position)
		}
	})
	return fmt.Sprint("forget ", position)
}

// cut takes tokens back.
func (c *randomCache) cut(t *testing.T) string {
	if c.rng.IntN(3) > 0 || c.next < 60 {
		return "nothing"
	}
	next := int32(c.next - c.rng.IntN(30))
	c.c.Cut(next)
	if err := errors.Join(c.c.Abandon(), c.seq.Truncate(next)); err != nil {
		t.Error(err)
	}
	c.next = int(next)
	c.c.eachShard(func(s *shard, pos []int32) {
		for g := (len(pos) + c.c.granule - 1) / c.c.granule; g < len(s.at); g++ {
			if s.at[g] >= 0 {
				t.Errorf("granule %d of %d tokens has a slot", g, len(pos))
			}
		}
	})
	return fmt.Sprint("cut ", next)
}

// chooseHot says which tokens may be kept from now on.
func (c *randomCache) chooseHot() string {
	if c.hot = nil; c.rng.IntN(2) == 0 && c.c.granule == 1 {
		c.hot = map[int32]bool{}
		for pos := range int32(400) {
			c.hot[pos] = c.rng.IntN(3) > 0
		}
		c.c.SetHot(func(pos int32) bool { return c.hot[pos] })
		return "some are hot"
	}
	c.c.SetHot(nil)
	return "all are hot"
}

// step takes a decode step: a token more, picks in every layer, some of whose reads may fail.
func (c *randomCache) step(t *testing.T) string {
	c.c.Step()
	if err := errors.Join(c.append(1), c.plan()); err != nil {
		t.Error(err)
		return "append"
	}
	for _, layer := range c.c.o.Layers {
		fails := 0
		if c.rng.IntN(8) == 0 {
			fails = 1
		}
		c.store.Change(func() {
			c.store.Fail = func(_ offload.Key, write bool) error {
				if write || fails == 0 {
					return nil
				}
				fails--
				return errBroken
			}
		})
		picks, scores := c.picks(layer)
		missing := c.missing(layer, picks)
		if err := c.c.Begin(layer, picks, scores); err != nil {
			if !errors.Is(err, kvmanager.ErrBudget) {
				t.Error(err)
			}
			continue
		}
		now := c.c.Stats()
		if got := now.Missed - c.was.Missed; got != missing || now.Picked < now.Missed {
			t.Errorf("%d picks are missed, %d are not in memory", got, missing)
		}
		c.was = now
		c.c.check(t)
		if c.rng.IntN(9) == 0 {
			if err := c.c.Abandon(); err != nil {
				t.Error(err)
			}
			continue
		}
		ready := c.c.Ready(layer)
		err := c.c.Finish(layer)
		switch {
		case errors.Is(err, errBroken) || errors.Is(err, kvmanager.ErrBudget):
		case err != nil:
			t.Error(err)
		case ready && missing > 0 && c.c.layers[layer].asked == 0 && len(c.c.layers[layer].single.tokens) == 0:
			t.Error("ready without what was missing")
		default:
			if err := c.compare(t, layer); err != nil && !errors.Is(err, kvmanager.ErrBudget) {
				t.Error(err)
			}
		}
		c.c.Done(layer)
	}
	c.store.Change(func() { c.store.Fail = nil })
	if c.rng.IntN(2) == 0 {
		if err := c.c.Absorb(c.served(), 0); err != nil && !errors.Is(err, kvmanager.ErrBudget) {
			t.Error(err)
		}
	}
	return "step"
}

// picks are some tokens of each head, the same where heads share a shard, and sometimes the scores they were chosen by.
func (c *randomCache) picks(layer int) (picks [][]int32, scores [][]float32) {
	g := c.c.of[layer]
	for shard := range g.shards() {
		chosen := map[int32]bool{}
		for range 1 + c.rng.IntN(40) {
			chosen[int32(c.rng.IntN(c.next-1))] = true
		}
		list := slices.Sorted(maps.Keys(chosen))
		for range g.heads {
			picks = append(picks, list)
		}
		if shard == 0 || len(scores) > 0 {
			row := make([]float32, c.next)
			for i := range row {
				row[i] = float32(c.rng.NormFloat64())
				if chosen[int32(i)] {
					row[i] += 3
				}
			}
			scores = append(scores, row)
		}
	}
	if c.rng.IntN(2) == 0 {
		scores = nil
	}
	return picks, scores
}

// missing counts the granules that are picked and neither in a slot nor in a block in memory.
func (c *randomCache) missing(layer int, picks [][]int32) (n int64) {
	g := c.c.of[layer]
	for i := range c.c.shardsOf(layer) {
		last := int32(-1)
		for _, index := range picks[i*g.heads] {
			granule := index / int32(c.c.granule)
			if granule == last && c.c.granule > 1 {
				continue
			}
			last = granule
			if !c.c.Has(layer, i*g.heads, index) {
				n++
			}
		}
	}
	return n
}
