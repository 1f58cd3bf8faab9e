//go:build amd64 && !purego

package kernels

import (
	"math"
	"math/bits"
	"sync"

	"terrace/internal/kernels/amd64/avx2"
)

// attnIntegers is decode attention over int8 and int4 pages in integers (HasIntegerKV).
type attnIntegers struct {
	score [2][GroupHeads]func(s, q []float32, scratch *int16, unit *float32, keys [][]byte, masks []uint16, dim, ahead int)
	weigh [2][GroupHeads]func(out *float32, outBytes int, p *int16, unit, offset *float32, values [][]byte, masks []uint16, size, from, ahead int)
}

// At index type&1: int4, int8.
var integersAVX2 = attnIntegers{
	score: [2][GroupHeads]func([]float32, []float32, *int16, *float32, [][]byte, []uint16, int, int){
		{avx2.ScoreIntegersI4x1, avx2.ScoreIntegersI4x2, avx2.ScoreIntegersI4x3, avx2.ScoreIntegersI4x4},
		{avx2.ScoreIntegersI8x1, avx2.ScoreIntegersI8x2, avx2.ScoreIntegersI8x3, avx2.ScoreIntegersI8x4}},
	weigh: [2][GroupHeads]func(*float32, int, *int16, *float32, *float32, [][]byte, []uint16, int, int, int){
		{avx2.WeighIntegersI4x1, avx2.WeighIntegersI4x2, avx2.WeighIntegersI4x3, avx2.WeighIntegersI4x4},
		{avx2.WeighIntegersI8x1, avx2.WeighIntegersI8x2, avx2.WeighIntegersI8x3, avx2.WeighIntegersI8x4}},
}

const (
	integerDims  = 512 // sums of so many products of integerMost and 127 stay below 2^31
	integerTiles = 32  // and of 16 times so many tokens
	integerGroup = 64  // dimensions of a value that share a scale
)

// integerScratch is what one call needs.
type integerScratch struct {
	floats, scales, minima []float32
	rounded                []int16
	unit, offset           [GroupHeads]float32
	factor                 float32
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

// scoreTiles is ScoreTiles of quantised tiles; dim is a multiple of 16 up to integerDims.
func (a *attnIntegers) scoreTiles(e KVElem, s, q []float32, keys [][]byte, masks []uint16, heads, dim int) {
	x := integerScratches.Get().(*integerScratch)
	defer integerScratches.Put(x)
	scaled, rounded, scales := room(&x.floats, heads*dim), room(&x.rounded, heads*dim), room(&x.scales, dim)
	avx2.LargestScales(&scales[0], keys, dim)
	for h := range heads {
		most := float32(0)
		for d, scale := range scales {
			most = max(most, scale*q[d*heads+h], -scale*q[d*heads+h])
		}
		x.factors(h, most)
		for d := range dim {
			scaled[h*dim+d] = q[d*heads+h] * x.factor
		}
	}
	a.score[e&1][heads-1](s, scaled, &rounded[0], &x.unit[0], keys, masks, dim, ahead(e.KeyTileBytes(dim)))
	for t, m := range masks {
		for m := ^m; m != 0; m &= m - 1 {
			for h := range heads {
				s[(h*len(masks)+t)*TileTokens+bits.TrailingZeros16(m)] = float32(math.Inf(-1))
			}
		}
	}
}

// weighTiles is WeighTiles of quantised tiles; dim is a multiple of integerGroup.
func (a *attnIntegers) weighTiles(e KVElem, out, p []float32, values [][]byte, masks []uint16, heads, dim int) {
	x := integerScratches.Get().(*integerScratch)
	defer integerScratches.Put(x)
	size, n, weigh := e.ValueRowBytes(dim), len(masks), a.weigh[e&1][heads-1]
	for first := 0; first < n; first += integerTiles {
		last := min(first+integerTiles, n)
		tiles, mask := values[first:last], masks[first:last]
		for g := range dim / integerGroup {
			at, codes, turns := x.places(e, dim, g)
			x.roundWeights(e, p[first*TileTokens:], n*TileTokens, tiles, mask, heads, size, at)
			for _, t := range turns {
				weigh(&out[g*integerGroup+t.dim], 4*dim, &x.rounded[0], &x.unit[0], &x.offset[0], tiles, mask, size, codes+t.code, ahead(TileTokens*size))
			}
		}
	}
}

// turn is what one call of the assembly takes of a group: from a dimension on, whose codes begin at a byte.
type turn16 struct{ dim, code int }

var (
	turns8 = []turn16{{0, 0}, {16, 16}, {32, 32}, {48, 48}}
	turns4 = []turn16{{0, 0}, {8, 8}, {32, 16}, {40, 24}} // low halves, and 16 dimensions further on the high ones
)

// places are where a group's scale and codes lie in a token's value.
func (x *integerScratch) places(e KVElem, dim, g int) (scale, codes int, turns []turn16) {
	groups := dim / integerGroup
	if e == KVI4 {
		return 4 * g, 4*groups + g*integerGroup/2, turns4
	}
	return 2 * g, 2*groups + g*integerGroup, turns8
}

// roundWeights fills rounded [heads][16·tiles], unit and offset for the group of dimensions whose scales lie at a byte of each
// token; heads' weights p are stride apart.
func (x *integerScratch) roundWeights(e KVElem, p []float32, stride int, tiles [][]byte, masks []uint16, heads, size, at int) {
	tokens := TileTokens * len(masks)
	rounded, scales := room(&x.rounded, heads*tokens), room(&x.scales, tokens)
	var minima *float32
	if e == KVI4 {
		m := room(&x.minima, tokens)
		minima = &m[0]
		avx2.ValueScalesMinima(&scales[0], minima, tiles, size, at)
		hide(m, masks)
	} else {
		avx2.ValueScales(&scales[0], nil, tiles, size, at)
	}
	hide(scales, masks)
	for h := range heads {
		most, sum := avx2.LargestWeight(&p[h*stride], &scales[0], minima, tokens)
		x.factors(h, most)
		x.offset[h] = sum
		avx2.RoundWeights(&rounded[h*tokens], &p[h*stride], &scales[0], x.factor, tokens)
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

// mostTokens reports whether half of the tokens or more are read: integers take whole tiles.
func mostTokens(masks []uint16) bool {
	n := 0
	for _, m := range masks {
		n += bits.OnesCount16(m)
	}
	return 2*n >= TileTokens*len(masks) && n > 0
}
