package tokencache

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"terrace/internal/cacheshape"
	"terrace/internal/kvpage"
	"terrace/kvmanager"
	"terrace/kvmanager/fakes"
	"terrace/offload"
)

// slowShard is a shard as a map: who has a slot, when it was used last, and its priority.
type slowShard struct {
	slots map[int32]*slowSlot // by granule
	limit int
	step  uint32
	grown int // slots that there are
}

type slowSlot struct {
	lastUse  uint32
	priority float32
}

// place finds room: a slot that is free or may be added, else the lowest priority that this step has not used; nil = none is.
func (s *slowShard) place(granule int32, priority float32) (gone int32, ok bool) {
	gone = -1
	if len(s.slots) == s.grown && s.grown+chunkSlots <= s.limit+chunkSlots/2 {
		s.grown += chunkSlots
	}
	if len(s.slots) == s.grown {
		for g, slot := range s.slots {
			if slot.lastUse < s.step && (gone < 0 || slot.priority < s.slots[gone].priority) {
				gone = g
			}
		}
		if gone < 0 {
			return -1, false
		}
		delete(s.slots, gone)
	}
	s.slots[granule] = &slowSlot{s.step, priority}
	return gone, true
}

// oneShard is a cache of one layer and a shard of it, over a text of tokens.
func oneShard(t *testing.T, tokens int) (c *Cache, free func()) {
	t.Helper()
	l := kvpage.Layout{K: kvpage.F32, V: kvpage.F32, KeyDim: 4, ValueDim: 6, Tokens: 16, TokenMajor: true}
	layers := cacheshape.Equal(1, 1, cacheshape.KV{Heads: 1, KeyDim: 4, ValueDim: 6})
	q := offload.NewQueue(fakes.New(layers, l), offload.QueueOptions{})
	m, err := kvmanager.New(kvmanager.Options{Layers: layers, Layout: l, Backing: q, BudgetBytes: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	s := m.NewSequence()
	if c, err = New(s, Options{Layers: []int{0}}); err != nil {
		t.Fatal(err)
	}
	if err := c.shards[0].cover(tokens); err != nil {
		t.Fatal(err)
	}
	return c, func() {
		if err := c.Free(); err != nil {
			t.Error(err)
		}
		s.Free()
		if err := m.Check(); err != nil || m.Stats().InUseBytes != 0 {
			t.Errorf("%v, %d bytes in use", err, m.Stats().InUseBytes)
		}
		_, _ = m.Close(), q.Close()
	}
}

// TestShardKeepsTheBest: over many steps a shard holds the granules that a plain map holds, which gives way by the lowest priority, whose
// priorities are all different.
func TestShardKeepsTheBest(t *testing.T) {
	for seed := range uint64(20) {
		c, free := oneShard(t, 500)
		rng := rand.New(rand.NewPCG(seed, 4))
		s, ref := &c.shards[0], &slowShard{slots: map[int32]*slowSlot{}}
		next := float32(0)
		for range 60 {
			c.Step()
			ref.step = c.slots.step
			if rng.IntN(5) == 0 {
				ref.limit = 64 * rng.IntN(4)
				c.SetLimit(ref.limit)
				ref.follow(s)
			}
			s.forgetVictims()
			for range rng.IntN(40) {
				granule := int32(rng.IntN(500))
				if s.has(granule) != (ref.slots[granule] != nil) {
					t.Fatalf("seed %d: granule %d is in a slot: %v", seed, granule, s.has(granule))
				}
				if s.has(granule) {
					s.lastUse[s.at[granule]] = c.slots.step
					ref.slots[granule].lastUse = ref.step
					continue
				}
				next++
				priority := float32(rng.IntN(1000)) + next/4096
				slot := s.place(granule, priority)
				gone, ok := ref.place(granule, priority)
				if (slot >= 0) != ok || gone >= 0 && s.has(gone) {
					t.Fatalf("seed %d: granule %d has slot %d, want one: %v; %d is to give way", seed, granule, slot, ok, gone)
				}
			}
			if s.check(t); t.Failed() {
				return
			}
		}
		free()
	}
}

// follow takes what a change of the limit has left.
func (r *slowShard) follow(s *shard) {
	r.grown = len(s.owner)
	for granule := range r.slots {
		if !s.has(granule) {
			delete(r.slots, granule)
		}
	}
}

// TestAgeing moves priorities a fifth of the way to what tokens score now, and leaves free slots alone.
func TestAgeing(t *testing.T) {
	c, free := oneShard(t, 100)
	defer free()
	c.SetLimit(64)
	s := &c.shards[0]
	for granule := range int32(10) {
		s.place(granule, float32(granule))
	}
	scores := make([]float32, 100)
	for i := range scores {
		scores[i] = float32(i % 17)
	}
	w := scaleOf(scores, []int32{16, 15, 33})
	before := slices.Clone(s.priority)
	s.age(&w)
	for granule := range int32(10) {
		slot := s.at[granule]
		want := before[slot] + (1-priorityDecay)*(w.of(granule)-before[slot])
		if s.priority[slot] != want {
			t.Errorf("token %d: priority %g, want %g", granule, s.priority[slot], want)
		}
	}
	for slot := 10; slot < len(s.owner); slot++ {
		if s.owner[slot] < 0 && s.priority[slot] != before[slot] {
			t.Errorf("a free slot aged")
		}
	}
	none := scale{}
	if s.age(&none); s.freshPriority() != float32(c.slots.step) {
		t.Error("without scores a token's priority is the step")
	}
	if s.scored = true; s.freshPriority() != 0 {
		t.Error("with scores it is 0")
	}
}

// TestGeometry recomputes what slots and records are.
func TestGeometry(t *testing.T) {
	for _, elem := range []kvpage.Elem{kvpage.F32, kvpage.F16, kvpage.BF16} {
		for _, tokens := range []int{16, 32} {
			for _, o := range []Options{{}, {ByHead: true}, {Pages: true}, {Pages: true, ByHead: true}} {
				t.Run(fmt.Sprint(elem, tokens, o.ByHead, o.Pages), func(t *testing.T) {
					const heads, dk, dv = 3, 32, 16
					l := kvpage.Layout{K: elem, V: elem, KeyDim: dk, ValueDim: dv, Tokens: tokens, TokenMajor: !o.Pages}
					g := newGeometry(l, heads, o)
					bytes, each := elem.Bits()/8, heads
					if o.ByHead {
						each = 1
					}
					slot := each * (dk + dv) * bytes
					if o.Pages {
						slot = each * l.PageBytes()
					}
					if g.heads != each || g.shards() != heads/each || g.slotBytes != slot || g.rowBytes != (dk+dv)*bytes || g.recordBytes() != each*l.PageBytes() {
						t.Errorf("%+v", g)
					}
					if !o.Pages {
						g.compareCopies(t, l, each)
					}
					for run := 1; run < 70; run++ {
						most := 0
						for first := 0; first < 20*run; first += run {
							n := (first+run-1)/g.granule - first/g.granule + 1
							most = max(most, n)
						}
						if got := g.granulesOf(run); got < most || got > most+1 {
							t.Errorf("a run of %d tokens lies in %d granules, at most %d", run, most, got)
						}
					}
				})
			}
		}
	}
}

// compareCopies holds a token's slot against its rows in a record.
func (g *geometry) compareCopies(t *testing.T, l kvpage.Layout, heads int) {
	t.Helper()
	record, slot := make([]byte, g.recordBytes()), make([]byte, g.slotBytes)
	for i := range record {
		record[i] = byte(i*7 + i/256)
	}
	for place := range l.Tokens {
		g.copyGranule(slot, record, place)
		own, inside := row{data: slot, place: -1}, row{data: record, place: int32(place)}
		for h := range heads {
			k, v := g.starts(&own, h)
			rk, rv := g.starts(&inside, h)
			page := record[h*l.PageBytes():][:l.PageBytes()]
			if !slices.Equal(slot[k:k+g.keyBytes], l.KRow(page, place)) || !slices.Equal(slot[v:v+g.rowBytes-g.keyBytes], l.VRow(page, place)) {
				t.Fatalf("place %d, head %d: a slot has other rows", place, h)
			}
			if !slices.Equal(record[rk:rk+g.keyBytes], l.KRow(page, place)) || !slices.Equal(record[rv:rv+g.rowBytes-g.keyBytes], l.VRow(page, place)) {
				t.Fatalf("place %d, head %d: a record's rows are elsewhere", place, h)
			}
		}
	}
}

// TestStagingHandsOutOnce: buffers do not overlap, and each is handed out once until it is given back.
func TestStagingHandsOutOnce(t *testing.T) {
	var g staging
	g.init(offload.AlignedBytes(7*1000), 1000)
	defer g.close()
	rng := rand.New(rand.NewPCG(1, 9))
	out := map[int32]byte{}
	for step := range 400 {
		if len(g.free) > 0 && rng.IntN(2) == 0 {
			i := g.take()
			if _, had := out[i]; had {
				t.Fatalf("buffer %d is out already", i)
			}
			out[i] = byte(step)
			for j := range g.buffer(i) {
				g.buffer(i)[j] = byte(step)
			}
			continue
		}
		for i, mark := range out {
			if b := g.buffer(i); len(b) != 1000 || cap(b) != 1000 || b[0] != mark || b[999] != mark {
				t.Fatalf("buffer %d was written by another", i)
			}
			g.free = append(g.free, i)
			delete(out, i)
			break
		}
	}
	if len(out)+len(g.free) != g.all || g.all != 7 {
		t.Errorf("%d out, %d free of %d", len(out), len(g.free), g.all)
	}
}

// TestLargestRecord is that of all KV heads together.
func TestLargestRecord(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	for range 50 {
		var all []*geometry
		for range 1 + rng.IntN(5) {
			heads := 1 << rng.IntN(3)
			g := newGeometry(kvpage.Layout{K: kvpage.F16, V: kvpage.F16, KeyDim: 16 * (1 + rng.IntN(4)), ValueDim: 16, Tokens: 16, TokenMajor: true}, heads, Options{ByHead: rng.IntN(2) == 0})
			all = append(all, &g)
		}
		want := slices.MaxFunc(all, func(a, b *geometry) int { return cmp.Compare(a.kvHeads*a.pageBytes, b.kvHeads*b.pageBytes) })
		if got := largest(all); got.kvHeads*got.pageBytes != want.kvHeads*want.pageBytes {
			t.Errorf("%+v is not the largest", got)
		}
	}
}
