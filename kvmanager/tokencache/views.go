package tokencache

import (
	"slices"

	"terrace/attention"
	"terrace/internal/kernels"
	"terrace/internal/kvpage"
	"terrace/offload"
)

// views is what a layer's attention reads: the picked tokens alone, made again for each layer.
type views struct {
	rows  [][]row // [shards][picks]
	loose []byte  // tokens that have no slot
	data  []byte
	pages []attention.Page
	pos   []int32
	views []attention.View
	sel   [][]int32
	tiles []tile
	g     *geometry // of the layer that was laid out
}

func (o *views) close() {
	if o.data != nil {
		offload.FreeAligned(o.data)
	}
	*o = views{}
}

// tile is a piece of the views to be made: some picks of a shard, a compact page for each of its KV heads.
type tile struct {
	shard, from, n int
	first, stride  int // the first head's page, and from head to head
}

// Scratch is what Build needs on a thread.
type Scratch struct {
	keys    [kvpage.Tile][]byte
	values  [kvpage.Tile]*byte
	touched byte // so that the loads of touch count for something
}

// tokenViews is Cache.Views where single tokens are kept.
func (w *selection) tokenViews() (views []attention.View, tiles int, err error) {
	c, o, l, heads := w.c, &w.c.out, w.g.layout, w.g.heads
	o.views, o.tiles, o.pages, o.g = o.views[:0], o.tiles[:0], o.pages[:0], w.g
	n := 0
	for h := range w.g.kvHeads {
		n += (len(w.picks[h/heads]) + l.Tokens - 1) / l.Tokens
	}
	l.TokenMajor = l.ValueInKey
	size := l.PageBytes()
	if err := w.sizeViews(n * size); err != nil {
		return nil, 0, err
	}
	o.pos = slices.Grow(o.pos[:0], n*l.Tokens)[:n*l.Tokens]
	o.pages = slices.Grow(o.pages, n)[:n]
	at := 0
	for h := range w.g.kvHeads {
		picks, pos, first := w.picks[h/heads], c.blocks.PositionList(w.layer, h), at
		stride := (len(picks) + l.Tokens - 1) / l.Tokens
		for from := 0; from < len(picks); from += l.Tokens {
			m := min(l.Tokens, len(picks)-from)
			page := &o.pages[at]
			*page = attention.Page{Data: o.data[at*size : (at+1)*size], Pos: o.pos[at*l.Tokens : (at+1)*l.Tokens], N: m}
			for i, index := range picks[from : from+m] {
				page.Pos[i] = pos[index]
			}
			if h%heads == 0 {
				o.tiles = append(o.tiles, tile{shard: h / heads, from: from, n: m, first: at, stride: stride})
			}
			at++
		}
		o.views = append(o.views, attention.View{Layout: l, Pages: o.pages[first:at:at]})
	}
	return o.views, len(o.tiles), nil
}

// sizeViews makes room for the compact pages.
func (w *selection) sizeViews(need int) error {
	o := &w.c.out
	if need <= len(o.data) {
		return nil
	}
	if err := w.c.slots.charge(int64(need + need/8 - len(o.data))); err != nil {
		return err
	}
	if o.data != nil {
		offload.FreeAligned(o.data)
	}
	o.data = offload.AlignedBytes(need + need/8)
	return nil
}

// build is Cache.Build.
func (o *views) build(i int, scratch *Scratch) {
	t, g := &o.tiles[i], o.g
	l := g.layout
	rows := o.rows[t.shard][t.from : t.from+t.n]
	l.TokenMajor = l.ValueInKey
	valueBytes := g.rowBytes - g.keyBytes
	scratch.touch(rows)
	for first := 0; first < t.n; first += kvpage.Tile {
		n := min(kvpage.Tile, t.n-first)
		for head := range g.heads {
			page := o.pages[t.first+head*t.stride].Data
			if l.ValueInKey {
				for j := range n {
					k, _ := g.starts(&rows[first+j], head)
					copy(l.KRow(page, first+j), rows[first+j].data[k:k+g.keyBytes])
				}
				continue
			}
			for j := range n {
				r := &rows[first+j]
				k, v := g.starts(r, head)
				scratch.keys[j], scratch.values[j] = r.data[k:k+g.keyBytes], &r.data[v : v+valueBytes][0]
			}
			for j := n; j < kvpage.Tile; j++ { // places without a token repeat the last
				scratch.keys[j] = scratch.keys[n-1]
			}
			kernels.CopyRows(page[g.valuesAt+first*valueBytes:][:n*valueBytes], scratch.values[:n], valueBytes)
			kernels.TurnKeys(kernels.KVElem(l.K), l.KTile(page, first/kvpage.Tile), scratch.keys[:], l.KeyDim)
		}
	}
}

// touch reads a byte of every cache line of rows that have bytes of their own: one independent load after another, so that
// memory answers many at once, which the copies do not get from it.
func (s *Scratch) touch(rows []row) {
	sum := byte(0)
	for i := range rows {
		if rows[i].place >= 0 {
			continue
		}
		for data := rows[i].data; len(data) > 0; data = data[min(len(data), 64):] {
			sum += data[0]
		}
	}
	s.touched = sum
}

// pageViews is Cache.Views where whole pages are kept: the pages that the picks lie in, and which of their tokens were picked.
func (w *selection) pageViews() (views []attention.View, sel [][]int32) {
	c, o, l, heads := w.c, &w.c.out, w.g.layout, w.g.heads
	o.views, o.pages = o.views[:0], o.pages[:0]
	t, size := int32(l.Tokens), l.PageBytes()
	for len(o.sel) < w.g.kvHeads {
		o.sel = append(o.sel, nil)
	}
	total := 0
	for h := range w.g.kvHeads {
		total += len(w.picks[h/heads])
	}
	o.pages = slices.Grow(o.pages, total)
	for h := range w.g.kvHeads {
		shard, first := h/heads, len(o.pages)
		picks, rows := w.picks[shard], c.out.rows[shard]
		o.sel[h] = o.sel[h][:0]
		for j, index := range picks {
			if j == 0 || picks[j-1]/t != index/t {
				page := c.blocks.Page(w.layer, h, int(index/t))
				page.Data = rows[j].data[h%heads*size : (h%heads+1)*size]
				page.Version = 0
				o.pages = append(o.pages, page)
			}
			o.sel[h] = append(o.sel[h], int32(len(o.pages)-first-1)*t+index%t)
		}
		o.views = append(o.views, attention.View{Layout: l, Pages: o.pages[first:len(o.pages):len(o.pages)]})
	}
	return o.views, o.sel[:w.g.kvHeads]
}
