//go:build amd64 && !purego

package kernels

import (
	"math"
	"math/bits"
	"sync"

	"terrace/internal/kernels/amd64/avx2"
	"terrace/internal/kernels/amd64/avx512"
)

// attnIntegers is decode attention over int8 and int4 pages in integers (HasIntegerKV).
type attnIntegers struct {
	factors [2][GroupHeads]func(factors *float32, q []float32, keys [][]byte, masks []uint16, dim int)
	score   [2][GroupHeads]func(s, q []float32, factors *float32, keys [][]byte, masks []uint16, dim int, next [][]byte)
	weigh   [2][GroupHeads]func(out *float32, outBytes int, p *int16, unit, offset *float32, values [][]byte, size, from int, next [][]byte, part int)
	round   func(dst *int16, p, scales *float32, factor float32, tokens int)
	whole   bool // weigh takes a whole group of dimensions, of any heads
}

// At index type&1: int4, int8.
var integersAVX2 = attnIntegers{
	factors: [2][GroupHeads]func(*float32, []float32, [][]byte, []uint16, int){
		{avx2.QueryFactorsI4x1, avx2.QueryFactorsI4x2, avx2.QueryFactorsI4x3, avx2.QueryFactorsI4x4},
		{avx2.QueryFactorsI8x1, avx2.QueryFactorsI8x2, avx2.QueryFactorsI8x3, avx2.QueryFactorsI8x4}},
	score: [2][GroupHeads]func([]float32, []float32, *float32, [][]byte, []uint16, int, [][]byte){
		{avx2.ScoreIntegersI4x1, avx2.ScoreIntegersI4x2, avx2.ScoreIntegersI4x3, avx2.ScoreIntegersI4x4},
		{avx2.ScoreIntegersI8x1, avx2.ScoreIntegersI8x2, avx2.ScoreIntegersI8x3, avx2.ScoreIntegersI8x4}},
	weigh: [2][GroupHeads]func(*float32, int, *int16, *float32, *float32, [][]byte, int, int, [][]byte, int){
		{avx2.WeighIntegersI4x1, avx2.WeighIntegersI4x2, avx2.WeighIntegersI4x3, avx2.WeighIntegersI4x4},
		{avx2.WeighIntegersI8x1, avx2.WeighIntegersI8x2, avx2.WeighIntegersI8x3, avx2.WeighIntegersI8x4}},
	round: avx2.RoundWeights,
}

var integersAVX512 = attnIntegers{
	factors: [2][GroupHeads]func(*float32, []float32, [][]byte, []uint16, int){
		{avx512.QueryFactorsI4x1, avx512.QueryFactorsI4x2, avx512.QueryFactorsI4x3, avx512.QueryFactorsI4x4},
		{avx512.QueryFactorsI8x1, avx512.QueryFactorsI8x2, avx512.QueryFactorsI8x3, avx512.QueryFactorsI8x4}},
	score: [2][GroupHeads]func([]float32, []float32, *float32, [][]byte, []uint16, int, [][]byte){
		{avx512.ScoreIntegersI4x1, avx512.ScoreIntegersI4x2, avx512.ScoreIntegersI4x3, avx512.ScoreIntegersI4x4},
		{avx512.ScoreIntegersI8x1, avx512.ScoreIntegersI8x2, avx512.ScoreIntegersI8x3, avx512.ScoreIntegersI8x4}},
	weigh: [2][GroupHeads]func(*float32, int, *int16, *float32, *float32, [][]byte, int, int, [][]byte, int){
		{avx512.WeighIntegersI4x1, avx512.WeighIntegersI4x2, avx512.WeighIntegersI4x3, avx512.WeighIntegersI4x4},
		{avx512.WeighIntegersI8x1, avx512.WeighIntegersI8x2, avx512.WeighIntegersI8x3, avx512.WeighIntegersI8x4}},
	round: avx512.RoundWeights,
	whole: true,
}

// integerRun is how many tiles' weighted codes are summed in integers: 16 times so many products stay below 2^31.
const integerRun = 32

// integerScratch is what one call needs.
type integerScratch struct {
	queries, ofTiles, scales, minima []float32
	rounded                          []int16
	unit, offset                     [GroupHeads]float32
	factor                           float32
}

var integerScratches = sync.Pool{New: func() any { return new(integerScratch) }}

func room[T any](b *[]T, n int) []T {
	if cap(*b) < n {
		*b = make([]T, n)
	}
	return (*b)[:n]
}

// factors sets what numbers up to most are multiplied by before they are rounded, and by what their sums are afterwards: NaN where
// they are not finite.
func (x *integerScratch) factors(h int, most float32) {
	switch {
	case !(most <= 1e30):
		x.factor, x.unit[h] = 0, float32(math.NaN())
	case most < 1e-30:
		x.factor, x.unit[h] = 1, 1
	default:
		x.factor, x.unit[h] = integerMost/most, most/integerMost
	}
}

// scoreTiles is ScoreTilesThen of quantised tiles; dim is a multiple of 16 up to integerDims.
func (a *attnIntegers) scoreTiles(e KVElem, s, q []float32, keys [][]byte, masks []uint16, heads, dim int, next [][]byte) {
	x := integerScratches.Get().(*integerScratch)
	defer integerScratches.Put(x)
	queries, factors := room(&x.queries, heads*dim), room(&x.ofTiles, 3*GroupHeads*len(masks))
	x.turn(queries, q, heads, dim)
	a.factors[e&1][heads-1](&factors[0], queries, keys, masks, dim)
	a.score[e&1][heads-1](s, queries, &factors[0], keys, masks, dim, after(keys, next, e.KeyTileBytes(dim)))
	hideScores(s, masks, heads)
}

// turn writes q [dim][heads] as [heads][dim], dim a multiple of 4.
func (x *integerScratch) turn(queries, q []float32, heads, dim int) {
	for h := range heads {
		to, from := queries[h*dim:][:dim], q[h:]
		for d := 0; d+3 < len(to); d += 4 {
			four, at := to[d:][:4], from[d*heads:][:3*heads+1]
			four[0], four[1], four[2], four[3] = at[0], at[heads], at[2*heads], at[3*heads]
		}
	}
}

// weighTiles is WeighTilesThen of quantised tiles; dim is a multiple of integerGroup.
func (a *attnIntegers) weighTiles(e KVElem, out, p []float32, values [][]byte, masks []uint16, heads, dim int, next [][]byte) {
	x := integerScratches.Get().(*integerScratch)
	defer integerScratches.Put(x)
	size, n, weigh := e.ValueRowBytes(dim), len(masks), a.weigh[e&1][heads-1]
	for first := 0; first < n; first += integerRun {
		last := min(first+integerRun, n)
		tiles, mask, wanted, part := values[first:last], masks[first:last], next[min(first, len(next)):], 0
		for g := range dim / integerGroup {
			at, codes, turns := a.places(e, dim, g, heads)
			a.roundWeights(x, e, p[first*TileTokens:], n*TileTokens, tiles, mask, heads, size, at)
			for _, t := range turns {
				weigh(&out[g*integerGroup+t.dim], 4*dim, &x.rounded[0], &x.unit[0], &x.offset[0], tiles, size, codes+t.code, wanted, part)
				part += e.KeyTileBytes(integerGroup) / len(turns)
			}
		}
	}
}

// turn16 is what one call of the assembly takes of a group: from a dimension on, whose codes begin at a byte.
type turn16 struct{ dim, code int }

// On AVX2, of up to three heads, 32 dimensions a turn; of four, 16.
var (
	wholeTurn  = []turn16{{0, 0}}
	turns      = [2][]turn16{{{0, 0}, {32, 16}}, {{0, 0}, {32, 32}}}
	turnsOfAll = [2][]turn16{{{0, 0}, {8, 8}, {32, 16}, {40, 24}}, // int4: low halves, and 16 dimensions further on the high ones
		{{0, 0}, {16, 16}, {32, 32}, {48, 48}}}
)

// places are where a group's scale and codes lie in a token's value.
func (a *attnIntegers) places(e KVElem, dim, g, heads int) (scale, codes int, t []turn16) {
	switch t = turns[e&1]; {
	case a.whole:
		t = wholeTurn
	case heads == GroupHeads:
		t = turnsOfAll[e&1]
	}
	groups := dim / integerGroup
	if e == KVI4 {
		return 4 * g, 4*groups + g*integerGroup/2, t
	}
	return 2 * g, 2*groups + g*integerGroup, t
}

// roundWeights fills rounded [heads][16·tiles], unit and offset for the group of dimensions whose scales lie at a byte of each
// token; heads' weights p are stride apart. Tiles that are ahead are fetched.
func (a *attnIntegers) roundWeights(x *integerScratch, e KVElem, p []float32, stride int, tiles [][]byte, masks []uint16, heads, size, at int) {
	tokens := TileTokens * len(masks)
	scales := room(&x.scales, tokens)
	var minima *float32
	if e == KVI4 {
		m := room(&x.minima, tokens)
		minima = &m[0]
		avx2.ValueScalesMinima(&scales[0], minima, tiles, masks, size, at)
		hide(m, masks)
	} else {
		avx2.ValueScales(&scales[0], nil, tiles, masks, size, at)
	}
	hide(scales, masks)
	x.roundWeights(a.round, p, stride, scales, minima, heads)
}

// roundWeights fills rounded [heads][len(scales)], unit and offset for heads' weights p, stride apart; minima may be nil.
func (x *integerScratch) roundWeights(round func(dst *int16, p, scales *float32, factor float32, tokens int), p []float32, stride int, scales []float32, minima *float32, heads int) {
	tokens := len(scales)
	rounded := room(&x.rounded, heads*tokens)
	for h := range heads {
		most, sum := avx2.LargestWeight(&p[h*stride], &scales[0], minima, tokens)
		x.factors(h, most)
		x.offset[h] = sum
		round(&rounded[h*tokens], &p[h*stride], &scales[0], x.factor, tokens)
	}
}

// hide zeroes the numbers of tokens that are not read.
func hide(x []float32, masks []uint16) {
	for t, m := range masks {
		for m := ^m; m != 0; m &= m - 1 {
			x[t*TileTokens+bits.TrailingZeros16(m)] = 0
		}
	}
}
