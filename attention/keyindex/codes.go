package keyindex

import (
	"math"

	"terrace/internal/kernels"
	"terrace/internal/kvpage"
)

// ChunkTokens is how many tokens of Codes lie in one piece of memory, which one task scans.
const ChunkTokens = 1024

// Codes is an 8-bit or 4-bit copy of one layer and KV head's keys that selecting policies scan instead of the keys: a small
// integer a dimension in kvpage's code tiles, and a scale a token where tokens have their own. Different chunks may be
// scored at once; nothing else may happen meanwhile.
type Codes struct {
	elem   kvpage.Elem // I8 or I4
	dim    int
	tokens int
	chunks [][]byte
	scales []float32     // [16·tiles]; empty where tokens have none of their own
	sums   []int32       // scratch
	huge   *kernels.Huge // of whole chunks; nil = the heap
}

// NewCodes returns an empty copy in I8 or I4 for keys of dim numbers.
func NewCodes(elem kvpage.Elem, dim int) *Codes { return &Codes{elem: elem, dim: dim} }

func (c *Codes) kernel() kernels.CodeElem {
	if c.elem == kvpage.I4 {
		return kernels.Codes4
	}
	return kernels.Codes8
}

// UseHuge has whole chunks of 8-bit and 4-bit keys lie in huge pages: a scan reads them from end to end at each step, and with
// pages of 4 KiB would walk the system's page table 16 times a chunk. It is called before the first Refresh.
func (x *Index) UseHuge(h *kernels.Huge) {
	for i := range x.heads {
		if c := x.heads[i].codes; c != nil {
			c.huge = h
		}
	}
}

// Tokens is the number of tokens.
func (c *Codes) Tokens() int { return c.tokens }

// Bytes is the memory that the tokens take, scales included.
func (c *Codes) Bytes() (n int64) {
	for _, chunk := range c.chunks {
		n += int64(cap(chunk))
	}
	return n + 4*int64(cap(c.scales))
}

// Reset forgets every token and keeps the memory.
func (c *Codes) Reset() {
	c.tokens, c.scales = 0, c.scales[:0]
	for i := range c.chunks {
		c.chunks[i] = c.chunks[i][:0]
	}
}

// Cut forgets the tokens from number n on and keeps the memory.
func (c *Codes) Cut(n int) {
	tiles := (n + kvpage.Tile - 1) / kvpage.Tile
	for i, left := 0, tiles; i < len(c.chunks); i++ {
		most := min(left, ChunkTokens/kvpage.Tile)
		c.chunks[i] = c.chunks[i][:most*kvpage.CodeTileBytes(c.elem, c.dim)]
		left -= most
	}
	c.tokens, c.scales = n, c.scales[:min(len(c.scales), tiles*kvpage.Tile)]
}

// Put writes the integers of token i (at most one past the last): -127..127 for int8, -7..7 for int4.
func (c *Codes) Put(i int, codes []int8) {
	c.extend(i)
	kvpage.PutCode(c.elem, c.tile(i), i%kvpage.Tile, codes)
	c.tokens = max(c.tokens, i+1)
}

// Get is the integers of token i.
func (c *Codes) Get(i int, codes []int8) { kvpage.ReadCode(c.elem, c.tile(i), i%kvpage.Tile, codes) }

// tile is the tile of token i, which is there.
func (c *Codes) tile(i int) []byte {
	size := kvpage.CodeTileBytes(c.elem, c.dim)
	at := i % ChunkTokens / kvpage.Tile * size
	return c.chunks[i/ChunkTokens][at : at+size]
}

// putTile writes a whole tile of tokens from i on, the next ones.
func (c *Codes) putTile(i int, tile []byte) {
	c.extend(i)
	copy(c.tile(i), tile)
	c.tokens = i + kvpage.Tile
}

// extend makes place for token i's tile.
func (c *Codes) extend(i int) {
	size := kvpage.CodeTileBytes(c.elem, c.dim)
	at := i / ChunkTokens
	if at == len(c.chunks) {
		c.chunks = append(c.chunks, nil)
	}
	if need := (i%ChunkTokens/kvpage.Tile + 1) * size; len(c.chunks[at]) < need {
		c.chunks[at] = c.longer(c.chunks[at], need, ChunkTokens/kvpage.Tile*size)
	}
}

// PutScale gives token i, which Put wrote, a scale of its own.
func (c *Codes) PutScale(i int, scale float32) {
	for len(c.scales) <= i {
		c.scales = append(c.scales, make([]float32, kvpage.Tile)...)
	}
	c.scales[i] = scale
}

// longer makes a chunk longer, twice as long where it has to move, up to most.
func (c *Codes) longer(chunk []byte, need, most int) []byte {
	if cap(chunk) >= need {
		return chunk[:need]
	}
	size := min(most, max(2*cap(chunk), need))
	if size == most && c.huge != nil {
		longer := c.huge.Take(most)
		copy(longer, chunk)
		return longer[:need]
	}
	longer := make([]byte, need, size)
	copy(longer, chunk)
	return longer
}

// Chunks is the number of pieces that Score and Products take.
func (c *Codes) Chunks() int { return (c.tokens + ChunkTokens - 1) / ChunkTokens }

// Quantize turns queries [rows, dim] into 8 bits, each with its own scale, absmax to 127: q8 [rows, QueryDim] and unit
// [rows].
func (c *Codes) Quantize(q8 []int8, unit, q []float32) {
	n := c.QueryDim()
	for r := range unit {
		row, dst := q[r*c.dim:(r+1)*c.dim], q8[r*n:(r+1)*n]
		unit[r] = kernels.MaxAbs(row) / 127
		clear(dst)
		if unit[r] == 0 {
			continue
		}
		inverse := 1 / unit[r]
		for d, x := range row {
			dst[d] = nearest(x * inverse)
		}
	}
}

// QueryDim is the length of a query in 8 bits: dim, and zeros to whole groups.
func (c *Codes) QueryDim() int { return c.kernel().CodeDim(c.dim) }

// Stride is the length of a row of scores: the tokens, and room to a whole tile.
func (c *Codes) Stride() int { return (c.tokens + kvpage.Tile - 1) / kvpage.Tile * kvpage.Tile }

// Score writes one chunk's products with queries as Quantize made them, times their units and the tokens' scales, to
// dst [rows][Stride].
func (c *Codes) Score(dst []float32, q8 []int8, unit []float32, chunk int) {
	codes, first, scales := c.chunks[chunk], chunk*ChunkTokens, []float32(nil)
	if len(c.scales) > 0 {
		scales = c.scales[first:]
	}
	stride, n := c.Stride(), c.QueryDim()
	for r := 0; r < len(unit); r += kernels.GroupHeads {
		rows := min(kernels.GroupHeads, len(unit)-r)
		kernels.ScoreCodes(c.kernel(), dst[r*stride+first:], stride, q8[r*n:(r+rows)*n], codes, rows, c.dim, unit[r:r+rows], scales)
	}
}

// Products adds the integer products of q8 [QueryDim] with every token to dst [tokens].
func (c *Codes) Products(dst []int32, q8 []int8) {
	if c.sums == nil {
		c.sums = make([]int32, ChunkTokens)
	}
	for i := range c.Chunks() {
		c.AddProducts(dst[i*ChunkTokens:], c.sums, q8, i)
	}
}

// AddProducts is Products of one chunk: dst holds its tokens, sums is scratch of ChunkTokens.
func (c *Codes) AddProducts(dst, sums []int32, q8 []int8, chunk int) {
	codes := c.chunks[chunk]
	width := len(codes) / kvpage.CodeTileBytes(c.elem, c.dim) * kvpage.Tile
	kernels.DotCodes(c.kernel(), sums[:width], width, q8, codes, 1, c.dim)
	for j, x := range sums[:min(width, c.tokens-chunk*ChunkTokens)] {
		dst[j] += x
	}
}

// nearest rounds a number of at most 127 and a bit in magnitude, half to even, within -127..127.
func nearest(x float32) int8 {
	const rounder = 12582912 // 1.5·2^23: its sums' low bits are the nearest integer
	n := int32(math.Float32bits(x+rounder)) - int32(math.Float32bits(rounder))
	return int8(max(-127, min(127, n)))
}
