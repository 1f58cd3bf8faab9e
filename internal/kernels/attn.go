package kernels

import (
	"fmt"

	"terrace/internal/kernels/ref"
)

// KVElem is the number type of a page's payload, in the order of kvpage.Elem, whose byte formats these kernels read.
type KVElem = ref.KVElem

// The element types.
const (
	KVF32  = ref.KVF32
	KVF16  = ref.KVF16
	KVBF16 = ref.KVBF16
	KVI8   = ref.KVI8
	KVI4   = ref.KVI4
	KVI3   = ref.KVI3
	KVI2   = ref.KVI2
)

// Shapes of the attention kernels: tokens come in tiles, panels of the blockwise product are PanelCols wide, and rows
// of scores hold BlockTokens.
const (
	TileTokens  = 16
	PanelCols   = 64
	BlockTokens = 128
	GroupHeads  = 4 // heads that can share one pass over the keys or values of any type; see MostHeads
	mostHeads   = 6
)

// MostHeads is how many heads ScoreTiles and WeighTiles take at most of a type on the selected path, GroupHeads at least. A head's
// results do not depend on how many are taken.
func MostHeads(e KVElem) int {
	if e.Quantised() {
		return GroupHeads
	}
	return max(GroupHeads, attn.heads)
}

// attnOps are the attention kernels of the selected path.
type attnOps struct {
	score        func(e KVElem, s, q []float32, keys [][]byte, masks []uint16, heads, dim int, next [][]byte)
	weigh        func(e KVElem, out, p []float32, values [][]byte, masks []uint16, heads, dim int, next [][]byte)
	expandKeys   func(e KVElem, dst, keys []byte, dim int)
	expandValues func(e KVElem, dst, values []byte, dim int)
	expSum       func(x []float32, m float32) float32
	packKeys     func(e KVElem, dst []float32, keys []byte, dim int)
	packValues   func(e KVElem, dst []float32, values []byte, dim, panelLen int)
	gemm         func(c []float32, cStride int, a []float32, aStride int, b []float32, k, rows int, scale []float32)
	softmaxBlock func(exact bool, s, m, l, corr []float32)
	columnSums   func(p, w []float32, stride int, sums []float32)
	bf16         *bf16Ops // nil where the CPU has no bf16 products
	integers     bool     // HasIntegerKV of int8 and int4
	low          bool     // of int3 and int2
	heads        int      // MostHeads of float types; 0 = GroupHeads
}

// bf16Ops are the same on pairs of bf16, two to a step of k.
type bf16Ops struct {
	rowBlock     int // rows of a product are rounded up to this many
	packKeys     func(e KVElem, dst []uint16, keys []byte, dim int)
	packValues   func(e KVElem, dst []uint16, values []byte, dim, panelLen int)
	packRows     func(dst []uint16, src []float32, scale float32)
	gemm         func(c []float32, cStride int, a []uint16, aStride int, b []uint16, k, rows int, scale []float32)
	softmaxBlock func(s []float32, p []uint16, m, l, corr []float32)
	columnSums   func(p []uint16, w []float32, stride int, sums []float32)
}

var plainAttn = attnOps{
	score: func(e KVElem, s, q []float32, keys [][]byte, masks []uint16, heads, dim int, _ [][]byte) {
		ref.Score(e, s, q, keys, masks, heads, dim)
	},
	weigh: func(e KVElem, out, p []float32, values [][]byte, masks []uint16, heads, dim int, _ [][]byte) {
		ref.Weigh(e, out, p, values, masks, heads, dim)
	},
	expandKeys: ref.ExpandKeys, expandValues: ref.ExpandValues, expSum: ref.ExpSum, packKeys: ref.PackKeys, packValues: ref.PackValues,
	gemm: ref.Gemm, softmaxBlock: ref.SoftmaxBlock, columnSums: ref.ColumnSums,
}

var attn = plainAttn

// ScoreTiles writes q·k to s [heads][16·tiles], heads <= MostHeads(e), for tiles of 16 keys; q is [dim][heads] (PackQuery).
// Tokens whose mask bit is 0 score -Inf, whatever their bytes are.
func ScoreTiles(e KVElem, s, q []float32, keys [][]byte, masks []uint16, heads, dim int) {
	ScoreTilesThen(e, s, q, keys, masks, heads, dim, nil)
}

// ScoreTilesThen is ScoreTiles that asks memory for the tiles next: while it computes a tile, for as many bytes of one of them, in
// place of keys further on, which should be near. Some paths ask for nothing. A hint that
// changes no result.
func ScoreTilesThen(e KVElem, s, q []float32, keys [][]byte, masks []uint16, heads, dim int, next [][]byte) {
	wantHeads("ScoreTiles", e, heads)
	wantLen("ScoreTiles", heads*TileTokens*len(masks), len(s))
	wantLen("ScoreTiles", heads*dim, len(q))
	wantLen("ScoreTiles", len(masks), len(keys))
	attn.score(e, s, q, keys, masks, heads, dim, next)
}

// PackQuery writes scale·q, q [heads][dim], as [dim][heads].
func PackQuery(dst, q []float32, heads, dim int, scale float32) {
	wantLen("PackQuery", heads*dim, len(dst), len(q))
	for h := range heads {
		for i, x := range q[h*dim:][:dim] {
			dst[i*heads+h] = x * scale
		}
	}
}

// WeighTiles adds p·v to out [heads][dim], heads <= MostHeads(e), for tiles of values [16][dim]; p is [heads][16·tiles].
// Tokens whose mask bit is 0 are not read.
func WeighTiles(e KVElem, out, p []float32, values [][]byte, masks []uint16, heads, dim int) {
	WeighTilesThen(e, out, p, values, masks, heads, dim, nil)
}

// WeighTilesThen is WeighTiles that asks for the tiles next as ScoreTilesThen does, in place of values further on.
func WeighTilesThen(e KVElem, out, p []float32, values [][]byte, masks []uint16, heads, dim int, next [][]byte) {
	wantHeads("WeighTiles", e, heads)
	wantLen("WeighTiles", heads*TileTokens*len(masks), len(p))
	wantLen("WeighTiles", heads*dim, len(out))
	wantLen("WeighTiles", len(masks), len(values))
	attn.weigh(e, out, p, values, masks, heads, dim, next)
}

func wantHeads(op string, e KVElem, heads int) {
	if most := MostHeads(e); heads > most {
		panic(fmt.Sprintf("kernels: %s: %d heads, want up to %d", op, heads, most))
	}
}

// ExpSum replaces x by e^(x-m) and returns the sum; e^x is within 2 ulp.
func ExpSum(x []float32, m float32) float32 { return attn.expSum(x, m) }

// PackKeys copies a tile of keys to 16 columns of a panel [dim][64], dst being the first column's place.
func PackKeys(e KVElem, dst []float32, keys []byte, dim int) {
	wantLen("PackKeys", (dim-1)*PanelCols+TileTokens, len(dst))
	wantLen("PackKeys", e.KeyTileBytes(dim), len(keys))
	attn.packKeys(e, dst, keys, dim)
}

// PackValues copies a tile of values to 16 rows of panels [tokens][64] that lie panelLen numbers apart.
func PackValues(e KVElem, dst []float32, values []byte, dim, panelLen int) {
	wantLen("PackValues", (dim-1)/PanelCols*panelLen+TileTokens*PanelCols, len(dst))
	wantLen("PackValues", TileTokens*e.ValueRowBytes(dim), len(values))
	attn.packValues(e, dst, values, dim, panelLen)
}

// Gemm computes c[r] = scale[r]·c[r] + a[r]·b for rows of 64 columns, b [k][64]; a nil scale is all zeros. A row's
// result does not depend on the other rows.
func Gemm(c []float32, cStride int, a []float32, aStride int, b []float32, k, rows int, scale []float32) {
	checkGemm(len(c), cStride, len(a), aStride, len(b), k, rows, scale)
	attn.gemm(c, cStride, a, aStride, b, k, rows, scale)
}

func checkGemm(c, cStride, a, aStride, b, k, rows int, scale []float32) {
	wantLen("Gemm", (rows-1)*cStride+PanelCols, c)
	wantLen("Gemm", (rows-1)*aStride+k, a)
	wantLen("Gemm", k*PanelCols, b)
	if scale != nil {
		wantLen("Gemm", rows, len(scale))
	}
	wantLen("Gemm", 1, k)
}

// SoftmaxBlock takes len(m) rows of 128 scores into their online softmax: m becomes the largest score so far, corr what
// earlier sums must be multiplied by, s the weights, whose sum joins l [rows][16] in lanes. The base is e and powers are
// within 2 ulp where exact, else it is 2 and they are within 3e-6 of their size. -Inf weighs exactly nothing.
func SoftmaxBlock(exact bool, s, m, l, corr []float32) {
	checkBlock(len(m), len(s), len(l), len(corr))
	attn.softmaxBlock(exact, s, m, l, corr)
}

func checkBlock(rows, s, l, corr int) {
	wantLen("SoftmaxBlock", rows*BlockTokens, s)
	wantLen("SoftmaxBlock", rows*TileTokens, l)
	wantLen("SoftmaxBlock", rows, corr)
}

// ColumnSums adds w[r]·p[r] for r = 0, stride, 2·stride … < len(w), p being len(w) rows of 128 numbers, to sums [128], row
// after row.
func ColumnSums(p, w []float32, stride int, sums []float32) {
	wantLen("ColumnSums", len(w)*BlockTokens, len(p))
	wantLen("ColumnSums", BlockTokens, len(sums))
	attn.columnSums(p, w, stride, sums)
}

// HasIntegerKV says whether the selected path scores and weighs whole tiles of a quantised type in integers. What multiplies the
// codes, a query times a tile's scales or a weight times a token's scale, is rounded there to multiples of 1/integerMost of the
// largest such number of the tile, or of up to 512 tokens' weights, which moves a result by at most half of that times the sum of the codes' magnitudes: some
// 2^-8 of what quantising the pages moved it by. Tiles of which less than half of the tokens are read stay in float32.
func HasIntegerKV(e KVElem) bool {
	if e.Low() {
		return attn.low
	}
	return e.Quantised() && attn.integers
}

const integerMost = 1<<15 - 1

// HasBF16 says whether the selected path multiplies pairs of bf16, at twice the rate of float32 on some CPUs.
func HasBF16() bool { return attn.bf16 != nil }

// BF16RowBlock is what GemmBF16 rounds its rows up to: the rows of a and c past the given ones must exist, and c's are
// undefined afterwards. 1 where nothing is rounded.
func BF16RowBlock() int {
	if attn.bf16 == nil {
		return 1
	}
	return attn.bf16.rowBlock
}

// PackKeysBF16 copies a tile of keys to 16 columns of a panel [dim/2][64][2]; dim is even.
func PackKeysBF16(e KVElem, dst []uint16, keys []byte, dim int) {
	wantLen("PackKeysBF16", (dim/2-1)*2*PanelCols+2*TileTokens, len(dst))
	wantLen("PackKeysBF16", e.KeyTileBytes(dim), len(keys))
	attn.bf16.packKeys(e, dst, keys, dim)
}

// PackValuesBF16 copies a tile of values to 8 rows of panels [tokens/2][64][2] that lie panelLen numbers apart.
func PackValuesBF16(e KVElem, dst []uint16, values []byte, dim, panelLen int) {
	wantLen("PackValuesBF16", (dim-1)/PanelCols*panelLen+TileTokens*PanelCols, len(dst))
	wantLen("PackValuesBF16", TileTokens*e.ValueRowBytes(dim), len(values))
	attn.bf16.packValues(e, dst, values, dim, panelLen)
}

// PackRowsBF16 rounds scale·src to bf16; len(src) is a multiple of 16.
func PackRowsBF16(dst []uint16, src []float32, scale float32) {
	wantLen("PackRowsBF16", len(src), len(dst))
	attn.bf16.packRows(dst, src, scale)
}

// GemmBF16 is Gemm with a and b of bf16 and products summed in float32; b is [k/2][64][2], k even. See BF16RowBlock.
func GemmBF16(c []float32, cStride int, a []uint16, aStride int, b []uint16, k, rows int, scale []float32) {
	block := attn.bf16.rowBlock
	padded := (rows + block - 1) / block * block
	checkGemm(len(c), cStride, len(a), aStride, len(b), k, padded, nil)
	if scale != nil {
		wantLen("GemmBF16", rows, len(scale))
	}
	attn.bf16.gemm(c, cStride, a, aStride, b, k, rows, scale)
}

// SoftmaxBlockBF16 is SoftmaxBlock to base 2 with the weights rounded to bf16 into p [rows][128]; s is left undefined.
func SoftmaxBlockBF16(s []float32, p []uint16, m, l, corr []float32) {
	checkBlock(len(m), len(s), len(l), len(corr))
	wantLen("SoftmaxBlockBF16", len(m)*BlockTokens, len(p))
	attn.bf16.softmaxBlock(s, p, m, l, corr)
}

// ColumnSumsBF16 is ColumnSums of bf16 numbers p.
func ColumnSumsBF16(p []uint16, w []float32, stride int, sums []float32) {
	wantLen("ColumnSumsBF16", len(w)*BlockTokens, len(p))
	wantLen("ColumnSumsBF16", BlockTokens, len(sums))
	attn.bf16.columnSums(p, w, stride, sums)
}

// ExpandKeys writes a tile of quantised keys as a tile of float32.
func ExpandKeys(e KVElem, dst, keys []byte, dim int) {
	wantLen("ExpandKeys", 4*dim*TileTokens, len(dst))
	wantLen("ExpandKeys", e.KeyTileBytes(dim), len(keys))
	attn.expandKeys(e, dst, keys, dim)
}

// ExpandValues writes a tile of quantised values as a tile of float32.
func ExpandValues(e KVElem, dst, values []byte, dim int) {
	wantLen("ExpandValues", 4*dim*TileTokens, len(dst))
	wantLen("ExpandValues", TileTokens*e.ValueRowBytes(dim), len(values))
	attn.expandValues(e, dst, values, dim)
}
