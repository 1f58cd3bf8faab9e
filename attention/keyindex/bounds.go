package keyindex

import (
	"fmt"
	"math"
	"slices"

	"github.com/x448/float16"

	"terrace/internal/kernels"
	"terrace/internal/kvpage"
)

// Bounds keeps the element-wise minimum and maximum of each block of tokens (Quest, arXiv 2406.10774; LeoAM's
// abstracts), in half precision rounded outwards, so that a bound never lies inside.
type Bounds struct {
	Block    int
	low      *Columns
	high     *Columns
	lo, hi   []float32 // of the block in progress
	out      []float32
	tokens   int
	posQ     []float32
	products []float32
	dims     []int32
}

// NewBounds returns bounds of blocks of that many tokens, for keys of dim numbers.
func NewBounds(block, dim int) *Bounds {
	return &Bounds{Block: block, low: NewColumns(kvpage.F16, dim), high: NewColumns(kvpage.F16, dim),
		lo: make([]float32, dim), hi: make([]float32, dim), out: make([]float32, dim)}
}

// KeepBelow has empty bounds hand what is full to a stream.
func (b *Bounds) KeepBelow(t Stream) {
	b.low.KeepBelow(t)
	b.high.KeepBelow(t)
}

// Bytes is the memory the bounds hold.
func (b *Bounds) Bytes() int64 { return b.low.Bytes() + b.high.Bytes() }

// Reset forgets every block.
func (b *Bounds) Reset() {
	b.tokens = 0
	b.low.Reset()
	b.high.Reset()
}

// Add takes the keys of the next n tokens: column j of keys [dim][stride] is a token.
func (b *Bounds) Add(keys []float32, stride, n int) {
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
func (b *Bounds) outward(x []float32, sign int) []float32 {
	for d, v := range x {
		b.out[d] = outward(v, sign)
	}
	return b.out
}

// Blocks is the number of blocks, the last possibly not full.
func (b *Bounds) Blocks() int { return b.low.columns }

// Score writes Σ max(q·min, q·max) to dst [heads][blocks] for q [heads, dim]: the positive part of q times the maxima plus
// the negative part times the minima.
func (b *Bounds) Score(dst, q []float32, heads int) {
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

// ScoreSides writes to dst [heads][blocks], for q [heads, dim], the sums over some dimensions of q times the minima where low says so, else
// times the maxima.
func (b *Bounds) ScoreSides(dst []float32, dims []int32, low []bool, q []float32, heads int) {
	n := b.Blocks()
	b.products = slices.Grow(b.products[:0], heads*n)[:heads*n]
	clear(dst[:heads*n])
	for _, side := range []struct {
		of  *Columns
		low bool
	}{{b.high, false}, {b.low, true}} {
		b.dims = b.dims[:0]
		for i, d := range dims {
			if low[i] == side.low {
				b.dims = append(b.dims, d)
			}
		}
		if len(b.dims) == 0 {
			continue
		}
		few := (len(b.dims) + 15) &^ 15
		b.posQ = append(b.posQ[:0], make([]float32, heads*few)...)
		for h := range heads {
			for i, d := range b.dims {
				b.posQ[h*few+i] = q[h*len(b.lo)+int(d)]
			}
		}
		side.of.ScoreDims(b.products, b.dims, b.posQ, heads, few)
		kernels.Add(dst[:heads*n], b.products)
	}
}

// Bounds implements policy.Scorer.
func (h *Head) Bounds(_, block int, only []int32, q []float32, rows int, dst []float32) {
	b := boundsOf(h.bounds, block)
	h.countBounds(b, only)
	if only == nil {
		b.Score(dst, q, rows)
		return
	}
	n := b.Blocks()
	h.scratch.sums = sized(h.scratch.sums, rows*n)
	b.Score(h.scratch.sums, q, rows)
	for r := range rows {
		for i, j := range only {
			dst[r*len(only)+i] = h.scratch.sums[r*n+int(j)]
		}
	}
}

// SideDims implements policy.Scorer.
func (h *Head) SideDims(_, block int, dims []int32, low []bool, q []float32, rows int, dst []float32) {
	b := boundsOf(h.bounds, block)
	h.readBytes += int64(2 * len(dims) * b.Blocks())
	b.ScoreSides(dst, dims, low, q, rows)
}

// boundsOf are those of all that are of blocks of a size.
func boundsOf(all []*Bounds, block int) *Bounds {
	for _, b := range all {
		if b.Block == block {
			return b
		}
	}
	panic(fmt.Sprintf("keyindex: bounds of blocks of %d tokens were not declared", block))
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
