package ref

import (
	"encoding/binary"
	"math"
)

// KVElem is the number type of a page's payload, in the order of kvpage.Elem; the byte formats are described there.
type KVElem uint8

const (
	KVF32 KVElem = iota
	KVF16
	KVBF16
	KVI8
	KVI4
)

const (
	tile       = 16 // tokens
	valueGroup = 64 // dimensions of a value that share a scale
)

// Quantised says that the type has scales.
func (e KVElem) Quantised() bool { return e >= KVI8 }

// KeyTileBytes is the size of a tile of 16 keys.
func (e KVElem) KeyTileBytes(dim int) int {
	return dim * [...]int{64, 32, 32, 18, 12}[e]
}

// ValueRowBytes is the size of one value.
func (e KVElem) ValueRowBytes(dim int) int {
	groups := (dim + valueGroup - 1) / valueGroup
	return [...]int{4 * dim, 2 * dim, 2 * dim, dim + 2*groups, dim/32*16 + min(dim%32, 16) + 4*groups}[e]
}

func half(b []byte, i int) float32 { return fromF16(binary.LittleEndian.Uint16(b[2*i:])) }

func fromF16(h uint16) float32 {
	sign, exp, frac := uint32(h>>15)<<31, uint32(h>>10&31), uint32(h&1023)
	switch exp {
	case 31:
		return math.Float32frombits(sign | 0x7f800000 | frac<<13)
	case 0:
		f := float32(frac) / (1 << 24)
		return math.Float32frombits(sign | math.Float32bits(f))
	}
	return math.Float32frombits(sign | (exp+112)<<23 | frac<<13)
}

func number(e KVElem, b []byte, i int) float32 {
	switch e {
	case KVF32:
		return math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	case KVF16:
		return half(b, i)
	}
	return math.Float32frombits(uint32(binary.LittleEndian.Uint16(b[2*i:])) << 16)
}

// key is number d of the key of token j of a tile.
func key(e KVElem, keys []byte, d, j, dim int) float32 {
	switch e {
	case KVI8:
		return half(keys, d) * float32(int8(keys[2*dim+d*tile+j]))
	case KVI4:
		return half(keys, dim+d) + half(keys, d)*float32(keys[4*dim+d*tile/2+j%8]>>(j/8*4)&15)
	}
	return number(e, keys, d*tile+j)
}

// value is number d of a value.
func value(e KVElem, row []byte, d, dim int) float32 {
	groups := (dim + valueGroup - 1) / valueGroup
	switch e {
	case KVI8:
		return half(row, d/valueGroup) * float32(int8(row[2*groups+d]))
	case KVI4:
		c := row[4*groups+d/32*16+d%16] >> (d % 32 / 16 * 4) & 15
		return half(row, 2*(d/valueGroup)+1) + half(row, 2*(d/valueGroup))*float32(c)
	}
	return number(e, row, d)
}

// ExpandKeys writes a tile of keys of any type as a tile of float32.
func ExpandKeys(e KVElem, dst, keys []byte, dim int) {
	for i := range dim * tile {
		binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(key(e, keys, i/tile, i%tile, dim)))
	}
}

// ExpandValues writes a tile of values of any type as a tile of float32.
func ExpandValues(e KVElem, dst, values []byte, dim int) {
	size := e.ValueRowBytes(dim)
	for i := range dim * tile {
		binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(value(e, values[i/dim*size:], i%dim, dim)))
	}
}
