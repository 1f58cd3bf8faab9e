//go:build amd64 && !purego

package kernels

import (
	"math"
	"math/bits"

	"terrace/internal/kernels/amd64/avx2"
)

// attnLow is decode attention over int3 and int2 pages in integers. At index type-KVI3.
type attnLow struct {
	factors [GroupHeads]func(factors *float32, q []float32, keys [][]byte, masks []uint16, dim int)
	score   [2][GroupHeads]func(s *float32, sBytes int, q *int16, factors *float32, keys [][]byte, codes, dim int, next [][]byte)
	weigh   [2][GroupHeads]func(out *float32, outBytes int, p *int16, unit, offset *float32, values [][]byte, size, from int, next [][]byte, part int)
}

// lowAVX2 is of AVX-512's path too.
var lowAVX2 = attnLow{
	// A group's scales and minima lie as those of a tile of int4.
	factors: [GroupHeads]func(*float32, []float32, [][]byte, []uint16, int){avx2.QueryFactorsI4x1, avx2.QueryFactorsI4x2, avx2.QueryFactorsI4x3, avx2.QueryFactorsI4x4},
	score: [2][GroupHeads]func(*float32, int, *int16, *float32, [][]byte, int, int, [][]byte){
		{avx2.ScoreI3x1, avx2.ScoreI3x2, avx2.ScoreI3x3, avx2.ScoreI3x4},
		{avx2.ScoreI2x1, avx2.ScoreI2x2, avx2.ScoreI2x3, avx2.ScoreI2x4}},
	weigh: [2][GroupHeads]func(*float32, int, *int16, *float32, *float32, [][]byte, int, int, [][]byte, int){
		{avx2.WeighI3x1, avx2.WeighI3x2, avx2.WeighI3x3, avx2.WeighI3x4},
		{avx2.WeighI2x1, avx2.WeighI2x2, avx2.WeighI2x3, avx2.WeighI2x4}},
}

var (
	expandLowKeys   = [2]func(*byte, *byte, *byte, int){avx2.ExpandKeysI3, avx2.ExpandKeysI2}
	expandLowValues = [2]func(*byte, *byte, int){avx2.ExpandValuesI3, avx2.ExpandValuesI2}
)

// scoreTiles is ScoreTilesThen; dim is a multiple of 16 up to integerDims. Tiles in a row that share scales share the rounded queries.
func (a *attnLow) scoreTiles(e KVElem, s, q []float32, keys [][]byte, masks []uint16, heads, dim int, next [][]byte) {
	x := integerScratches.Get().(*integerScratch)
	defer integerScratches.Put(x)
	queries, factors, rounded := room(&x.queries, heads*dim), room(&x.ofTiles, 3*GroupHeads), room(&x.rounded, heads*dim)
	x.turn(queries, q, heads, dim)
	codes, score := e.KeyCodeBytes(dim), a.score[e-KVI3][heads-1]
	for first, last := 0, 1; first < len(keys); first, last = last, last+1 {
		scales := &keys[first][0]
		for last < len(keys) && &keys[last][0] == scales {
			last++
		}
		a.factors[heads-1](&factors[0], queries, keys[first:first+1], masks[first:first+1], dim)
		for h := range heads {
			avx2.RoundQuery(&rounded[h*dim], &queries[h*dim], scales, factors[h], dim)
		}
		score(&s[first*TileTokens], 4*TileTokens*len(keys), &rounded[0], &factors[GroupHeads], keys[first:last], codes, dim, next[min(first, len(next)):])
		for t := first; t < last; t++ {
			if slot, ok := e.Lone(keys[t], dim); ok {
				for h := range heads {
					s[(h*len(keys)+t)*TileTokens+slot] = avx2.DotHalf(&queries[h*dim], &keys[t][4*dim], dim)
				}
			}
		}
	}
	hideScores(s, masks, heads)
}

// weighTiles is WeighTilesThen; dim is a multiple of integerGroup.
func (a *attnLow) weighTiles(e KVElem, out, p []float32, values [][]byte, masks []uint16, heads, dim int, next [][]byte) {
	x := integerScratches.Get().(*integerScratch)
	defer integerScratches.Put(x)
	size, n, weigh := e.ValueRowBytes(dim), len(masks), a.weigh[e-KVI3][heads-1]
	group := e.ValueRowBytes(integerGroup)
	for first := 0; first < n; first += integerRun {
		last := min(first+integerRun, n)
		tiles, mask, wanted := values[first:last], masks[first:last], next[min(first, len(next)):]
		for g := range dim / integerGroup {
			tokens := TileTokens * len(mask)
			scales, minima := room(&x.scales, tokens), room(&x.minima, tokens)
			avx2.ValueScales(&scales[0], nil, tiles, mask, size, g*group)
			hide(scales, mask)
			for i, s := range scales {
				minima[i] = -63.5 * s // kvpage's levels have their zero there
			}
			x.roundWeights(avx2.RoundWeights, p[first*TileTokens:], n*TileTokens, scales, &minima[0], heads)
			weigh(&out[g*integerGroup], 4*dim, &x.rounded[0], &x.unit[0], &x.offset[0], tiles, size, g*group+2, wanted, g*e.KeyCodeBytes(integerGroup))
		}
	}
}

// hideScores gives the scores of tokens that are not read -Inf.
func hideScores(s []float32, masks []uint16, heads int) {
	for t, m := range masks {
		for m := ^m; m != 0; m &= m - 1 {
			for h := range heads {
				s[(h*len(masks)+t)*TileTokens+bits.TrailingZeros16(m)] = float32(math.Inf(-1))
			}
		}
	}
}
