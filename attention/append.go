package attention

import (
	"fmt"

	"terrace/internal/kernels"
	"terrace/internal/kvpage"
)

// Append is kvpage.Append with the conversions and the transposition of whole tiles of keys done by SIMD: the same
// bytes, about ten times as fast. It writes n tokens to the slots from slot on: row r of the keys at k[r*kStride:], of
// the values at v[r*vStride:]. Quantised keys need slot to be a multiple of 16.
func Append(l kvpage.Layout, page []byte, slot, n int, k []float32, kStride int, v []float32, vStride int) {
	if l.K.Quantised() && slot%kvpage.Tile != 0 {
		panic(fmt.Sprintf("attention: Append on %v at slot %d: want a multiple of %d", l, slot, kvpage.Tile))
	}
	for r := 0; r < n && l.TokenMajor; r++ {
		if !kernels.PutValue(kernels.KVElem(l.K), l.KRow(page, slot+r), k[r*kStride:], l.KeyDim) {
			kvpage.PutK(l, page, slot+r, k[r*kStride:])
		}
	}
	for r := 0; r < n && !l.TokenMajor; {
		at := slot + r
		if at%kvpage.Tile == 0 && n-r >= kvpage.Tile &&
			kernels.PutKeys(kernels.KVElem(l.K), l.KTile(page, at/kvpage.Tile), k[r*kStride:], kStride, l.KeyDim) {
			r += kvpage.Tile
			continue
		}
		if l.K.Quantised() {
			kvpage.PutTileK(l, page, at/kvpage.Tile, min(kvpage.Tile, n-r), k[r*kStride:], kStride)
			r += kvpage.Tile
			continue
		}
		if !kernels.PutKey(kernels.KVElem(l.K), l.KTile(page, at/kvpage.Tile), at%kvpage.Tile, k[r*kStride:], l.KeyDim) {
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
