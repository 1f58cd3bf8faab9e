package retrieval

import (
	"terrace/attention/keyindex"
	"terrace/kvmanager"
	"terrace/kvmanager/tokencache"
	"terrace/policy"
)

// firstSteps is how many steps behind a prompt its plan has room for.
const firstSteps = 64

// tokensAfter is how many tokens a layer has at most when what a pass is part of is done: a step, or a prompt and its first steps.
func (t *Sequence) tokensAfter(x *kvmanager.Growth) int {
	if x.Tokens > 0 {
		return max(x.Tokens, int(t.read)+x.Rows) + firstSteps
	}
	return max(int(t.read), x.Had) + x.Rows
}

// beside is what the index of n tokens takes beyond what is charged of it; nil has none.
func (s *selector) beside(n int) int64 {
	if s == nil {
		return 0
	}
	shape := &s.t.f.o.Shape
	var bytes, below int64
	tile := 0
	for layer := range shape.Layers {
		if !s.t.Acts(layer) {
			continue
		}
		size := indexSize(s, layer, n)
		bytes += size.Bytes
		below, tile = max(below, size.Below), max(tile, size.Tile)
	}
	return max(bytes-s.charged, 0) + max(s.below.MostBytesOf(below, tile)-s.below.Charged(), 0)
}

// indexSize is what the index of n tokens of a layer takes: all heads' in memory, a head's below.
func indexSize(s *selector, layer, n int) keyindex.Size {
	sketch, kv, elem := s.t.obs.needs.Sketch, s.t.f.o.Shape.kv(layer), s.t.f.o.KV.Layout(layer).K
	size := keyindex.MostSize(sketch, kv.KeyDim, n, s.below != nil, elem)
	size.Bytes = size.Bytes*int64(kv.Heads) + keyindex.MostJoint(sketch, kv.Heads, kv.KeyDim, n, elem)
	return size
}

// beside is the bytes that a pass, or the prompt that it is part of with its first steps, charges beside pages: the index, the
// token cache's staging, tables, and what a step fetches and lays out. Slots are not in it: they give way. Nor is what a step
// takes in place of the layer that a prompt reads whole.
func (b *cacheBudget) beside(x *kvmanager.Growth) (n int64) {
	blocks, err := b.c.t.seq.Blocks()
	if err != nil {
		return 0 // openCache says so
	}
	tokens, have := b.c.t.tokensAfter(x), int64(0)
	if b.c.drive == nil { // else the host's part follows the room there is
		n = b.c.t.sel.beside(tokens)
	}
	if b.c.cache != nil {
		have = b.c.cache.Sizes().Fixed
	}
	read, run, whole := b.most(tokens)
	fixed, scratch := tokencache.MostBytes(blocks, b.cacheOptions(tokens), tokens, read, run)
	if !whole && x.Tokens > 0 {
		scratch = max(scratch+b.grouping(tokens)-b.c.t.f.mostBytes(tokens), 0)
	}
	return n + max(fixed+scratch-have, 0)
}

// grouping is the bytes of the blocks that a step takes to group tokens of a layer, once some text of that many is generated.
func (b *cacheBudget) grouping(tokens int) int64 {
	need := &b.c.t.obs.needs.Sketch
	if need.Kind != policy.SketchClusters {
		return 0
	}
	return b.blocks(min(tokens, need.Clusters.Recent+need.Clusters.Update+1))
}

// grouped is the bytes of the blocks that a decode step takes to group tokens: of one layer at a time.
func (b *cacheBudget) grouped(x *kvmanager.Growth) int64 {
	most := 0
	for layer, l := range b.c.layers {
		if !l.selects || b.c.drive.serves(layer) {
			continue
		}
		for g := range b.c.t.f.o.Shape.kv(layer).Heads {
			pos := b.c.t.seq.PositionList(layer, g)
			most = max(most, len(pos)+x.Rows-b.c.t.sel.layers[layer].readsFrom(g, pos, x.Rows))
		}
	}
	return b.blocks(most)
}

// blocks is the bytes of the blocks of consecutive tokens of a layer, none for none.
func (b *cacheBudget) blocks(tokens int) int64 {
	if tokens == 0 {
		return 0
	}
	t := b.c.t.f.blockTokens()
	return int64((tokens+t-1)/t+1) * int64(b.c.t.f.o.KV.BlockBytes())
}

// WaitingBytes is the bytes of the hidden rows of a prompt of n tokens that leave on the way and are kept, at most: whoever keeps them charges
// them.
func (t *Sequence) WaitingBytes(n int) int64 {
	if !t.set.Follows() {
		return 0
	}
	return int64(t.set.Pruner.Leaving(n, t.f.kvBytesPerToken())) * int64(4*t.f.o.Shape.RowWidth)
}

// waiting is that of rows in a pass.
func (r *Rows) waiting() int64 {
	if !r.Reading.byLayer() {
		return 0
	}
	return r.Sequence.WaitingBytes(r.Len)
}

// most is how many tokens of a KV head a step reads from the cache at most, in runs of how many, and whether it reads a layer
// whole beside that.
func (b *cacheBudget) most(tokens int) (read, run int, whole bool) {
	l := b.c.t.sel.probe(b.firstSelecting())
	l.N, l.Prompt, l.KVBytes = tokens, tokens, b.c.t.f.kvBytesPerToken()
	reader, ok := b.c.t.set.Selector.(policy.Reader)
	if !ok {
		return tokens, tokens, true
	}
	run = 1
	for layer := range b.c.layers {
		if !b.c.t.f.o.Shape.Layers.Keeps(layer) {
			continue
		}
		l.Index = layer
		n, step := reader.Most(l)
		if !b.c.layers[layer].selects || n >= tokens {
			whole = true
			continue
		}
		read, run = max(read, n+1), step // and the newest
	}
	return read, run, whole
}

// cacheOptions are those of a cache of n tokens.
func (b *cacheBudget) cacheOptions(n int) tokencache.Options {
	needs := &b.c.t.obs.needs
	o := tokencache.Options{Pages: !needs.TokenGranularity, ByHead: !needs.SharedAcrossHeads, StagingBytes: b.staging}
	for layer, l := range b.c.layers {
		if l.selects {
			o.Layers = append(o.Layers, layer)
		}
	}
	return o
}
