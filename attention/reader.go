package attention

import (
	"terrace/internal/kernels"
	"terrace/internal/kvpage"
)

// panelTokens is how many keys are widened at a time.
const panelTokens = kernels.PanelCols

// Reader reads cached keys and values as float32 in bulk. The zero value is ready; it keeps its scratch, so each goroutine
// needs its own. Numbers of a trained indexer (kvpage.Layout.Index) are read as zeros, as queries have them.
type Reader struct {
	Index bool      // they are read as they are
	panel []float32 // [dim][64]: keys as their tiles lie
	wide  []byte    // a quantised tile as float32, or one turned
	rows  [][]byte  // of a tile that lies token by token
}

// partOf is the part of a view that a token lies in.
func partOf(v *View, i int) (layout kvpage.Layout, pages []Page, at int) {
	main := 0
	if n := len(v.Pages); n > 0 {
		main = (n-1)*v.Layout.Tokens + v.Pages[n-1].N
	}
	if i < main {
		return v.Layout, v.Pages, i
	}
	return v.RecentLayout, v.Recent, i - main
}

// Panel widens the keys of the tokens from (a multiple of 16 within its part of the view) on, up to 64 and not past to, as
// [dim][64] with a token in each column; it returns the panel, which holds until the next call, and the number of tokens.
func (r *Reader) Panel(v *View, from, to int) (panel []float32, n int) {
	l, pages, at := partOf(v, from)
	if need := l.KeyDim * panelTokens; cap(r.panel) < need {
		r.panel = make([]float32, need)
	}
	panel = r.panel[:l.KeyDim*panelTokens]
	for n < panelTokens && from+n < to {
		page := (at + n) / l.Tokens
		if page >= len(pages) {
			break // the rest lies in the other part
		}
		p, in := &pages[page], (at+n)%l.Tokens
		if in >= p.N {
			break
		}
		r.widen(l, panel[n:], l.KTile(p.Data, in/kvpage.Tile))
		n += min(kvpage.Tile, p.N-in, to-from-n)
		if n%kvpage.Tile != 0 {
			break
		}
	}
	if first := (l.KeyDim - l.Index) * panelTokens; l.Index > 0 && !r.Index {
		clear(panel[first:])
	}
	return panel, n
}

// widen copies a tile to 16 columns of a panel.
func (r *Reader) widen(l kvpage.Layout, dst []float32, tile []byte) {
	if l.TokenMajor {
		tile = r.turnTile(l, tile)
	}
	if !l.K.Quantised() {
		kernels.PackKeys(kernels.KVElem(l.K), dst, tile, l.KeyDim)
		return
	}
	wide := r.wideTile(4 * l.KeyDim * kvpage.Tile)
	kernels.ExpandKeys(kernels.KVElem(l.K), wide, tile, l.KeyDim)
	kernels.PackKeys(kernels.KVF32, dst, wide, l.KeyDim)
}

// turnTile makes a tile [dim][16] of one whose keys lie token by token.
func (r *Reader) turnTile(l kvpage.Layout, tile []byte) []byte {
	r.rows = r.rows[:0]
	n := len(tile) / kvpage.Tile
	for j := range kvpage.Tile {
		r.rows = append(r.rows, tile[j*n:(j+1)*n])
	}
	turned := r.wideTile(len(tile))
	kernels.TurnKeys(kernels.KVElem(l.K), turned, r.rows, l.KeyDim)
	return turned
}

func (r *Reader) wideTile(n int) []byte {
	if cap(r.wide) < n {
		r.wide = make([]byte, n)
	}
	return r.wide[:n]
}

// Keys fills dst [to-from, KeyDim] with the keys of the tokens from..to-1 of a view.
func (r *Reader) Keys(v *View, from, to int, dst []float32) {
	dim := max(v.Layout.KeyDim, v.RecentLayout.KeyDim)
	for i := from; i < to; {
		l, pages, at := partOf(v, i)
		if at%kvpage.Tile != 0 || to-i < kvpage.Tile {
			row := dst[(i-from)*dim : (i-from+1)*dim]
			kvpage.ReadK(l, pages[at/l.Tokens].Data, at%l.Tokens, row)
			if !r.Index {
				clear(row[dim-l.Index:])
			}
			i++
			continue
		}
		panel, n := r.Panel(v, i, to)
		rows := dst[(i-from)*dim:]
		turnPanel(rows, panel, dim, n)
		i += n
	}
}

// turnPanel writes the n columns of a panel [dim][64] as rows [n][dim], four dimensions at a time: a row's cache line is then written
// a quarter as often, and one check of bounds serves four numbers.
func turnPanel(rows, panel []float32, dim, n int) {
	d := 0
	for ; d+4 <= dim; d += 4 {
		c0, c1 := panel[d*panelTokens:][:n], panel[(d+1)*panelTokens:][:n]
		c2, c3 := panel[(d+2)*panelTokens:][:n], panel[(d+3)*panelTokens:][:n]
		for j, x := range c0 {
			row := rows[j*dim+d:][:4:4]
			row[0], row[1], row[2], row[3] = x, c1[j], c2[j], c3[j]
		}
	}
	for ; d < dim; d++ {
		for j, x := range panel[d*panelTokens:][:n] {
			rows[j*dim+d] = x
		}
	}
}

// Values fills dst [to-from, ValueDim] with the values of the tokens from..to-1 of a view.
func (r *Reader) Values(v *View, from, to int, dst []float32) {
	dim := max(v.Layout.ValueDim, v.RecentLayout.ValueDim)
	for i := from; i < to; i++ {
		l, pages, at := partOf(v, i)
		row := dst[(i-from)*dim : (i-from+1)*dim]
		kvpage.ReadV(l, pages[at/l.Tokens].Data, at%l.Tokens, row)
		if l.ValueInKey && !r.Index {
			clear(row[dim-l.Index:])
		}
	}
}
