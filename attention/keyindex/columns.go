package keyindex

import (
	"slices"

	"terrace/internal/kernels"
	"terrace/internal/kvpage"
)

// tileColumns is the number of columns (tokens or blocks) of one tile of an index.
const tileColumns = kvpage.Tile

// Columns is an approximate copy of one layer and KV head's keys that selecting policies scan instead of the keys: columns of some
// rows each, kept in the same tiles of 16 as keys, so that the same kernel multiplies with them. A column stands for a
// token (half, projected) or for a block of tokens (one bound of them). Small integers are Codes.
type Columns struct {
	elem    kvpage.Elem
	layout  kvpage.Layout // of a tile: KeyDim rows
	rows    int
	columns int
	data    [][]byte // tiles in memory: those behind the ones in below
	below   Stream   // takes every tile but the last; nil = all stay
	at      []int32  // where those begin
	masks   []uint16
	scratch []float32
	padded  []float32 // a column, zeros behind its rows

	short    []byte // a few rows of some tiles
	rowTiles [][]byte
}

// NewColumns returns an empty one of rows numbers a column in an element type. Tiles have rows of zeros up to the next
// multiple of 4, which is what the kernels take.
func NewColumns(elem kvpage.Elem, rows int) *Columns {
	dim := (rows + 3) &^ 3
	return &Columns{elem: elem, rows: rows, padded: make([]float32, dim),
		layout: kvpage.Layout{K: elem, V: kvpage.F16, KeyDim: dim, ValueDim: 1, Tokens: tileColumns}}
}

// Len is the number of columns.
func (s *Columns) Len() int { return s.columns }

// Bytes is the memory that the columns take.
func (s *Columns) Bytes() int64 {
	return int64(len(s.data))*int64(s.layout.KTileBytes()) + 4*int64(cap(s.at))
}

// KeepBelow has an empty one hand its full tiles to a stream: all but the last, where alone columns may still change.
func (s *Columns) KeepBelow(t Stream) { s.below = t }

// Reset forgets every column and keeps the memory.
func (s *Columns) Reset() {
	s.columns = 0
	if s.below != nil {
		s.at, s.masks, s.data = s.at[:0], s.masks[:0], s.data[:0]
	}
}

// Cut forgets the columns from number n on.
func (s *Columns) Cut(n int) { s.columns = min(s.columns, n) }

// column makes place for column i (at most one past the last) and returns its tile and place.
func (s *Columns) column(i int) (tile []byte, at int) {
	for len(s.at)+len(s.data) <= i/tileColumns {
		if s.below != nil && len(s.data) > 0 {
			s.at = append(s.at, s.below.Append(s.data[0][:s.storedBytes()]))
			clear(s.data[0])
		} else {
			s.data = append(s.data, make([]byte, s.layout.KTileBytes()))
		}
		s.masks = append(s.masks, 0)
	}
	if i >= s.columns {
		s.columns = i + 1
		s.masks[i/tileColumns] = uint16(1<<(i%tileColumns+1) - 1)
	}
	return s.data[i/tileColumns-len(s.at)], i % tileColumns
}

// storedBytes is the size of a tile without its rows of zeros.
func (s *Columns) storedBytes() int { return s.layout.KTileBytes() / s.layout.KeyDim * s.rows }

// Put writes a column of a float sketch.
func (s *Columns) Put(i int, x []float32) {
	tile, at := s.column(i)
	copy(s.padded, x[:s.rows])
	kvpage.PutK(s.layout, tile, at, s.padded)
}

// storedTiles is how many tiles from the lower tier are laid out at a time.
const storedTiles = 64

// Score writes q·column to dst [heads][columns] for q [heads, rows], all columns.
func (s *Columns) Score(dst []float32, q []float32, heads int) {
	if len(s.at) > 0 && !s.below.Ready() {
		clear(dst[:heads*s.columns])
		return
	}
	for first := 0; first < len(s.at); first += storedTiles {
		last := min(first+storedTiles, len(s.at))
		s.scoreTiles(dst, q, heads, first, s.below.Tiles(s.at[first:last], s.storedBytes(), s.layout.KTileBytes()))
	}
	s.scoreTiles(dst, q, heads, len(s.at), s.data[:(s.columns+tileColumns-1)/tileColumns-len(s.at)])
}

// scoreTiles is Score of the tiles from number first on.
func (s *Columns) scoreTiles(dst, q []float32, heads, first int, tiles [][]byte) {
	width, lo := len(tiles)*tileColumns, first*tileColumns
	hi := min(lo+width, s.columns)
	if width == 0 {
		return
	}
	for h := 0; h < heads; h += kernels.GroupHeads {
		n := min(kernels.GroupHeads, heads-h)
		need := n*width + n*s.layout.KeyDim
		if cap(s.scratch) < need {
			s.scratch = make([]float32, need+need/4)
		}
		out, turned := s.scratch[:n*width], s.scratch[n*width:need]
		for i := range n {
			for d := range s.rows {
				turned[d*n+i] = q[(h+i)*s.rows+d]
			}
		}
		clear(turned[s.rows*n:])
		kernels.ScoreTiles(kernels.KVElem(s.elem), out, turned, tiles, s.masks[first:first+len(tiles)], n, s.layout.KeyDim)
		for i := range n {
			copy(dst[(h+i)*s.columns+lo:(h+i)*s.columns+hi], out[i*width:])
		}
	}
}

// Rows is how many numbers a column has.
func (s *Columns) Rows() int { return s.rows }

// ScoreDims writes q·column to dst [heads][columns] over some rows of each column alone: dims of them, and q [heads, few], zero
// past dims; few is what the kernels take. The numbers are those of a scan of the cache's own tiles (Tiles.Dims).
func (s *Columns) ScoreDims(dst []float32, dims []int32, q []float32, heads, few int) {
	if len(s.at) > 0 && !s.below.Ready() {
		clear(dst[:heads*s.columns])
		return
	}
	for first := 0; first < len(s.at); first += storedTiles {
		last := min(first+storedTiles, len(s.at))
		s.dimsOf(dst, dims, q, heads, few, first, s.below.Tiles(s.at[first:last], s.storedBytes(), s.layout.KTileBytes()))
	}
	s.dimsOf(dst, dims, q, heads, few, len(s.at), s.data[:(s.columns+tileColumns-1)/tileColumns-len(s.at)])
}

// dimsOf is ScoreDims of the tiles from number first on.
func (s *Columns) dimsOf(dst []float32, dims []int32, q []float32, heads, few, first int, tiles [][]byte) {
	row := kvpage.Tile * s.elem.Bits() / 8
	size := few * row
	s.short = slices.Grow(s.short[:0], len(tiles)*size)[:len(tiles)*size]
	s.rowTiles = s.rowTiles[:0]
	for i, tile := range tiles {
		out := s.short[i*size : (i+1)*size : (i+1)*size]
		for j := range few {
			d := int(dims[min(j, len(dims)-1)]) // the query is zero past the last
			copy(out[j*row:(j+1)*row], tile[d*row:])
		}
		s.rowTiles = append(s.rowTiles, out)
	}
	width, lo := len(tiles)*tileColumns, first*tileColumns
	hi := min(lo+width, s.columns)
	if width == 0 {
		return
	}
	if need := kernels.GroupHeads * (width + few); cap(s.scratch) < need {
		s.scratch = make([]float32, need+need/4)
	}
	for h := 0; h < heads; h += kernels.GroupHeads {
		n := min(kernels.GroupHeads, heads-h)
		out, turned := s.scratch[:n*width], s.scratch[n*width:n*(width+few)]
		kernels.PackQuery(turned, q[h*few:(h+n)*few], n, few, 1)
		kernels.ScoreTiles(kernels.KVElem(s.elem), out, turned, s.rowTiles, s.masks[first:first+len(tiles)], n, few)
		for i := range n {
			copy(dst[(h+i)*s.columns+lo:(h+i)*s.columns+hi], out[i*width:])
		}
	}
}
