//go:build amd64 && !purego

package kernels

import (
	"sync"

	"github.com/klauspost/cpuid/v2"

	"terrace/internal/kernels/amd64/avx2"
	"terrace/internal/kernels/amd64/avx512"
	"terrace/internal/kernels/ref"
)

func init() {
	onSelect(func(path isa) {
		switch {
		case path >= isaAVX512:
			attn = attnAVX512
			if cpuid.CPU.Supports(cpuid.AVX512BF16) {
				attn.bf16 = &bf16AVX512
			}
			if path == isaAMX {
				attn.bf16 = &bf16AMX
			}
		case path == isaAVX2:
			attn = attnAVX2
		default:
			attn = plainAttn
		}
	})
}

type (
	scoreFunc func(s, q []float32, keys [][]byte, masks []uint16, dim, ahead int)
	weighFunc func(out, p []float32, values [][]byte, masks []uint16, dim, ahead int)
)

// attnASM is one path's assembly, by element type and heads.
type attnASM struct {
	score      [5][GroupHeads]scoreFunc
	weigh      [5][GroupHeads]weighFunc
	packKeys   [3]func(dst *float32, tile *byte, dim int)
	packValues [3]func(dst *float32, tile *byte, dim, panelBytes int)
	integers   *attnIntegers // of quantised pages; nil = none
	// Of quantised types, at index type&1 (int8 3, int4 4); nil where plain Go does it.
	expandKeys, expandValues [2]func(dst, tile *byte, dim int)

	gemm       func(c *float32, cBytes int, a *float32, aBytes int, b *float32, k, rows int, scale *float32)
	softmax    [2]func(s *float32, rows int, m, l, corr *float32) // fast, exact
	columnSums func(p, w *float32, stride, rows int, sums *float32)
	expSum     func(x []float32, m float32) float32
}

var attnAVX512 = attnASM{
	score: [5][GroupHeads]scoreFunc{
		{avx512.ScoreF32x1, avx512.ScoreF32x2, avx512.ScoreF32x3, avx512.ScoreF32x4},
		{avx512.ScoreF16x1, avx512.ScoreF16x2, avx512.ScoreF16x3, avx512.ScoreF16x4},
		{avx512.ScoreBF16x1, avx512.ScoreBF16x2, avx512.ScoreBF16x3, avx512.ScoreBF16x4},
		{avx512.ScoreI8x1, avx512.ScoreI8x2, avx512.ScoreI8x3, avx512.ScoreI8x4},
		{avx512.ScoreI4x1, avx512.ScoreI4x2, avx512.ScoreI4x3, avx512.ScoreI4x4}},
	weigh: [5][GroupHeads]weighFunc{
		{avx512.WeighF32x1, avx512.WeighF32x2, avx512.WeighF32x3, avx512.WeighF32x4},
		{avx512.WeighF16x1, avx512.WeighF16x2, avx512.WeighF16x3, avx512.WeighF16x4},
		{avx512.WeighBF16x1, avx512.WeighBF16x2, avx512.WeighBF16x3, avx512.WeighBF16x4},
		{avx512.WeighI8x1, avx512.WeighI8x2, avx512.WeighI8x3, avx512.WeighI8x4},
		{avx512.WeighI4x1, avx512.WeighI4x2, avx512.WeighI4x3, avx512.WeighI4x4}},
	integers:     &integersAVX2,
	packKeys:     [3]func(*float32, *byte, int){avx512.PackKeysF32, avx512.PackKeysF16, avx512.PackKeysBF16},
	packValues:   [3]func(*float32, *byte, int, int){avx512.PackValuesF32, avx512.PackValuesF16, avx512.PackValuesBF16},
	expandKeys:   [2]func(*byte, *byte, int){avx512.ExpandKeysI4, avx512.ExpandKeysI8},
	expandValues: [2]func(*byte, *byte, int){avx512.ExpandValuesI4, avx512.ExpandValuesI8},
	gemm:         avx512.GemmF32,
	softmax:      [2]func(*float32, int, *float32, *float32, *float32){avx512.SoftmaxBlockFast, avx512.SoftmaxBlockExact},
	columnSums:   avx512.ColumnSums,
	expSum:       avx512.ExpSum,
}.ops()

var attnAVX2 = attnASM{
	score: [5][GroupHeads]scoreFunc{
		{avx2.ScoreF32x1, avx2.ScoreF32x2, avx2.ScoreF32x3, avx2.ScoreF32x4},
		{avx2.ScoreF16x1, avx2.ScoreF16x2, avx2.ScoreF16x3, avx2.ScoreF16x4},
		{avx2.ScoreBF16x1, avx2.ScoreBF16x2, avx2.ScoreBF16x3, avx2.ScoreBF16x4}},
	weigh: [5][GroupHeads]weighFunc{
		{avx2.WeighF32x1, avx2.WeighF32x2, avx2.WeighF32x3, avx2.WeighF32x4},
		{avx2.WeighF16x1, avx2.WeighF16x2, avx2.WeighF16x3, avx2.WeighF16x4},
		{avx2.WeighBF16x1, avx2.WeighBF16x2, avx2.WeighBF16x3, avx2.WeighBF16x4}},
	integers:     &integersAVX2,
	packKeys:     [3]func(*float32, *byte, int){avx2.PackKeysF32, avx2.PackKeysF16, avx2.PackKeysBF16},
	packValues:   [3]func(*float32, *byte, int, int){avx2.PackValuesF32, avx2.PackValuesF16, avx2.PackValuesBF16},
	expandKeys:   [2]func(*byte, *byte, int){avx2.ExpandKeysI4, avx2.ExpandKeysI8},
	expandValues: [2]func(*byte, *byte, int){avx2.ExpandValuesI4, avx2.ExpandValuesI8},
	gemm:         avx2.GemmF32,
	softmax:      [2]func(*float32, int, *float32, *float32, *float32){avx2.SoftmaxBlockFast, avx2.SoftmaxBlockExact},
	columnSums:   avx2.ColumnSums,
	expSum:       avx2.ExpSum,
}.ops()

// ops adapts the assembly to slices and falls back to plain Go for shapes that it has no text for.
func (a attnASM) ops() attnOps {
	o := plainAttn
	o.integers = a.integers != nil
	a.decode(&o)
	a.block(&o)
	return o
}

func (a *attnASM) decode(o *attnOps) {
	o.score = func(e KVElem, s, q []float32, keys [][]byte, masks []uint16, heads, dim int) {
		if a.integers != nil && e.Quantised() && dim%16 == 0 && dim <= integerDims && mostTokens(masks) {
			a.integers.scoreTiles(e, s, q, keys, masks, heads, dim)
			return
		}
		f := a.score[e][heads-1]
		if f == nil && dim%4 == 0 {
			a.scoreExpanded(e, s, q, keys, masks, heads, dim)
			return
		}
		if f == nil || dim%4 != 0 || e.Quantised() && dim%16 != 0 {
			ref.Score(e, s, q, keys, masks, heads, dim)
			return
		}
		if e.Quantised() {
			scratch := queries.Get().(*[]float32)
			defer queries.Put(scratch)
			q = turn(scratch, q, heads, dim)
		}
		f(s, q, keys, masks, dim, ahead(e.KeyTileBytes(dim)))
	}
	o.weigh = func(e KVElem, out, p []float32, values [][]byte, masks []uint16, heads, dim int) {
		if a.integers != nil && e.Quantised() && dim%integerGroup == 0 && mostTokens(masks) {
			a.integers.weighTiles(e, out, p, values, masks, heads, dim)
			return
		}
		f := a.weigh[e][heads-1]
		if f == nil && dim%32 == 0 {
			a.weighExpanded(e, out, p, values, masks, heads, dim)
			return
		}
		if f == nil || dim%16 != 0 || e == KVI4 && dim%32 != 0 {
			ref.Weigh(e, out, p, values, masks, heads, dim)
			return
		}
		f(out, p, values, masks, dim, ahead(TileTokens*e.ValueRowBytes(dim)))
	}
	o.expandKeys = func(e KVElem, dst, keys []byte, dim int) {
		f := a.expandKeys[e&1] // KVI8, KVI4 = 3, 4
		if f == nil || dim%4 != 0 {
			ref.ExpandKeys(e, dst, keys, dim)
			return
		}
		f(&dst[0], &keys[0], dim)
	}
	o.expandValues = func(e KVElem, dst, values []byte, dim int) {
		f := a.expandValues[e&1]
		if f == nil || dim%32 != 0 {
			ref.ExpandValues(e, dst, values, dim)
			return
		}
		f(&dst[0], &values[0], dim)
	}
}

func (a *attnASM) block(o *attnOps) {
	o.expSum = func(x []float32, m float32) float32 {
		whole := len(x) &^ 15
		sum := a.expSum(x[:whole], m)
		if whole == len(x) {
			return sum
		}
		return sum + ref.ExpSum(x[whole:], m)
	}
	o.packKeys = func(e KVElem, dst []float32, keys []byte, dim int) {
		a.packKeys[e](&dst[0], &keys[0], dim)
	}
	o.packValues = func(e KVElem, dst []float32, values []byte, dim, panelLen int) {
		if dim%16 != 0 {
			ref.PackValues(e, dst, values, dim, panelLen)
			return
		}
		a.packValues[e](&dst[0], &values[0], dim, 4*panelLen)
	}
	o.gemm = func(c []float32, cStride int, x []float32, xStride int, b []float32, k, rows int, scale []float32) {
		a.gemm(&c[0], 4*cStride, &x[0], 4*xStride, &b[0], k, rows, first(scale))
	}
	o.softmaxBlock = func(exact bool, s, m, l, corr []float32) {
		a.softmax[index(exact)](&s[0], len(m), &m[0], &l[0], &corr[0])
	}
	o.columnSums = func(p, w []float32, stride int, sums []float32) {
		a.columnSums(&p[0], &w[0], stride, (len(w)+stride-1)/stride, &sums[0])
	}
}

// expanded is scratch for one quantised tile as float32.
type expanded struct {
	bytes []byte
	tile  [1][]byte
	s     [GroupHeads * TileTokens]float32
}

var expandeds = sync.Pool{New: func() any { return new(expanded) }}

func (x *expanded) fit(dim int) []byte {
	if n := 4 * TileTokens * dim; cap(x.bytes) < n {
		x.bytes = make([]byte, n)
	}
	x.tile[0] = x.bytes[:4*TileTokens*dim]
	return x.tile[0]
}

// scoreExpanded scores quantised tiles one by one through float32.
func (a *attnASM) scoreExpanded(e KVElem, s, q []float32, keys [][]byte, masks []uint16, heads, dim int) {
	x := expandeds.Get().(*expanded)
	defer expandeds.Put(x)
	tile := x.fit(dim)
	for t := range masks {
		a.expandKeys[e&1](&tile[0], &keys[t][0], dim)
		a.score[KVF32][heads-1](x.s[:heads*TileTokens], q, x.tile[:], masks[t:t+1], dim, 1)
		for h := range heads {
			copy(s[(h*len(masks)+t)*TileTokens:][:TileTokens], x.s[h*TileTokens:])
		}
	}
}

// weighExpanded weighs quantised tiles one by one through float32.
func (a *attnASM) weighExpanded(e KVElem, out, p []float32, values [][]byte, masks []uint16, heads, dim int) {
	x := expandeds.Get().(*expanded)
	defer expandeds.Put(x)
	tile := x.fit(dim)
	for t := range masks {
		a.expandValues[e&1](&tile[0], &values[t][0], dim)
		for h := range heads {
			copy(x.s[h*TileTokens:][:TileTokens], p[(h*len(masks)+t)*TileTokens:])
		}
		a.weigh[KVF32][heads-1](out, x.s[:heads*TileTokens], x.tile[:], masks[t:t+1], dim, 1)
	}
}

// queries keeps scratch for the queries of quantised keys.
var queries = sync.Pool{New: func() any { return new([]float32) }}

// turn writes q [dim][heads] as [heads][dim] with as much room behind, which is what the kernels of quantised keys take:
// they multiply a tile's scales into a copy.
func turn(scratch *[]float32, q []float32, heads, dim int) []float32 {
	n := heads * dim
	if cap(*scratch) < 2*n {
		*scratch = make([]float32, 2*n)
	}
	out := (*scratch)[:2*n]
	for d := range dim {
		for h := range heads {
			out[h*dim+d] = q[d*heads+h]
		}
	}
	return out
}

// ahead is how many tiles before its use a tile is fetched into L2: 6 KiB cover the memory's latency. Fetching into L1
// instead is slower (Zen 4, one thread, f16: 12 against 15 GB/s; f32: 10 against 16), as each line then holds one of
// L1's few miss buffers all the way.
func ahead(tileBytes int) int { return max(1, 6144/tileBytes) }

func index(b bool) int {
	if b {
		return 1
	}
	return 0
}

func first(x []float32) *float32 {
	if len(x) == 0 {
		return nil
	}
	return &x[0]
}
