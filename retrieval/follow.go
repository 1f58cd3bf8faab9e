package retrieval

import (
	"slices"

	"terrace/attention/keyindex"
)

// This file is what a selecting policy's index and the token cache do where blocks of the prompt leave and come back while decoding
// (policy.BlockSwapper): a token keeps its position, and loses its number in the layer.

// swaps reports whether the policy chooses blocks by a layer's keys after a decode step's attention; who asks it releases the
// layer (Sequence.Release).
func (t *Sequence) swaps(layer int) bool {
	return t.set.Swapper != nil && t.set.Follows() && t.Prunes(layer)
}

// afterSwaps reports whether blocks of a layer may come and go under the attention of the layer before: what it reads is chosen in
// its turn, not ahead.
func (t *Sequence) afterSwaps(layer int) bool {
	if t.set.Swapper == nil || !t.set.Follows() {
		return false
	}
	return slices.Contains(t.set.Pruner.PruneLayers(), layer-1)
}

// indexFollows reports whether the index follows tokens that leave and come back, where it is built again for other sketches.
func (t *Sequence) indexFollows() bool {
	return t.set.Swapper != nil && t.set.Follows() && keyindex.FollowsTokens(t.obs.needs.Sketch)
}

// cachesPruned reports whether a token cache can follow what the policy prunes: single tokens of a policy that places them, one
// selection for all KV heads, and an index that follows them, or blocks that never come back.
func (t *Sequence) cachesPruned() bool {
	n := &t.obs.needs
	if t.set.Stepper != nil || t.set.Placer == nil || !n.TokenGranularity || !n.SharedAcrossHeads {
		return false
	}
	return !t.set.Follows() || t.indexFollows()
}

// Swapping is a swap of blocks of some layers, from before the first change to after the last: the positions that were there.
type Swapping struct {
	t     *Sequence
	first int
	was   [][]int32 // by layer from first on
}

// BeginSwap notes what layers first to last show.
func (t *Sequence) BeginSwap(first, last int) *Swapping {
	x := &Swapping{t: t, first: first, was: make([][]int32, last+1-first)}
	for layer := range x.was {
		if t.f.o.Shape.Layers.Keeps(first + layer) {
			x.was[layer] = slices.Clone(t.seq.PositionList(first+layer, 0))
		}
	}
	return x
}

// Layers is Layer for layers of which nothing was computed.
func (x *Swapping) Layers(from, to int) error {
	for layer := from; layer <= to; layer++ {
		if err := x.Layer(layer, nil); err != nil {
			return err
		}
	}
	return nil
}

// Layer brings what is kept beside a layer's pages in line with what it shows now, once all of it has come and gone. fresh are the
// positions, ascending, whose keys and values were computed: they are in memory afterwards, until the layer is released.
// Layers before those that swap or without keys of their own, and a nil Swapping, have nothing to follow.
func (x *Swapping) Layer(layer int, fresh []int32) error {
	if x == nil || layer < x.first || !x.t.f.o.Shape.Layers.Keeps(layer) {
		return nil
	}
	t := x.t
	was := x.was[layer-x.first]
	if t.sel == nil || !t.Acts(layer) || slices.Equal(was, t.seq.PositionList(layer, 0)) {
		return nil
	}
	if !t.indexFollows() {
		if index := t.sel.layers[layer].index; index != nil {
			index.Reset()
		}
		return nil
	}
	if len(fresh) > 0 {
		if err := t.f.storeError(t.seq.Acquire(layer, fresh[0])); err != nil {
			return err
		}
	}
	c, cached := t.res.(*cached)
	l, shown := &t.sel.layers[layer], t.Layer(layer, 0)
	switch {
	case l.index == nil:
	case cached && c.drive.serves(layer):
		c.drive.swapped(layer, was)
	default:
		if err := t.sel.refresh(l, t.obs.reader.views, shown); err != nil {
			return err
		}
	}
	if !cached || c.cache == nil {
		return nil
	}
	if n := len(fresh); n > 0 && (c.fresh[layer] < 0 || fresh[0] < c.fresh[layer]) {
		c.fresh[layer] = fresh[0]
	}
	return c.cache.Follow(layer, was)
}

// ShowFresh brings into memory what a policy has not seen yet of a layer whose blocks it chooses: what was computed since it chose last.
func (t *Sequence) ShowFresh(layer int) error {
	c, ok := t.res.(*cached)
	if !ok || c.cache == nil || c.fresh[layer] < 0 {
		return nil
	}
	low := c.fresh[layer]
	c.fresh[layer] = -1
	return t.f.storeError(t.seq.Acquire(layer, low))
}

// late is the bytes that rows which are computed late may take of host memory: they read a layer whole.
func (b *cacheBudget) late(n int) int64 {
	set := b.c.t.set
	if !set.Follows() || len(set.Pruner.PruneLayers()) == 0 {
		return 0
	}
	most, t := 0, b.c.t.f.blockTokens()
	for layer := range b.c.layers {
		if layer > set.Pruner.PruneLayers()[0] {
			most = max(most, b.tokens(layer, n))
		}
	}
	return int64((most+t-1)/t+set.Swapper.BlockTokens()/t) * int64(b.c.t.f.o.KV.BlockBytes())
}

// tokens is how many a layer has at the end of a prompt of n, as far as that is known: a layer that the prompt has not reached has
// what the one before has.
func (b *cacheBudget) tokens(layer, n int) int {
	for ; layer >= 0; layer-- {
		if have := b.c.t.seq.Tokens(layer, 0); have > 0 {
			return have
		}
	}
	return n
}

// slotsOf is how many slots of a size a shard may have of some bytes. Where a prompt was pruned layers with fewer tokens, each of
// which has one shard, leave to the others what they have no use for.
func (b *cacheBudget) slotsOf(bytes, size, n int) int {
	shards := b.c.cache.Sizes().Shards
	if b.c.t.set.Pruner == nil {
		return bytes / shards / size
	}
	var held []int
	for layer, l := range b.c.layers {
		if l.selects {
			held = append(held, b.tokens(layer, n))
		}
	}
	slices.Sort(held)
	each, left := 0, bytes/size
	for i, tokens := range held {
		if each = left / (len(held) - i); tokens > each {
			break
		}
		left -= tokens
	}
	return each
}
