package kvmanager

import (
	"slices"

	"terrace/attention"
	"terrace/internal/kernels"
	"terrace/internal/kvpage"
	"terrace/offload"
)

// poolViews is what a layer's attention reads: the picked tokens alone, made anew for each layer.
type poolViews struct {
	rows  [][]poolRow // [lanes][picks]
	loose []byte      // tokens that have no slot
	data  []byte
	pages []attention.Page
	pos   []int32
	views []attention.View
	sel   [][]int32
	tiles []poolTile
}

func (o *poolViews) close() {
	if o.data != nil {
		offload.FreeAligned(o.data)
	}
	*o = poolViews{}
}

// poolRow is where a picked token (or page) lies: in bytes of its own, keys and values KV head by KV head (or page by page),
// or as a token of a record's pages.
type poolRow struct {
	data []byte
	slot int32 // in the pages, -1 = bytes of its own
}

// row is where the key and the value of a KV head of the lane begin.
func (p *Pool) row(r *poolRow, head int) (k, v int) {
	if r.slot < 0 {
		return head * p.rowBytes, head*p.rowBytes + p.keyBytes
	}
	at := head * p.pageBytes
	return at + int(r.slot)*p.keyBytes, at + p.valuesAt + int(r.slot)*(p.rowBytes-p.keyBytes)
}

// poolTile is a piece of the views to be made: some picks of a lane, a compact page for each of its KV heads.
type poolTile struct {
	lane, from, n int
	first, stride int // the first head's page, and from head to head
}

// TileScratch is what Build needs on a thread.
type TileScratch struct {
	keys    [kvpage.Tile][]byte
	values  [kvpage.Tile]*byte
	touched byte // so that the loads of touch count for something
}

// Views lays out the views of a layer after Finish, one a KV head, of the picked tokens alone; Build(i) must be called for
// every i below tiles, on any thread, before they are read. sel restricts them further where whole pages were read.
func (p *Pool) Views(layer int) (views []attention.View, sel [][]int32, tiles int, err error) {
	w, o := &p.work[layer], &p.out
	l := p.m.o.Layout
	o.views, o.sel, o.tiles, o.pages = o.views[:0], o.sel[:0], o.tiles[:0], o.pages[:0]
	n := 0
	for h := range p.m.o.KVHeads {
		n += (len(w.picks[h/p.heads]) + l.Tokens - 1) / l.Tokens
	}
	if p.o.Pages {
		return p.pageViews(layer)
	}
	out := l
	out.TokenMajor = false
	size := out.PageBytes()
	if need := n * size; need > len(o.data) {
		if err := p.charge(int64(need + need/8 - len(o.data))); err != nil {
			return nil, nil, 0, err
		}
		if o.data != nil {
			offload.FreeAligned(o.data)
		}
		o.data = offload.AlignedBytes(need + need/8)
	}
	o.pos = slices.Grow(o.pos[:0], n*l.Tokens)[:n*l.Tokens]
	o.pages = slices.Grow(o.pages, n)[:n]
	at := 0
	for h := range p.m.o.KVHeads {
		picks, pos, first := w.picks[h/p.heads], p.s.at(layer, h).pos, at
		stride := (len(picks) + l.Tokens - 1) / l.Tokens
		for from := 0; from < len(picks); from += l.Tokens {
			m := min(l.Tokens, len(picks)-from)
			page := &o.pages[at]
			*page = attention.Page{Data: o.data[at*size : (at+1)*size], Pos: o.pos[at*l.Tokens : (at+1)*l.Tokens], N: m}
			for i, index := range picks[from : from+m] {
				page.Pos[i] = pos[index]
			}
			if h%p.heads == 0 {
				o.tiles = append(o.tiles, poolTile{lane: h / p.heads, from: from, n: m, first: at, stride: stride})
			}
			at++
		}
		o.views = append(o.views, attention.View{Layout: out, Pages: o.pages[first:at:at]})
	}
	return o.views, nil, len(o.tiles), nil
}

// Build makes piece i of the views that were laid out: keys are turned into tiles, values copied, all heads of a token
// together, since they lie together.
func (p *Pool) Build(i int, scratch *TileScratch) {
	t, l := &p.out.tiles[i], p.m.o.Layout
	rows := p.out.rows[t.lane][t.from : t.from+t.n]
	l.TokenMajor = false
	valueBytes := p.rowBytes - p.keyBytes
	scratch.touch(rows)
	for first := 0; first < t.n; first += kvpage.Tile {
		n := min(kvpage.Tile, t.n-first)
		for head := range p.heads {
			page := p.out.pages[t.first+head*t.stride].Data
			for j := range n {
				r := &rows[first+j]
				k, v := p.row(r, head)
				scratch.keys[j], scratch.values[j] = r.data[k:k+p.keyBytes], &r.data[v : v+valueBytes][0]
			}
			for j := n; j < kvpage.Tile; j++ { // places without a token repeat the last
				scratch.keys[j] = scratch.keys[n-1]
			}
			kernels.CopyRows(page[p.valuesAt+first*valueBytes:][:n*valueBytes], scratch.values[:n], valueBytes)
			kernels.TurnKeys(kernels.KVElem(l.K), l.KTile(page, first/kvpage.Tile), scratch.keys[:], l.KeyDim)
		}
	}
}

// touch reads a byte of every cache line of rows that have bytes of their own: one independent load after another, so that
// memory answers many at once, which the copies do not get from it.
func (s *TileScratch) touch(rows []poolRow) {
	sum := byte(0)
	for i := range rows {
		if rows[i].slot >= 0 {
			continue
		}
		for data := rows[i].data; len(data) > 0; data = data[min(len(data), 64):] {
			sum += data[0]
		}
	}
	s.touched = sum
}

// pageViews lists the pages that the picks lie in, and which of their tokens were picked.
func (p *Pool) pageViews(layer int) (views []attention.View, sel [][]int32, tiles int, err error) {
	w, o, l := &p.work[layer], &p.out, p.m.o.Layout
	t, size := int32(l.Tokens), l.PageBytes()
	for len(o.sel) < p.m.o.KVHeads {
		o.sel = append(o.sel[:len(o.sel)], nil)
	}
	total := 0
	for h := range p.m.o.KVHeads {
		total += len(w.picks[h/p.heads])
	}
	o.pages = slices.Grow(o.pages, total)
	for h := range p.m.o.KVHeads {
		lane, first := h/p.heads, len(o.pages)
		tail := p.s.at(layer, h).list[settled].pages
		o.sel[h] = o.sel[h][:0]
		for j, index := range w.picks[lane] {
			if j == 0 || w.picks[lane][j-1]/t != index/t {
				page := tail[index/t]
				page.Data = p.out.rows[lane][j].data[h%p.heads*size : (h%p.heads+1)*size]
				page.Version = 0
				o.pages = append(o.pages, page)
			}
			o.sel[h] = append(o.sel[h], int32(len(o.pages)-first-1)*t+index%t)
		}
		o.views = append(o.views, attention.View{Layout: l, Pages: o.pages[first:len(o.pages):len(o.pages)]})
	}
	return o.views, o.sel, 0, nil
}
