package kernels

import (
	"unsafe"

	"terrace/internal/kernels/ref"
)

// putOps write pages; nil where there is no assembly.
type putOps struct {
	keys  [7]func(tile *byte, k *float32, strideBytes, dim int)
	key   [3]func(cell *byte, k *float32, dim int)
	value [7]func(row *byte, v *float32, dim int) // of codes so many groups of 64
	// Of int3 and int2: LowGroup rows.
	groups [2]func(group *byte, k *float32, strideBytes, dim int)
}

// LowGroup is how many tokens share scales in int3 and int2 keys.
const LowGroup = 128

var put putOps

// PutKeys turns 16 rows of keys, row r at k[r*stride:], into a tile, rounding to nearest with ties to even. It says whether the
// selected path has it, for dim a multiple of 4, of codes of 8; if not, nothing is written.
func PutKeys(e KVElem, tile []byte, k []float32, stride, dim int) bool {
	if put.keys[e] == nil || dim%4 != 0 || e.Quantised() && dim%8 != 0 {
		return false
	}
	wantLen("PutKeys", e.KeyTileBytes(dim), len(tile))
	wantLen("PutKeys", (TileTokens-1)*stride+dim, len(k))
	put.keys[e](&tile[0], &k[0], 4*stride, dim)
	return true
}

// PutKeyGroup is PutKeys of LowGroup rows of int3 or int2 keys, for dim a multiple of 16; it does not write the lone key.
func PutKeyGroup(e KVElem, group []byte, k []float32, stride, dim int) bool {
	f := put.groups[e-KVI3]
	if f == nil || dim%16 != 0 {
		return false
	}
	wantLen("PutKeyGroup", e.KeyTileBytes(dim)+(LowGroup/TileTokens-1)*e.KeyCodeBytes(dim), len(group))
	wantLen("PutKeyGroup", (LowGroup-1)*stride+dim, len(k))
	f(&group[0], &k[0], 4*stride, dim)
	return true
}

// PutKey turns one key, k[:dim], into column slot of a tile of a float type, rounding as PutKeys does. It says whether the
// selected path has it; if not, nothing is written.
func PutKey(e KVElem, tile []byte, slot int, k []float32, dim int) bool {
	if e.Quantised() || put.key[e] == nil || dim%16 != 0 {
		return false
	}
	wantLen("PutKey", e.KeyTileBytes(dim), len(tile))
	wantLen("PutKey", dim, len(k))
	wantLen("PutKey", slot+1, TileTokens)
	put.key[e](&tile[slot*e.KeyTileBytes(1)/TileTokens], &k[0], dim)
	return true
}

// PutValue rounds one value, v[:dim]. It says whether the selected path has it, for dim a multiple of 16, of codes of 64; if not,
// nothing is written.
func PutValue(e KVElem, row []byte, v []float32, dim int) bool {
	if put.value[e] == nil || dim%16 != 0 || e.Quantised() && dim%64 != 0 {
		return false
	}
	wantLen("PutValue", e.ValueRowBytes(dim), len(row))
	wantLen("PutValue", dim, len(v))
	if e.Quantised() {
		dim /= 64
	}
	put.value[e](&row[0], &v[0], dim)
	return true
}

// turnKeys are the selected path's kernels of TurnKeys for numbers of 2 and 4 bytes; nil where there is no assembly.
var turnKeys [2]func(tile *byte, rows [][]byte, dim int)

// TurnKeys writes 16 keys of a float type, one at the start of each of rows, as a tile [dim][16].
func TurnKeys(e KVElem, tile []byte, rows [][]byte, dim int) {
	size := e.KeyTileBytes(1) / TileTokens
	wantLen("TurnKeys", e.KeyTileBytes(dim), len(tile))
	wantLen("TurnKeys", TileTokens, len(rows))
	if f := turnKeys[size/4]; f != nil && dim*size%16 == 0 {
		for i := range rows {
			_ = rows[i][dim*size-1]
		}
		f(&tile[0], rows, dim)
		return
	}
	ref.TurnKeys(size, tile, rows, dim)
}

// copyRows is the selected path's kernel; nil where there is no assembly.
var copyRows func(dst *byte, rows []*byte, size int)

// CopyRows copies rows of size bytes, which lie anywhere, to dst one after another. The caller sees to it that there are
// size bytes at each.
func CopyRows(dst []byte, rows []*byte, size int) {
	wantLen("CopyRows", len(rows)*size, len(dst))
	if copyRows != nil && size%16 == 0 && len(rows) > 0 {
		copyRows(&dst[0], rows, size)
		return
	}
	for i, row := range rows {
		copy(dst[i*size:(i+1)*size], unsafe.Slice(row, size))
	}
}

// copyOut is the selected path's kernel; nil where there is no assembly.
var copyOut func(dst, src *byte, blocks int)

// outBlock is what copyOut copies at a time, outLine what its dst is aligned to.
const outBlock, outLine = 128, 64

// CopyOut copies src to dst, which is as long, for another core to read: its memory goes past this core's cache, so that no line has to be
// fetched first from the other's. The bytes are there for all when it returns.
func CopyOut(dst, src []byte) {
	wantLen("CopyOut", len(src), len(dst))
	begin := int(-uintptr(unsafe.Pointer(unsafe.SliceData(dst))) % outLine)
	blocks := (len(src) - begin) / outBlock
	if copyOut == nil || blocks <= 0 {
		copy(dst, src)
		return
	}
	copy(dst[:begin], src)
	copyOut(&dst[begin], &src[begin], blocks)
	end := begin + blocks*outBlock
	copy(dst[end:], src[end:])
}
