package attention

import (
	"fmt"
	"sync"

	"terrace/internal/kernels"
	"terrace/internal/kvpage"
)

// Append is kvpage.Append with the conversions and the transposition of whole tiles of keys done by SIMD: the same
// bytes, about ten times as fast. It writes n tokens to the slots from slot on: row r of the keys at k[r*kStride:], of
// the values at v[r*vStride:]. Quantised keys need slot to be a multiple of their group.
func Append(l kvpage.Layout, page []byte, slot, n int, k []float32, kStride int, v []float32, vStride int) {
	AppendFirst(l, page, slot, n, k, kStride, v, vStride, kvpage.Farthest)
}

// AppendFirst is Append where the lone token of the first group of int3 and int2 keys is given.
func AppendFirst(l kvpage.Layout, page []byte, slot, n int, k []float32, kStride int, v []float32, vStride, lone int) {
	group := l.K.KeyGroup()
	if l.K.Quantised() && slot%group != 0 {
		panic(fmt.Sprintf("attention: Append on %v at slot %d: want a multiple of %d", l, slot, group))
	}
	for r := 0; r < n && l.TokenMajor; r++ {
		if !kernels.PutValue(kernels.KVElem(l.K), l.KRow(page, slot+r), k[r*kStride:], l.KeyDim) {
			kvpage.PutK(l, page, slot+r, k[r*kStride:])
		}
	}
	for r := 0; r < n && !l.TokenMajor; {
		at := slot + r
		e := kernels.KVElem(l.K)
		if at%group == 0 && n-r >= group && (e.Low() && putLow(l, l.KGroup(page, at/group), k[r*kStride:], kStride, lone) ||
			!e.Low() && kernels.PutKeys(e, l.KTile(page, at/kvpage.Tile), k[r*kStride:], kStride, l.KeyDim)) {
			r, lone = r+group, kvpage.Farthest
			continue
		}
		if l.K.Quantised() {
			kvpage.PutGroupK(l, page, at/group, min(group, n-r), k[r*kStride:], kStride, lone)
			r, lone = r+group, kvpage.Farthest
			continue
		}
		if !kernels.PutKey(e, l.KTile(page, at/kvpage.Tile), at%kvpage.Tile, k[r*kStride:], l.KeyDim) {
			kvpage.PutK(l, page, at, k[r*kStride:])
		}
		r++
	}
	for r := 0; r < n && !l.ValueInKey; r++ {
		if !kernels.PutValue(kernels.KVElem(l.V), l.VRow(page, slot+r), v[r*vStride:], l.ValueDim) {
			kvpage.PutV(l, page, slot+r, v[r*vStride:])
		}
	}
}

// loneRows is scratch for the rows of a group.
var loneRows = sync.Pool{New: func() any { return new([]float32) }}

// putLow is kvpage.PutGroupK of a whole group of int3 or int2 keys where the selected path has it.
func putLow(l kvpage.Layout, group []byte, k []float32, stride, lone int) bool {
	scratch := loneRows.Get().(*[]float32)
	defer loneRows.Put(scratch)
	*scratch = grow(*scratch, kernels.LowGroup*l.KeyDim)
	lone = kvpage.SplitKeys(*scratch, k, stride, kernels.LowGroup, l.KeyDim, lone)
	if !kernels.PutKeyGroup(kernels.KVElem(l.K), group, *scratch, l.KeyDim, l.KeyDim) {
		return false
	}
	kvpage.PutLone(l, group, lone, k[lone*stride:])
	return true
}
