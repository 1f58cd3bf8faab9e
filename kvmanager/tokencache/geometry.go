package tokencache

import (
	"terrace/internal/kvpage"
	"terrace/kvmanager"
)

// geometry is what slots and records look like.
type geometry struct {
	layout    kvpage.Layout // of a page
	kvHeads   int
	heads     int // KV heads of a shard
	granule   int // tokens of a slot
	slotBytes int
	rowBytes  int // key and value of one token and KV head
	keyBytes  int // of it, the key
	pageBytes int
	valuesAt  int // where values begin in a page
}

// granuleOf is the tokens of a slot.
func granuleOf(l kvpage.Layout, o Options) int {
	if o.Pages {
		return l.Tokens
	}
	return 1
}

// geometries are those of the layers that a cache serves, in the order of Options.Layers; layers that are alike share one.
func geometries(blocks kvmanager.Blocks, o Options) []*geometry {
	m, shape := blocks.Manager(), blocks.Shape()
	all := make([]*geometry, len(o.Layers))
	for i, layer := range o.Layers {
		g := newGeometry(m.Layout(layer), shape[layer].KV.Heads, o)
		for _, other := range all[:i] {
			if *other == g {
				all[i] = other
			}
		}
		if all[i] == nil {
			all[i] = &g
		}
	}
	return all
}

// largest is the geometry whose records of all KV heads take most.
func largest(all []*geometry) *geometry {
	big := all[0]
	for _, g := range all {
		if g.shards()*g.recordBytes() > big.shards()*big.recordBytes() {
			big = g
		}
	}
	return big
}

// shards is how many shards a layer has.
func (g *geometry) shards() int { return g.kvHeads / g.heads }

func newGeometry(l kvpage.Layout, kvHeads int, o Options) geometry {
	g := geometry{layout: l, kvHeads: kvHeads, heads: kvHeads, granule: granuleOf(l, o), keyBytes: l.KTileBytes() / kvpage.Tile, pageBytes: l.PageBytes(), valuesAt: l.ValuesAt()}
	if o.ByHead {
		g.heads = 1
	}
	g.rowBytes = g.keyBytes + l.VBytes()/l.Tokens
	g.slotBytes = g.heads * g.rowBytes
	if o.Pages {
		g.slotBytes = g.heads * g.pageBytes
	}
	return g
}

// recordBytes is the size of a block's pages of the heads of one shard.
func (g *geometry) recordBytes() int { return g.heads * g.pageBytes }

// granulesOf is how many granules a run of tokens that begins at a multiple of its length may lie in.
func (g *geometry) granulesOf(run int) int {
	switch {
	case run%g.granule == 0:
		return run / g.granule
	case g.granule%run == 0:
		return 1
	}
	return run/g.granule + 2
}

// copyGranule copies a token's rows of every head, or a page, from a record's bytes; place is the token's in its page.
func (g *geometry) copyGranule(dst, data []byte, place int) {
	if g.granule > 1 {
		copy(dst, data)
		return
	}
	k := g.keyBytes
	for h := range g.heads {
		page := data[h*g.pageBytes : (h+1)*g.pageBytes]
		row := dst[h*g.rowBytes : (h+1)*g.rowBytes]
		copy(row[:k], g.layout.KRow(page, place))
		if !g.layout.ValueInKey {
			copy(row[k:], g.layout.VRow(page, place))
		}
	}
}

// row is where a picked token (or page) lies: in bytes of its own, keys and values KV head by KV head (or page by page), or as
// a token of a record's pages.
type row struct {
	data  []byte
	place int32 // in the pages, -1 = bytes of its own
}

// starts is where the key and the value of a KV head of the shard begin.
func (g *geometry) starts(r *row, head int) (k, v int) {
	if r.place < 0 {
		return head * g.rowBytes, head*g.rowBytes + g.keyBytes
	}
	at := head * g.pageBytes
	return at + int(r.place)*g.keyBytes, at + g.valuesAt + int(r.place)*(g.rowBytes-g.keyBytes)
}
