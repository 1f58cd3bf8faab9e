package retrieval

import (
	"fmt"

	"terrace/kvmanager"
	"terrace/kvmanager/tokencache"
	"terrace/policy"
)

// cacheBudget works out what a token cache may hold: the part of the budget that its sequence has, less what lies beside its slots, and what
// is charged for steps to come.
type cacheBudget struct {
	c       *cached
	limit   int              // slots that a shard may have
	staging int64            // of what is on its way; 0 before there is a cache: the smallest
	sharers int              // token caches that shared the budget when that was set
	counted tokencache.Stats // up to the last step
}

// openCache sizes the token cache: what the budget leaves beside the index, staging and the newest tokens' blocks.
func (c *cached) openCache(n int) error {
	f := c.t.f
	c.budget.staging = c.budget.stagingFor(n)
	o := c.budget.cacheOptions(n)
	var err error
	if c.cache, err = tokencache.New(c.t.seq, o); err != nil {
		return fmt.Errorf("retrieval: %w", err)
	}
	f.caches++
	if pl := c.t.set.Placer; pl != nil {
		c.drive.setBalance()
		pl.PlacePrompt(n, c.budget.hotCapacity(n))
		if pl.Decides() {
			c.cache.SetHot(func(position int32) bool { return pl.Hot(int(position)) })
		}
	}
	c.budget.share(n)
	return nil
}

// stagingFor is what may be on its way of n tokens: no more than a layer has, or where single tokens are read than a step reads of one (so
// that half of that may be under way for each of two layers: most of it is hot as a rule), a 32nd of the budget, and a quarter of what
// the budget has beyond the least that the text needs, which counts none but the smallest staging.
func (b *cacheBudget) stagingFor(n int) int64 {
	f := b.c.t.f
	layer := f.mostBytes(n)
	bytes := min(8<<20, layer)
	if blocks, err := b.c.t.seq.Blocks(); err == nil && b.c.t.obs.needs.TokenGranularity && blocks.Gathers() {
		read, _, _ := b.most(n)
		if !b.c.t.obs.needs.SharedAcrossHeads {
			read *= b.mostHeads() // each picks its own, and all heads of a token come
		}
		bytes = min(bytes, layer*int64(read)/int64(n)*8/7) // an eighth is for whole groups
	}
	if budget := f.o.BudgetBytes; budget > 0 {
		x := kvmanager.Growth{Tokens: n}
		spare := budget - (f.o.KV.Stats().InUseBytes - f.rows) - layer - b.beside(&x)
		bytes = min(bytes, budget/32, max(spare/4, 0))
	}
	return bytes
}

// share sets what the cache may hold of n tokens beside those of the other texts.
func (b *cacheBudget) share(n int) {
	b.sharers = b.c.t.f.caches
	slots := b.capacity(n)
	if pl := b.c.t.set.Placer; pl != nil {
		slots = b.slots(pl.HotTokens(n, b.hotCapacity(n)))
	}
	if tokens := b.buffer(n); tokens >= 0 {
		slots = min(slots, b.slots(tokens))
	}
	b.setLimit(slots)
}

// buffer is how many of n tokens the policy wants to stay in host memory; -1 = as many as fit.
func (b *cacheBudget) buffer(n int) int {
	buffered, ok := b.c.t.set.Selector.(policy.Buffered)
	if !ok {
		return -1
	}
	l := b.c.t.sel.probe(b.firstSelecting())
	l.N, l.KVBytes = n, b.c.t.f.kvBytesPerToken()
	return buffered.BufferTokens(l)
}

// slots is how many slots of a shard hold a number of tokens.
func (b *cacheBudget) slots(tokens int) int {
	return (tokens + b.c.cache.Sizes().Granule - 1) / b.c.cache.Sizes().Granule
}

// firstSelecting is the first layer that the policy selects in; the first that keeps keys where there is none.
func (b *cacheBudget) firstSelecting() int {
	for layer := range b.c.layers {
		if b.c.layers[layer].selects {
			return layer
		}
	}
	return max(b.c.t.f.o.Shape.Layers.Next(-1), 0)
}

// mostHeads is the most KV heads of a layer that the policy selects in.
func (b *cacheBudget) mostHeads() int {
	n := 1
	for layer := range b.c.layers {
		if b.c.layers[layer].selects {
			n = max(n, b.c.t.f.o.Shape.kv(layer).Heads)
		}
	}
	return n
}

// setLimit sets how many slots a shard may have.
func (b *cacheBudget) setLimit(slots int) {
	b.limit = slots
	b.c.cache.SetLimit(slots)
}

// limitStep is by how many slots the split of host and drive has to move before the cache does: what it gives up has to be
// read again.
const limitStep = 64

// hotCapacity is how many of n tokens may be hot.
func (b *cacheBudget) hotCapacity(n int) int { return min(n, b.capacity(n)*b.c.cache.Sizes().Granule) }

// capacity is how many slots a shard can have once the prompt is read: all texts' caches have equal shares of the budget.
func (b *cacheBudget) capacity(n int) int {
	f, selecting, indexed := b.c.t.f, 0, 0
	if f.o.BudgetBytes == 0 {
		return n
	}
	for i, l := range b.c.layers {
		if l.selects {
			selecting++
		}
		if b.c.t.sel.layers[i].index != nil {
			indexed++
		}
	}
	layers := f.o.Shape.Layers.Keepers()
	left := (f.o.BudgetBytes - f.charged) / int64(max(f.caches, 1))
	if b.c.drive == nil {
		left -= b.c.t.sel.charged * int64(selecting) / int64(max(indexed, 1)) // the indexes of all layers
	}
	left -= b.c.t.sel.below.MostBytes() + b.c.cache.Sizes().Fixed + int64(layers+8)*int64(f.o.KV.BlockBytes()) // staging, the newest tokens
	left -= int64(4 * n / b.c.cache.Sizes().Granule * b.c.cache.Sizes().Shards)                                // tables
	left -= max(int64(n)/4*f.mostBytes(1)-b.c.cache.Sizes().Scratch, 0)                                        // a step's selection, where it is not in Sizes.Fixed yet
	return b.slotsOf(int(max(left-b.late(n), 0)), b.c.cache.Sizes().Slot+b.c.drive.tokenBytes(), n)
}

// fill is how many tokens of a layer can be kept while the prompt's other layers are still read whole.
func (b *cacheBudget) fill(n int) int {
	f := b.c.t.f
	if f.o.BudgetBytes == 0 {
		return n
	}
	blocks := (n + f.blockTokens() - 1) / f.blockTokens()
	ring := int64(2*blocks+f.o.ChunkTokens/8) * int64(f.o.KV.BlockBytes())
	less := int(ring+f.rows) / b.c.cache.Sizes().Shards / b.c.cache.Sizes().Slot
	return max(b.capacity(n)-less, 0) * b.c.cache.Sizes().Granule
}

// charge counts the index against the budget.
func (c *cached) charge() error {
	c.drive.count(c.t.sel.indexBytes())
	return c.t.sel.charge()
}

// hitRate is the share of what the cache was asked for since the last call that it had; -1 = nothing was asked.
func (b *cacheBudget) hitRate() float64 {
	now := b.c.cache.Stats()
	picked, missed := now.Picked-b.counted.Picked, now.Missed-b.counted.Missed
	b.counted = now
	if picked == 0 {
		return -1
	}
	return 1 - float64(missed)/float64(picked)
}
