package kvpage

import "fmt"

// PutK writes the key of one token, KeyDim numbers, to a slot. Quantised keys share scales and are written
// by PutGroupK; asking PutK for them panics.
func PutK(l Layout, page []byte, slot int, k []float32) {
	if l.K.Quantised() {
		panic(fmt.Sprintf("kvpage: PutK on %v: keys of this type are written a group at a time", l))
	}
	tile, at, step := l.KTile(page, slot/Tile), l.keyAt(slot, 0), l.keyAt(0, 1)
	switch l.K {
	case F16:
		for d, f := range k[:l.KeyDim] {
			h := toF16(f)
			i := 2 * (at + d*step)
			tile[i], tile[i+1] = byte(h), byte(h>>8)
		}
	default:
		for d, f := range k[:l.KeyDim] {
			store(l.K, tile, at+d*step, f)
		}
	}
}

// PutGroupK writes the keys of n tokens, at most K.KeyGroup(), row r at k[r*stride:], to the slots of group g from its first on.
// Scales of quantised ones are derived from these tokens alone; the group's other slots read as any number that the scales allow. The token lone
// (or Farthest) of int3 and int2 keys is exact.
func PutGroupK(l Layout, page []byte, g, n int, k []float32, stride, lone int) {
	switch l.K {
	case I8:
		putTileI8(l, l.KGroup(page, g), n, k, stride)
	case I4:
		putTileI4(l, l.KGroup(page, g), n, k, stride)
	case I3, I2:
		putLowKeys(l, l.KGroup(page, g), n, k, stride, lone)
	default:
		for r := range n {
			PutK(l, page, g*Tile+r, k[r*stride:])
		}
	}
}

// PutV writes the value of one token, ValueDim numbers, to a slot.
func PutV(l Layout, page []byte, slot int, v []float32) {
	row := l.VRow(page, slot)
	switch l.V {
	case I8:
		putRowI8(l, row, v[:l.ValueDim])
	case I4:
		putRowI4(l, row, v[:l.ValueDim])
	case I3, I2:
		putLowRow(l, row, v[:l.ValueDim])
	default:
		for d, f := range v[:l.ValueDim] {
			store(l.V, row, d, f)
		}
	}
}

// Append writes n tokens to the slots from slot on: row r of the keys at k[r*kStride:], of the values at v[r*vStride:].
// Quantised keys need slot to be a multiple of their group.
func Append(l Layout, page []byte, slot, n int, k []float32, kStride int, v []float32, vStride int) {
	if group := l.K.KeyGroup(); l.K.Quantised() {
		if slot%group != 0 {
			panic(fmt.Sprintf("kvpage: Append on %v at slot %d: want a multiple of %d", l, slot, group))
		}
		for r := 0; r < n; r += group {
			PutGroupK(l, page, (slot+r)/group, min(group, n-r), k[r*kStride:], kStride, Farthest)
		}
	}
	for r := range n {
		if !l.K.Quantised() {
			PutK(l, page, slot+r, k[r*kStride:])
		}
		if !l.ValueInKey {
			PutV(l, page, slot+r, v[r*vStride:])
		}
	}
}

// ReadK reads the key of a slot into dst, KeyDim numbers.
func ReadK(l Layout, page []byte, slot int, dst []float32) {
	tile, j := l.KTile(page, slot/Tile), slot%Tile
	switch l.K {
	case I8:
		readTileI8(l, tile, j, dst)
	case I4:
		readTileI4(l, tile, j, dst)
	case I3, I2:
		readLowKey(l, tile, j, dst[:l.KeyDim])
	default:
		for d := range l.KeyDim {
			dst[d] = load(l.K, tile, l.keyAt(j, d))
		}
	}
}

// ReadV reads the value of a slot into dst, ValueDim numbers.
func ReadV(l Layout, page []byte, slot int, dst []float32) {
	row := l.VRow(page, slot)
	switch l.V {
	case I8:
		readRowI8(l, row, dst)
	case I4:
		readRowI4(l, row, dst)
	case I3, I2:
		readLowRow(l, row, dst[:l.ValueDim])
	default:
		for d := range l.ValueDim {
			dst[d] = load(l.V, row, d)
		}
	}
}

// Move copies the token of one slot to a slot of another (or the same) page, bit for bit. It says whether it could:
// quantised keys share scales with their tile and cannot leave it one by one.
func Move(l Layout, dst []byte, dstSlot int, src []byte, srcSlot int) bool {
	return l.MoveFrom(dst, dstSlot, l, src, srcSlot)
}

// MoveFrom is Move from a page of another layout, which may differ from l in its number of tokens and in the order of its
// keys.
func (l Layout) MoveFrom(dst []byte, dstSlot int, srcLayout Layout, src []byte, srcSlot int) bool {
	if l.K.Quantised() {
		return false
	}
	l.moveKey(dst, dstSlot, srcLayout, src, srcSlot)
	if !l.ValueInKey {
		copy(l.VRow(dst, dstSlot), srcLayout.VRow(src, srcSlot))
	}
	return true
}

// moveKey copies the key of one slot to another.
func (l Layout) moveKey(dst []byte, dstSlot int, srcLayout Layout, src []byte, srcSlot int) {
	if l.TokenMajor && srcLayout.TokenMajor {
		copy(l.KRow(dst, dstSlot), srcLayout.KRow(src, srcSlot))
		return
	}
	to, from := l.KTile(dst, dstSlot/Tile), srcLayout.KTile(src, srcSlot/Tile)
	size := l.K.Bits() / 8
	i, j := l.keyAt(dstSlot, 0)*size, srcLayout.keyAt(srcSlot, 0)*size
	iStep, jStep := l.keyAt(0, 1)*size, srcLayout.keyAt(0, 1)*size
	for range l.KeyDim {
		copy(to[i:i+size], from[j:j+size])
		i, j = i+iStep, j+jStep
	}
}

// MoveRun is Move for n tokens in a row that lie in one tile before and after: a step of a policy that drops one token
// moves all later ones up, and a tile's row of one dimension moves at once. The tiles may be the same.
func MoveRun(l Layout, dst []byte, dstSlot int, src []byte, srcSlot, n int) bool {
	if l.K.Quantised() {
		return false
	}
	if l.TokenMajor {
		for i := range n {
			copy(l.KRow(dst, dstSlot+i), l.KRow(src, srcSlot+i))
		}
	} else {
		to, from := l.KTile(dst, dstSlot/Tile), l.KTile(src, srcSlot/Tile)
		size := l.K.Bits() / 8
		step, bytes := Tile*size, n*size
		i, j := dstSlot%Tile*size, srcSlot%Tile*size
		for range l.KeyDim {
			copy(to[i:i+bytes], from[j:j+bytes])
			i, j = i+step, j+step
		}
	}
	if l.ValueInKey {
		return true
	}
	row := l.VRowBytes()
	copy(dst[l.KBytes()+dstSlot*row:][:n*row], src[l.KBytes()+srcSlot*row:][:n*row])
	return true
}
