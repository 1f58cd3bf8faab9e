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
	KVI3
	KVI2
)

const (
	tile       = 16 // tokens
	valueGroup = 64 // dimensions of a value that share a scale
	lowBlock   = 16 // dimensions of int3 and int2 keys whose codes lie together
)

// Quantised says that the type has scales.
func (e KVElem) Quantised() bool { return e >= KVI8 }

// KeyTileBytes is the size of a tile of 16 keys with its own scales.
func (e KVElem) KeyTileBytes(dim int) int { return e.keyScales(dim) + e.KeyCodeBytes(dim) }

// KeyCodeBytes is the size of a tile's numbers alone: its end.
func (e KVElem) KeyCodeBytes(dim int) int {
	if e.Low() { // whole 16 dimensions
		dim = (dim + 15) &^ 15
	}
	return dim * [...]int{64, 32, 32, 16, 8, 6, 4}[e]
}

// keyScales is the size of what lies before a group's numbers.
func (e KVElem) keyScales(dim int) int {
	if e.Low() { // a key of its own, and its number
		return 6*dim + 2
	}
	return [...]int{0, 0, 0, 2, 4}[e] * dim
}

// Lone is the place in a tile of int3 or int2 keys of the one that its group has as float16; false = it is in another tile.
func (e KVElem) Lone(keys []byte, dim int) (slot int, ok bool) {
	size := e.KeyCodeBytes(dim)
	at := int(binary.LittleEndian.Uint16(keys[6*dim:])) - (len(keys)-e.keyScales(dim)-size)/size*tile
	return at, at >= 0 && at < tile
}

// Low says that codes stand for levels of a table: int3 and int2. Several tiles of keys may share scales: a tile is then given from its
// scales on up to its own end, and its codes are the last KeyCodeBytes of that.
func (e KVElem) Low() bool { return e >= KVI3 }

// ValueRowBytes is the size of one value.
func (e KVElem) ValueRowBytes(dim int) int {
	groups := (dim + valueGroup - 1) / valueGroup
	if e.Low() {
		full, rest := dim/valueGroup, dim%valueGroup
		return full*(2+e.lowCodes(valueGroup)) + (groups-full)*(2+e.lowCodes(rest))
	}
	return [...]int{4 * dim, 2 * dim, 2 * dim, dim + 2*groups, dim/32*16 + min(dim%32, 16) + 4*groups}[e]
}

// lowCodes is the size of the codes of a group of m dimensions of a value: two bits of each in 16-bit words, then the third ones.
func (e KVElem) lowCodes(m int) int {
	words := (m + 7) / 8
	if e == KVI2 {
		return 2 * words
	}
	return 2*words + 2*((words+1)/2)
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
	case KVI3, KVI2:
		codes := keys[len(keys)-e.KeyCodeBytes(dim):]
		b, at := codes[d/16*e.KeyCodeBytes(lowBlock):], 4*(j%8)+2*(d%2)+j/8
		c := b[d/8%2*32+at] >> (d / 2 % 4 * 2) & 3
		if e == KVI3 {
			c |= b[64+at] >> (d / 2 % 8) & 1 << 2
		}
		if at, ok := e.Lone(keys, dim); ok && at == j {
			return half(keys, 2*dim+d)
		}
		return half(keys, dim+d) + half(keys, d)*float32(c)
	}
	return number(e, keys, d*tile+j)
}

// level is what a code of int3 and int2 values stands for (kvpage).
func level(e KVElem, code byte) float32 {
	if e == KVI2 {
		return [...]float32{0, 44, 83, 127}[code]
	}
	return [...]float32{0, 24, 41, 56, 71, 86, 103, 127}[code]
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
	case KVI3, KVI2:
		g := d / valueGroup
		m := min(dim-g*valueGroup, valueGroup)
		b, words := row[g*(2+e.lowCodes(valueGroup)):], (m+7)/8
		d -= g * valueGroup
		word, half8, turn := d%words, d/words%2, d/words/2
		c := b[2+2*word+half8] >> (2 * turn) & 3
		if e == KVI3 {
			third := (words + 1) / 2
			c |= b[2+2*words+2*(word%third)+half8] >> (turn + 4*(word/third)) & 1 << 2
		}
		return half(b, 0) * (level(e, c) - 63.5)
	}
	return number(e, row, d)
}

// LoneColumn writes the lone key of an int3 or int2 tile's group to its place in the tile as float32.
func LoneColumn(dst, keys []byte, slot, dim int) {
	for d := range dim {
		binary.LittleEndian.PutUint32(dst[4*(d*tile+slot):], math.Float32bits(half(keys, 2*dim+d)))
	}
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
