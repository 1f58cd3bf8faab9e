//go:build (amd64 || arm64) && !purego

package kernels

import (
	"math/bits"
	"sync"

	"terrace/internal/kernels/ref"
)

type (
	scoreFunc func(s, q []float32, keys [][]byte, masks []uint16, dim int, next [][]byte)
	weighFunc func(out, p []float32, values [][]byte, masks []uint16, dim int, next [][]byte)
)

// attnASM is one path's assembly, by element type and heads.
type attnASM struct {
	score      [7][mostHeads]scoreFunc // of quantised types, and where one is nil of all, up to GroupHeads
	weigh      [7][mostHeads]weighFunc
	packKeys   [3]func(dst *float32, tile *byte, dim int)
	packValues [3]func(dst *float32, tile *byte, dim, panelBytes int)
	integers   integerTiles // of int8 and int4 pages; nil = none
	low        integerTiles // of int3 and int2 pages
	// Of int8 and int4; nil where plain Go does it.
	expandKeys, expandValues [2]func(dst, tile *byte, dim int)
	// Of int3 and int2: a tile's scales and codes, of so many dimensions in whole blocks of 16; groups of values.
	expandLowKeys   [2]func(dst, scales, codes *byte, dim int)
	expandLowValues [2]func(dst, values *byte, groups int)

	gemm       func(c *float32, cBytes int, a *float32, aBytes int, b *float32, k, rows int, scale *float32)
	softmax    [2]func(s *float32, rows int, m, l, corr *float32) // fast, exact
	columnSums func(p, w *float32, stride, rows int, sums *float32)
	expSum     func(x []float32, m float32) float32
}

// integerTiles is decode attention over quantised pages in integers (HasIntegerKV).
type integerTiles interface {
	// scoreTiles is ScoreTilesThen of quantised tiles; dim is a multiple of 16 up to integerDims.
	scoreTiles(e KVElem, s, q []float32, keys [][]byte, masks []uint16, heads, dim int, next [][]byte)
	// weighTiles is WeighTilesThen of quantised tiles; dim is a multiple of integerGroup.
	weighTiles(e KVElem, out, p []float32, values [][]byte, masks []uint16, heads, dim int, next [][]byte)
}

const (
	integerDims  = 512 // sums of so many products of integerMost and 127 stay below 2^31
	integerGroup = 64  // dimensions of a value that share a scale
)

// ops adapts the assembly to slices and falls back to plain Go for shapes that it has no text for.
func (a attnASM) ops() attnOps {
	o := plainAttn
	o.integers, o.low, o.heads = a.integers != nil, a.low != nil, GroupHeads
	if a.score[KVF16][mostHeads-1] != nil {
		o.heads = mostHeads
	}
	a.decode(&o)
	a.block(&o)
	return o
}

// integersOf is what multiplies a type in integers; nil = nothing.
func (a *attnASM) integersOf(e KVElem) integerTiles {
	switch {
	case e.Low():
		return a.low
	case e.Quantised():
		return a.integers
	}
	return nil
}

func (a *attnASM) decode(o *attnOps) {
	o.score = func(e KVElem, s, q []float32, keys [][]byte, masks []uint16, heads, dim int, next [][]byte) {
		if in := a.integersOf(e); in != nil && dim%16 == 0 && dim <= integerDims && mostTokens(masks) {
			in.scoreTiles(e, s, q, keys, masks, heads, dim, next)
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
		f(s, q, keys, masks, dim, after(keys, next, e.KeyTileBytes(dim)))
	}
	o.weigh = func(e KVElem, out, p []float32, values [][]byte, masks []uint16, heads, dim int, next [][]byte) {
		if in := a.integersOf(e); in != nil && dim%integerGroup == 0 && mostTokens(masks) {
			in.weighTiles(e, out, p, values, masks, heads, dim, next)
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
		f(out, p, values, masks, dim, after(values, next, TileTokens*e.ValueRowBytes(dim)))
	}
	o.expandKeys, o.expandValues = a.wideKeys, a.wideValues
}

// wideKeys is ExpandKeys.
func (a *attnASM) wideKeys(e KVElem, dst, keys []byte, dim int) {
	if e.Low() {
		if f := a.expandLowKeys[e-KVI3]; f != nil && dim%16 == 0 {
			f(&dst[0], &keys[0], &keys[len(keys)-e.KeyCodeBytes(dim)], dim)
			if slot, ok := e.Lone(keys, dim); ok {
				ref.LoneColumn(dst, keys, slot, dim)
			}
			return
		}
		ref.ExpandKeys(e, dst, keys, dim)
		return
	}
	f := a.expandKeys[e-KVI8]
	if f == nil || dim%4 != 0 {
		ref.ExpandKeys(e, dst, keys, dim)
		return
	}
	f(&dst[0], &keys[0], dim)
}

// wideValues is ExpandValues.
func (a *attnASM) wideValues(e KVElem, dst, values []byte, dim int) {
	if e.Low() {
		if f := a.expandLowValues[e-KVI3]; f != nil && dim%integerGroup == 0 {
			f(&dst[0], &values[0], TileTokens*dim/integerGroup)
			return
		}
		ref.ExpandValues(e, dst, values, dim)
		return
	}
	f := a.expandValues[e-KVI8]
	if f == nil || dim%32 != 0 {
		ref.ExpandValues(e, dst, values, dim)
		return
	}
	f(&dst[0], &values[0], dim)
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
		a.wideKeys(e, tile, keys[t], dim)
		a.score[KVF32][heads-1](x.s[:heads*TileTokens], q, x.tile[:], masks[t:t+1], dim, nil)
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
		a.wideValues(e, tile, values[t], dim)
		for h := range heads {
			copy(x.s[h*TileTokens:][:TileTokens], p[(h*len(masks)+t)*TileTokens:])
		}
		a.weigh[KVF32][heads-1](out, x.s[:heads*TileTokens], x.tile[:], masks[t:t+1], dim, nil)
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

// after is what a kernel asks for while it computes tiles: next or, if that is empty, those ahead.
func after(tiles, next [][]byte, tileBytes int) [][]byte {
	if len(next) > 0 {
		return next
	}
	return tiles[min(len(tiles), ahead(tileBytes)):]
}

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

// mostTokens reports whether half of the tokens or more are read: integers take whole tiles.
func mostTokens(masks []uint16) bool {
	n := 0
	for _, m := range masks {
		n += bits.OnesCount16(m)
	}
	return 2*n >= TileTokens*len(masks) && n > 0
}
