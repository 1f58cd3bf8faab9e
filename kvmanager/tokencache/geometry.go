package tokencache

import "terrace/internal/kvpage"

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

func newGeometry(l kvpage.Layout, kvHeads int, o Options) geometry {
	g := geometry{layout: l, kvHeads: kvHeads, heads: kvHeads, granule: 1, keyBytes: l.KTileBytes() / kvpage.Tile, pageBytes: l.PageBytes(), valuesAt: l.KBytes()}
	if o.ByHead {
		g.heads = 1
	}
	g.rowBytes = g.keyBytes + l.VRowBytes()
	g.slotBytes = g.heads * g.rowBytes
	if o.Pages {
		g.granule = l.Tokens
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
		copy(row[k:], g.layout.VRow(page, place))
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
