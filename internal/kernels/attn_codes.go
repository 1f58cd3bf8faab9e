package kernels

import (
	"fmt"
	"sync"

	"terrace/internal/kernels/ref"
)

// CodeElem is what a tile of key codes holds (kvpage: code tiles).
type CodeElem int

// The kinds of codes.
const (
	Codes8 CodeElem = 8
	Codes4 CodeElem = 4
)

// groupDims is the number of dimensions of a group of 64 bytes.
func (e CodeElem) groupDims() int { return 32 / int(e) }

// CodeDim is dim rounded up to whole groups: the length of a query.
func (e CodeElem) CodeDim(dim int) int {
	return (dim + e.groupDims() - 1) / e.groupDims() * e.groupDims()
}

// dotCodesFunc is the assembly of one element type and number of rows.
type dotCodesFunc func(dst *float32, dstBytes int, q *int8, qBytes int, bias *int32, codes *byte, tiles, groups int, unit, scales *float32, step int)

// codeOps are the selected path's; offset is what the int8 kernel adds to codes (128 where it takes them as unsigned).
type codeOps struct {
	dot    [2][GroupHeads]dotCodesFunc // int8, int4
	offset int32
}

var codeKernels codeOps

// DotCodes writes the integer products of q, rows <= GroupHeads of CodeDim(dim) numbers in -127..127 with zeros past dim,
// with contiguous tiles of codes: row r at dst[r*stride:], 16 numbers a tile.
func DotCodes(e CodeElem, dst []int32, stride int, q []int8, codes []byte, rows, dim int) {
	n := checkCodes("DotCodes", e, len(dst), stride, q, codes, rows, dim)
	f := e.kernel(rows)
	if f == nil || n == 0 {
		ref.DotCodes(int(e), dst, stride, q, codes, rows, e.CodeDim(dim))
		return
	}
	bias := e.bias(q, rows, dim)
	defer biases.Put(bias)
	f(asFloats(dst), 4*stride, &q[0], e.CodeDim(dim), &bias[0], &codes[0], n, e.CodeDim(dim)/e.groupDims(), nil, nil, 0)
}

var allOnes = [TileTokens]float32{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}

// ScoreCodes is DotCodes in float32: row r times unit[r], token t times scales[t], [16·tiles]; nil is all ones.
func ScoreCodes(e CodeElem, dst []float32, stride int, q []int8, codes []byte, rows, dim int, unit, scales []float32) {
	n := checkCodes("ScoreCodes", e, len(dst), stride, q, codes, rows, dim)
	wantLen("ScoreCodes", rows, len(unit))
	f := e.kernel(rows)
	if scales != nil {
		wantLen("ScoreCodes", n*TileTokens, len(scales))
	}
	if f == nil || n == 0 {
		ref.ScoreCodes(int(e), dst, stride, q, codes, rows, e.CodeDim(dim), unit, scales)
		return
	}
	each, step := &allOnes[0], 0
	if scales != nil {
		each, step = &scales[0], 4*TileTokens
	}
	bias := e.bias(q, rows, dim)
	defer biases.Put(bias)
	f(&dst[0], 4*stride, &q[0], e.CodeDim(dim), &bias[0], &codes[0], n, e.CodeDim(dim)/e.groupDims(), &unit[0], each, step)
}

// checkCodes returns the number of tiles.
func checkCodes(op string, e CodeElem, dst, stride int, q []int8, codes []byte, rows, dim int) int {
	size := e.CodeDim(dim) / e.groupDims() * 64
	if rows < 1 || rows > GroupHeads || len(codes)%size != 0 {
		panic(fmt.Sprintf("kernels: %s: %d rows over %d bytes of codes, want up to %d rows over a multiple of %d", op, rows, len(codes), GroupHeads, size))
	}
	n := len(codes) / size
	wantLen(op, n*TileTokens, stride)
	wantLen(op, (rows-1)*stride+n*TileTokens, dst)
	wantLen(op, rows*e.CodeDim(dim), len(q))
	return n
}

// kernel is the assembly for some rows.
func (e CodeElem) kernel(rows int) dotCodesFunc {
	if e == Codes4 {
		return codeKernels.dot[1][rows-1]
	}
	return codeKernels.dot[0][rows-1]
}

// biases keeps what is handed to assembly through a variable, which would be allocated at each call.
var biases = sync.Pool{New: func() any { return new([GroupHeads]int32) }}

// bias is what the sums of each query start from: what the codes' offset adds, taken away.
func (e CodeElem) bias(q []int8, rows, dim int) *[GroupHeads]int32 {
	offset, n := codeKernels.offset, e.CodeDim(dim)
	if e == Codes4 {
		offset = 8
	}
	b := biases.Get().(*[GroupHeads]int32)
	if offset == 0 {
		*b = [GroupHeads]int32{}
		return b
	}
	for r := range rows {
		var sum int32
		for _, c := range q[r*n : (r+1)*n] {
			sum += int32(c)
		}
		b[r] = -offset * sum
	}
	return b
}
