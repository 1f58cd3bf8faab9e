package tokencache

import (
	"errors"
	"fmt"
	"slices"

	"terrace/attention"
	"terrace/kvmanager"
	"terrace/offload"
)

// Options say what a cache keeps.
type Options struct {
	ByHead       bool  // each KV head's tokens are picked by themselves; otherwise all heads of a layer share one selection
	Pages        bool  // whole pages are kept rather than single tokens, which need keys that lie token by token
	Layers       []int // those it serves
	StagingBytes int64 // for what is on its way
}

// Cache is the hot tokens of one sequence.
type Cache struct {
	blocks  kvmanager.Blocks
	o       Options
	granule int         // tokens of a slot
	tokens  int         // of a page
	of      []*geometry // [Layers] nil = not served
	first   []int       // [Layers] shard, -1 = not served
	shards  []shard
	slots   slots
	hot     func(position int32) bool // which tokens may be kept; nil = all
	stage   staging
	gather  gathering
	layers  []selection // [Layers] this step's
	out     views
	stats   Stats
}

// Stats count what steps picked.
type Stats struct {
	Picked, Missed int64 // granules that selections named, and those that were not in host memory
	Groups         int64 // records read for them
	Bytes          int64 // in host memory: slots, staging, tables, views
}

// New returns an empty cache of a sequence on tiers; ErrUnsupported for what it cannot keep, ErrBudget where not even its
// staging fits.
func New(seq *kvmanager.Sequence, o Options) (*Cache, error) {
	blocks, err := seq.Blocks()
	if err != nil {
		return nil, err
	}
	m := blocks.Manager()
	if l := m.Format(); !o.Pages && !l.TokenMajor {
		return nil, fmt.Errorf("tokencache: single tokens of %v, whose keys lie in tiles: %w", l, kvmanager.ErrUnsupported)
	}
	if len(o.Layers) == 0 {
		return nil, fmt.Errorf("tokencache: no layer to serve: %w", kvmanager.ErrUnsupported)
	}
	layers := len(blocks.Shape())
	c := &Cache{blocks: blocks, o: o, tokens: m.Format().Tokens, first: make([]int, layers), of: make([]*geometry, layers), layers: make([]selection, layers)}
	c.granule = granuleOf(m.Format(), o)
	c.slots.m = m
	for i := range c.first {
		c.first[i] = -1
		c.layers[i] = selection{c: c, layer: i}
	}
	all := geometries(blocks, o)
	for i, layer := range o.Layers {
		g := all[i]
		c.of[layer], c.layers[layer].g = g, g
		c.first[layer] = len(c.shards)
		for range g.shards() {
			c.shards = append(c.shards, shard{of: c.slots.pool(g)})
		}
	}
	big := largest(all)
	size := big.recordBytes()
	n := c.gather.init(blocks, big, o, int(max(o.StagingBytes/int64(size), 4)))
	if err := c.slots.charge(int64(n*size) + c.gather.bytes()); err != nil {
		c.gather.close()
		return nil, err
	}
	c.stage.init(offload.AlignedBytes(n*size), size)
	m.AddReclaimer(c)
	return c, nil
}

// Serves reports whether a layer has shards.
func (c *Cache) Serves(layer int) bool { return c != nil && c.first[layer] >= 0 }

// Stats are the counts so far.
func (c *Cache) Stats() Stats {
	s := c.stats
	s.Bytes = c.slots.charged
	return s
}

// Bytes is what the cache holds in host memory, as Stats has it.
func (c *Cache) Bytes() int64 { return c.slots.charged }

// Sizes are what a cache and its slots take, in bytes of host memory, and how many share it.
type Sizes struct {
	Fixed   int64 // that the cache holds beside its slots
	Scratch int64 // of Fixed what steps have needed so far to lay out what they read
	Slot    int   // a slot and what is noted of it, on average over the shards, rounded up
	Shards  int
	Granule int // tokens of a slot
}

// Sizes are those now.
func (c *Cache) Sizes() Sizes {
	x := Sizes{Fixed: c.slots.charged, Scratch: int64(cap(c.out.loose) + len(c.out.data)), Shards: len(c.shards), Granule: c.granule}
	for i := range c.shards {
		x.Fixed -= int64(len(c.shards[i].chunks)) * c.shards[i].of.chunkBytes()
		x.Slot += c.shards[i].of.g.slotBytes
	}
	x.Slot = (x.Slot+len(c.shards)-1)/max(len(c.shards), 1) + slotIndexBytes
	return x
}

// MostBytes is what a cache with options o holds at most beside its slots: fixed (staging, tables) for a sequence of tokens, and
// scratch for steps that read that many of each KV head, in runs that begin at multiples of run.
func MostBytes(blocks kvmanager.Blocks, o Options, tokens, read, run int) (fixed, scratch int64) {
	all := geometries(blocks, o)
	if len(all) == 0 {
		return 0, 0
	}
	big, shards, loose, views := largest(all), 0, 0, 0
	granules := (tokens + big.layout.Tokens) / big.granule
	for _, g := range all {
		shards += g.shards()
		picks := read
		if o.Pages {
			picks = min((read+run-1)/run*g.granulesOf(run)+1, granules)
		} else {
			views = max(views, g.kvHeads*((read+g.layout.Tokens-1)/g.layout.Tokens)*g.pageBytes)
		}
		loose = max(loose, g.shards()*picks*g.slotBytes)
	}
	records := max(o.StagingBytes/int64(big.recordBytes()), 4)
	if !o.Pages && blocks.Gathers() {
		records += 2 + 2*int64(big.shards()) // two halves of at least one record of all KV heads beside at least four groups
	}
	fixed = records*int64(big.recordBytes()) + 4*int64(granules+granules/8+64)*int64(shards)
	return fixed, int64(loose+loose/8) + int64(views+views/8)
}

// SetLimit sets how many slots a shard may have; shards with more give some back.
func (c *Cache) SetLimit(slots int) {
	c.slots.limit = max(slots, 0)
	for i := range c.shards {
		for s := &c.shards[i]; len(s.chunks) > 0 && len(s.owner)-len(s.free) > c.slots.limit; {
			s.dropChunk()
		}
	}
	c.slots.releaseMemory()
}

// SetHot says which tokens may be kept, by position; nil = all that are read.
func (c *Cache) SetHot(hot func(position int32) bool) { c.hot = hot }

// Has reports whether a token of a KV head is in host memory now: in a slot, or in a block that has not left.
func (c *Cache) Has(layer, kvHead int, index int32) bool {
	s := &c.shardsOf(layer)[kvHead/c.of[layer].heads]
	if granule := int(index) / c.granule; granule < len(s.at) && s.at[granule] >= 0 {
		return true
	}
	return c.blocks.Resident(layer, int(index)/c.tokens) != nil
}

// keeps reports whether a token may have a slot.
func (c *Cache) keeps(layer int, index int32) bool {
	return c.hot == nil || c.hot(c.blocks.PositionList(layer, 0)[index])
}

// Step begins a decode step: what it uses is not displaced in it.
func (c *Cache) Step() { c.slots.step++ }

// Begin notes what a layer will read, indices of tokens for each KV head, ascending (of shards that heads share the first
// head's), and begins to fetch what is not in host memory. scores are those that the selection was made from, for each shard one a
// token, nil where there are none: they decide what gives way to what is fetched, and are not kept.
func (c *Cache) Begin(layer int, picks [][]int32, scores [][]float32) error {
	return c.layers[layer].begin(picks, scores)
}

// Finish waits for what Begin has set going and lists where every picked token lies; it stays there until Done. The newest
// token, by index in each KV head, is read in any case.
func (c *Cache) Finish(layer int) error { return c.layers[layer].finish() }

// Ready reports whether Finish of a layer will wait for nothing.
func (c *Cache) Ready(layer int) bool { return c.layers[layer].ready() }

// Views lays out the views of a layer after Finish, one a KV head, of the picked tokens alone; Build(i) must be called for
// every i below tiles, on any thread, before they are read. sel restricts them further where whole pages were read.
func (c *Cache) Views(layer int) (views []attention.View, sel [][]int32, tiles int, err error) {
	if c.o.Pages {
		views, sel = c.layers[layer].pageViews()
		return views, sel, 0, nil
	}
	views, tiles, err = c.layers[layer].tokenViews()
	return views, nil, tiles, err
}

// Build makes piece i of the views that were laid out: keys are turned into tiles, values copied, all heads of a token
// together, since they lie together.
func (c *Cache) Build(i int, scratch *Scratch) { c.out.build(i, scratch) }

// Done lets go of a layer's selection, once its attention is computed.
func (c *Cache) Done(layer int) { c.layers[layer].release() }

// Abandon waits for what is under way and forgets every selection that was begun.
func (c *Cache) Abandon() error {
	var err error
	for layer := range c.layers {
		err = errors.Join(err, c.layers[layer].abandon())
	}
	return err
}

// shardsOf returns the shards of a layer.
func (c *Cache) shardsOf(layer int) []shard {
	at := c.first[layer]
	return c.shards[at : at+c.of[layer].shards()]
}

// Absorb takes the tokens of a layer's newly complete blocks into the cache: the newest are hot. first says from which index
// on, for a prompt whose older tokens are not to be kept.
func (c *Cache) Absorb(layer int, first int32) error {
	blocks, t, g := c.blocks.Count(layer), c.tokens, c.of[layer]
	shards := c.shardsOf(layer)
	for i := range shards {
		s := &shards[i]
		if err := s.cover(blocks * t / c.granule); err != nil {
			return err
		}
		for ; s.absorbed < blocks && c.blocks.Complete(layer, s.absorbed); s.absorbed++ {
			data := c.blocks.Resident(layer, s.absorbed)
			if data == nil || (s.absorbed+1)*t <= int(first) {
				continue
			}
			data = data[i*g.recordBytes():][:g.recordBytes()]
			for place := 0; place < t; place += c.granule {
				index := int32(s.absorbed*t + place)
				if index < first && c.granule == 1 || s.has(index) || !c.keeps(layer, index) {
					continue
				}
				if slot := s.place(index/int32(c.granule), s.freshPriority()); slot >= 0 {
					g.copyGranule(s.slot(slot), data, place)
				}
			}
		}
	}
	return nil
}

// Insert takes tokens of a layer, by rising index, from gathered records into the cache, as far as there are slots.
func (c *Cache) Insert(layer int, tokens []int32, data []byte) {
	if !c.Serves(layer) || c.o.ByHead || c.o.Pages {
		return
	}
	s, t, g := &c.shardsOf(layer)[0], c.tokens, c.of[layer]
	for i, index := range tokens {
		if int(index) >= len(s.at) || s.at[index] >= 0 {
			continue
		}
		if slot := s.place(index, s.freshPriority()); slot >= 0 {
			g.copyGranule(s.slot(slot), data[i/t*g.recordBytes():][:g.recordBytes()], i%t)
		}
	}
}

// Forget drops a token (its slots in every shard), by position.
func (c *Cache) Forget(position int32) {
	c.eachShard(func(s *shard, pos []int32) {
		if i, there := slices.BinarySearch(pos, position); there {
			s.forget(int32(i / c.granule))
		}
	})
}

// Cut forgets the tokens whose position is not below next: they are gone, or about to go.
func (c *Cache) Cut(next int32) {
	c.eachShard(func(s *shard, pos []int32) {
		index, _ := slices.BinarySearch(pos, next)
		for g := (index + c.granule - 1) / c.granule; g < len(s.at); g++ {
			s.forget(int32(g))
		}
		s.absorbed = min(s.absorbed, index/c.tokens)
	})
}

// eachShard calls do with every shard and the positions of its tokens.
func (c *Cache) eachShard(do func(s *shard, pos []int32)) {
	for layer := range c.layers {
		if !c.Serves(layer) {
			continue
		}
		for i := range c.shardsOf(layer) {
			do(&c.shardsOf(layer)[i], c.blocks.PositionList(layer, i*c.of[layer].heads))
		}
	}
}

// Reclaim gives memory back that something else needs, a chunk of the fullest shard at a time; false = nothing is left.
func (c *Cache) Reclaim() bool {
	var most *shard
	for layer, at := range c.first {
		if at < 0 || c.layers[layer].active {
			continue
		}
		for i := range c.shardsOf(layer) {
			if s := &c.shards[at+i]; len(s.chunks) > 0 && (most == nil || len(s.chunks) > len(most.chunks)) {
				most = s
			}
		}
	}
	if most == nil {
		return false
	}
	c.slots.limit = min(c.slots.limit, max(len(most.owner)-chunkSlots, 0))
	most.dropChunk()
	c.slots.releaseMemory()
	return true
}

// Free gives everything back.
func (c *Cache) Free() error {
	if c == nil {
		return nil
	}
	err := c.Abandon()
	for i := range c.shards {
		for len(c.shards[i].chunks) > 0 {
			c.shards[i].dropChunk()
		}
	}
	c.slots.close()
	c.stage.close()
	c.gather.close()
	c.out.close()
	c.slots.refund(c.slots.charged)
	c.blocks.Manager().RemoveReclaimer(c)
	c.shards = nil
	for i := range c.first {
		c.first[i] = -1
	}
	return err
}
