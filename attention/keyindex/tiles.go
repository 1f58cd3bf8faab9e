package keyindex

import (
	"slices"

	"terrace/attention"
	"terrace/internal/kernels"
	"terrace/internal/kvpage"
)

// Tiles lists the key tiles of a view, so that exact products with them (all dimensions or some) are one call of the
// kernel that attention uses. It follows the cache as it grows: only the last tiles are looked at again.
type Tiles struct {
	parts [2]tilePart // pages, and the full-precision window behind them
	rows  []byte      // the wanted rows of every tile, gathered, or every tile turned
	short [][]byte    // the same as tiles
	wide  []byte      // one tile as float32
	keys  [][]byte    // of one tile whose keys lie token by token
}

// tilePart is the part of one layout.
type tilePart struct {
	elem    kvpage.Elem
	byToken bool // tiles lie token by token
	size    int  // bytes of a tile
	tokens  int
	tiles   [][]byte
	masks   []uint16
}

// Refresh brings the lists in line with a view; all forgets what was listed.
func (t *Tiles) Refresh(v *attention.View, all bool) {
	t.parts[0].refresh(v.Layout, v.Pages, all || len(v.Recent) > 0)
	t.parts[1].refresh(v.RecentLayout, v.Recent, true)
}

func (p *tilePart) refresh(l kvpage.Layout, pages []attention.Page, all bool) {
	from := 0
	if !all && len(p.tiles) > 0 {
		from = (len(p.tiles) - 1) / l.Tiles() // a shared last page may have been replaced by a copy since
	}
	p.elem, p.byToken, p.tokens = l.K, l.TokenMajor, 0
	p.tiles, p.masks = p.tiles[:min(len(p.tiles), from*l.Tiles())], p.masks[:min(len(p.masks), from*l.Tiles())]
	if len(pages) == 0 {
		return
	}
	p.size, p.tokens = l.KTileBytes(), (len(pages)-1)*l.Tokens+pages[len(pages)-1].N
	for i := from; i < len(pages); i++ {
		for at := 0; at < pages[i].N; at += kvpage.Tile {
			p.tiles = append(p.tiles, l.KTile(pages[i].Data, at/kvpage.Tile))
			p.masks = append(p.masks, uint16(1<<min(kvpage.Tile, pages[i].N-at)-1))
		}
	}
}

// Dot writes q·k to dst [rows][n] for all n tokens, q [rows, dim]; scratch is returned grown.
func (t *Tiles) Dot(scratch, dst, q []float32, rows, dim, n int) []float32 {
	at := 0
	for i := range t.parts {
		p := &t.parts[i]
		tiles := p.tiles
		if p.byToken {
			tiles = t.turn(p, dim)
		}
		scratch = products(scratch, dst, q, rows, dim, n, at, p, p.elem, tiles)
		at += p.tokens
	}
	return scratch
}

// Dims is Dot with some of the dim dimensions only; q is [rows, few], few a multiple of 16 not below their
// number, the rest zero.
func (t *Tiles) Dims(scratch, dst, q []float32, rows int, dims []int32, few, dim, n int) []float32 {
	at := 0
	for i := range t.parts {
		p := &t.parts[i]
		tiles, elem := t.gather(p, dims, few, dim)
		scratch = products(scratch, dst, q, rows, few, n, at, p, elem, tiles)
		at += p.tokens
	}
	return scratch
}

// turn makes tiles [dim][16] of those that lie token by token.
func (t *Tiles) turn(p *tilePart, dim int) [][]byte {
	t.sized(p.size * len(p.tiles))
	n := p.size / kvpage.Tile
	for i, tile := range p.tiles {
		out := t.rows[i*p.size : (i+1)*p.size : (i+1)*p.size]
		t.keys = t.keys[:0]
		for j := range kvpage.Tile {
			t.keys = append(t.keys, tile[j*n:(j+1)*n])
		}
		kernels.TurnKeys(kernels.KVElem(p.elem), out, t.keys, dim)
		t.short = append(t.short, out)
	}
	return t.short
}

// sized makes room for n bytes of tiles.
func (t *Tiles) sized(n int) {
	if cap(t.rows) < n {
		t.rows = make([]byte, n+n/4)
	}
	t.rows, t.short = t.rows[:n], t.short[:0]
}

// gather copies the wanted rows of every tile of a part to tiles of few dimensions; what type those have.
func (t *Tiles) gather(p *tilePart, dims []int32, few, dim int) ([][]byte, kvpage.Elem) {
	if kernels.KVElem(p.elem).Low() {
		return t.gatherWide(p, dims, few, dim), kvpage.F32
	}
	size := kernels.KVElem(p.elem).KeyTileBytes(few)
	t.sized(size * len(p.tiles))
	row, scales := kvpage.Tile*p.elem.Bits()/8, 0
	if p.elem.Quantised() {
		scales = (kernels.KVElem(p.elem).KeyTileBytes(1) - row) / 2 // numbers of two bytes a dimension
	}
	for i, tile := range p.tiles {
		out := t.rows[i*size : (i+1)*size : (i+1)*size]
		for j := range few {
			d := int(dims[min(j, len(dims)-1)]) // the query is zero past the last
			if p.byToken {
				gatherColumn(out[j*row:][:row], tile, d, dim)
				continue
			}
			for s := range scales {
				copy(out[2*(s*few+j):][:2], tile[2*(s*dim+d):])
			}
			copy(out[2*scales*few+j*row:][:row], tile[2*scales*dim+d*row:])
		}
		t.short = append(t.short, out)
	}
	return t.short, p.elem
}

// gatherWide is gather of tiles whose codes share bytes over dimensions: they become float32.
func (t *Tiles) gatherWide(p *tilePart, dims []int32, few, dim int) [][]byte {
	const row = 4 * kvpage.Tile
	t.sized(row * few * len(p.tiles))
	t.wide = slices.Grow(t.wide[:0], row*dim)[:row*dim]
	for i, tile := range p.tiles {
		kernels.ExpandKeys(kernels.KVElem(p.elem), t.wide, tile, dim)
		out := t.rows[i*row*few : (i+1)*row*few : (i+1)*row*few]
		for j := range few {
			copy(out[j*row:][:row], t.wide[int(dims[min(j, len(dims)-1)])*row:])
		}
		t.short = append(t.short, out)
	}
	return t.short
}

// gatherColumn copies one dimension of a tile [16][dim].
func gatherColumn(dst, tile []byte, d, dim int) {
	size := len(dst) / kvpage.Tile
	for i := range kvpage.Tile {
		copy(dst[i*size:][:size], tile[(i*dim+d)*size:])
	}
}

// products multiplies q [rows, dim] with the tiles, of some type, of a part whose first token is number at of n.
func products(scratch, dst, q []float32, rows, dim, n, at int, p *tilePart, elem kvpage.Elem, tiles [][]byte) []float32 {
	width := len(tiles) * kvpage.Tile
	if width == 0 {
		return scratch
	}
	scratch = sized(scratch, kernels.GroupHeads*(width+dim))
	for h := 0; h < rows; h += kernels.GroupHeads {
		m := min(kernels.GroupHeads, rows-h)
		out, turned := scratch[:m*width], scratch[m*width:m*(width+dim)]
		kernels.PackQuery(turned, q[h*dim:(h+m)*dim], m, dim, 1)
		kernels.ScoreTiles(kernels.KVElem(elem), out, turned, tiles, p.masks, m, dim)
		for i := range m {
			copy(dst[(h+i)*n+at:][:p.tokens], out[i*width:])
		}
	}
	return scratch
}

// sized returns buf with length n, its memory reused where it is large enough; the content is arbitrary.
func sized(buf []float32, n int) []float32 {
	if cap(buf) < n {
		buf = make([]float32, n+n/4)
	}
	return buf[:n]
}
