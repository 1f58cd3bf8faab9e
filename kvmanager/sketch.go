package kvmanager

import (
	"math"

	"github.com/x448/float16"

	"terrace/internal/kernels"
	"terrace/internal/kvpage"
)

// sketchTile is the number of columns (tokens or blocks) of one tile of a sketch.
const sketchTile = kvpage.Tile

// Sketch is a cheap copy of one layer and KV head's keys that selecting policies scan instead of the keys: columns of some
// rows each, kept in the same tiles of 16 as keys, so that the same kernel multiplies with them. A column stands for a
// token (half, projected) or for a block of tokens (one bound of them). Small integers are Codes.
type Sketch struct {
	elem    kvpage.Elem
	layout  kvpage.Layout // of a tile: KeyDim rows
	rows    int
	columns int
	data    [][]byte    // tiles in memory: those behind the ones in below
	below   *TileStream // takes every tile but the last; nil = all stay
	at      []int32     // where those begin
	masks   []uint16
	scratch []float32
	padded  []float32 // a column, zeros behind its rows
}

// NewSketch returns an empty sketch of rows numbers a column in an element type. Tiles have rows of zeros up to the next
// multiple of 4, which is what the kernels take.
func NewSketch(elem kvpage.Elem, rows int) *Sketch {
	dim := (rows + 3) &^ 3
	return &Sketch{elem: elem, rows: rows, padded: make([]float32, dim),
		layout: kvpage.Layout{K: elem, V: kvpage.F16, KeyDim: dim, ValueDim: 1, Tokens: sketchTile}}
}

// Columns is the number of columns.
func (s *Sketch) Columns() int { return s.columns }

// Bytes is the memory the sketch holds.
func (s *Sketch) Bytes() int64 {
	return int64(len(s.data))*int64(s.layout.KTileBytes()) + 4*int64(cap(s.at))
}

// KeepBelow has an empty sketch hand its full tiles to a stream: all but the last, where alone columns may still change.
func (s *Sketch) KeepBelow(t *TileStream) { s.below = t }

// Reset forgets every column and keeps the memory.
func (s *Sketch) Reset() {
	s.columns = 0
	if s.below != nil {
		s.at, s.masks, s.data = s.at[:0], s.masks[:0], s.data[:0]
	}
}

// column makes place for column i (at most one past the last) and returns its tile and place.
func (s *Sketch) column(i int) (tile []byte, at int) {
	for len(s.at)+len(s.data) <= i/sketchTile {
		if s.below != nil && len(s.data) > 0 {
			s.at = append(s.at, s.below.append(s.data[0][:s.storedBytes()]))
			clear(s.data[0])
		} else {
			s.data = append(s.data, make([]byte, s.layout.KTileBytes()))
		}
		s.masks = append(s.masks, 0)
	}
	if i >= s.columns {
		s.columns = i + 1
		s.masks[i/sketchTile] = uint16(1<<(i%sketchTile+1) - 1)
	}
	return s.data[i/sketchTile-len(s.at)], i % sketchTile
}

// storedBytes is the size of a tile without its rows of zeros.
func (s *Sketch) storedBytes() int { return s.layout.KTileBytes() / s.layout.KeyDim * s.rows }

// Put writes a column of a float sketch.
func (s *Sketch) Put(i int, x []float32) {
	tile, at := s.column(i)
	copy(s.padded, x[:s.rows])
	kvpage.PutK(s.layout, tile, at, s.padded)
}

// storedTiles is how many tiles from the lower tier are laid out at a time.
const storedTiles = 64

// Score writes q·column to dst [heads][columns] for q [heads, rows], all columns.
func (s *Sketch) Score(dst []float32, q []float32, heads int) {
	if len(s.at) > 0 && !s.below.of.ready() {
		clear(dst[:heads*s.columns])
		return
	}
	for first := 0; first < len(s.at); first += storedTiles {
		last := min(first+storedTiles, len(s.at))
		s.scoreTiles(dst, q, heads, first, s.below.tiles(s.at[first:last], s.storedBytes(), s.layout.KTileBytes()))
	}
	s.scoreTiles(dst, q, heads, len(s.at), s.data[:(s.columns+sketchTile-1)/sketchTile-len(s.at)])
}

// scoreTiles is Score of the tiles from number first on.
func (s *Sketch) scoreTiles(dst, q []float32, heads, first int, tiles [][]byte) {
	width, lo := len(tiles)*sketchTile, first*sketchTile
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

// BlockBounds keeps the element-wise minimum and maximum of each block of tokens (Quest, arXiv 2406.10774; LeoAM's
// abstracts), in half precision rounded outwards, so that a bound never lies inside.
type BlockBounds struct {
	Block    int
	low      *Sketch
	high     *Sketch
	lo, hi   []float32 // of the block in progress
	out      []float32
	tokens   int
	posQ     []float32
	products []float32
}

// NewBlockBounds returns bounds of blocks of that many tokens, for keys of dim numbers.
func NewBlockBounds(block, dim int) *BlockBounds {
	return &BlockBounds{Block: block, low: NewSketch(kvpage.F16, dim), high: NewSketch(kvpage.F16, dim),
		lo: make([]float32, dim), hi: make([]float32, dim), out: make([]float32, dim)}
}

// KeepBelow has empty bounds hand what is full to a stream.
func (b *BlockBounds) KeepBelow(t *TileStream) {
	b.low.KeepBelow(t)
	b.high.KeepBelow(t)
}

// Bytes is the memory the bounds hold.
func (b *BlockBounds) Bytes() int64 { return b.low.Bytes() + b.high.Bytes() }

// Reset forgets every block.
func (b *BlockBounds) Reset() {
	b.tokens = 0
	b.low.Reset()
	b.high.Reset()
}

// Add takes the keys of the next n tokens: column j of keys [dim][stride] is a token.
func (b *BlockBounds) Add(keys []float32, stride, n int) {
	for j := 0; j < n; {
		m := min(n-j, b.Block-b.tokens%b.Block)
		fresh := b.tokens%b.Block == 0
		for d := range b.lo {
			row := keys[d*stride+j:][:m]
			if fresh {
				b.lo[d], b.hi[d] = row[0], row[0]
			}
			lo, hi := b.lo[d], b.hi[d]
			for _, x := range row {
				lo, hi = min(lo, x), max(hi, x)
			}
			b.lo[d], b.hi[d] = lo, hi
		}
		i := b.tokens / b.Block
		b.low.Put(i, b.outward(b.lo, -1))
		b.high.Put(i, b.outward(b.hi, 1))
		b.tokens += m
		j += m
	}
}

// outward rounds a row to half precision away from the inside.
func (b *BlockBounds) outward(x []float32, sign int) []float32 {
	for d, v := range x {
		b.out[d] = outward(v, sign)
	}
	return b.out
}

// Blocks is the number of blocks, the last possibly not full.
func (b *BlockBounds) Blocks() int { return b.low.columns }

// Score writes Σ max(q·min, q·max) to dst [heads][blocks] for q [heads, dim]: the positive part of q times the maxima plus
// the negative part times the minima.
func (b *BlockBounds) Score(dst, q []float32, heads int) {
	n := b.Blocks()
	b.posQ = append(b.posQ[:0], q[:heads*len(b.lo)]...)
	if cap(b.products) < heads*n {
		b.products = make([]float32, heads*n+heads*n/4)
	}
	for i, x := range b.posQ {
		b.posQ[i] = max(x, 0)
	}
	b.high.Score(dst, b.posQ, heads)
	for i, x := range q[:heads*len(b.lo)] {
		b.posQ[i] = min(x, 0)
	}
	b.low.Score(b.products[:heads*n], b.posQ, heads)
	kernels.Add(dst[:heads*n], b.products[:heads*n])
}

// outward rounds to half precision away from the inside: down for sign -1, up for 1.
func outward(x float32, sign int) float32 {
	h := float16.Fromfloat32(x).Bits()
	y := float16.Frombits(h).Float32()
	if (sign > 0 && y >= x) || (sign < 0 && y <= x) || math.IsNaN(float64(x)) {
		return y
	}
	// One step in the direction of the sign: half precision counts up in magnitude.
	switch {
	case y == 0:
		h = 1
		if sign < 0 {
			h = 0x8001
		}
	case (y > 0) == (sign > 0):
		h++
	default:
		h--
	}
	return float16.Frombits(h).Float32()
}
