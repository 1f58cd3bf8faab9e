package kvpage

import "math"

// A code tile holds 16 vectors of small integers, such as a policy's low-bit copy of keys, so that four of them fill a
// 32-bit lane of a vector register: [groups][16][4] bytes. Bytes of I8 tiles are one dimension each, -127..127, four to a
// group; bytes of I4 tiles hold dimension j of the group's eight in the low half and j+4 in the high one, each -8..7 plus 8.
// Places past the last dimension hold zero. Scales are the writer's.

// codeGroups is the number of groups of a code tile of I8 or I4.
func codeGroups(e Elem, dim int) int {
	if e == I4 {
		return (dim + 7) / 8
	}
	return (dim + 3) / 4
}

// CodeTileBytes is the size of a code tile of I8 or I4.
func CodeTileBytes(e Elem, dim int) int { return codeGroups(e, dim) * 4 * Tile }

// MostCode is the largest magnitude of the integers that Quantise makes for I8 or I4.
func MostCode(e Elem) float32 {
	if e == I4 {
		return 7
	}
	return 127
}

// Quantise writes x divided by its scales as integers, halves to even, saturating at MostCode: codes are the same wherever
// they are made. There is one scale, or one a number; where it is 0 so is the code.
func Quantise(e Elem, codes []int8, x, scale []float32) {
	const rounder = 12582912 // 1.5·2^23: its sums' low bits are the nearest integer
	most, one := MostCode(e), len(scale) == 1
	s := scale[0]
	for d, v := range x {
		if !one {
			s = scale[d]
		}
		c := float32(0)
		if s > 0 {
			c = max(-most, min(most, v/s))
		}
		n := int32(math.Float32bits(c+rounder)) - int32(math.Float32bits(rounder))
		codes[d] = int8(max(-127, min(127, n))) // NaN has no place
	}
}

// PutCode writes a vector to a slot of a code tile.
func PutCode(e Elem, tile []byte, slot int, codes []int8) {
	for g := range codeGroups(e, len(codes)) {
		at := tile[(g*Tile+slot)*4:][:4]
		for j := range at {
			if e == I8 {
				at[j] = byte(code(codes, 4*g+j))
				continue
			}
			at[j] = byte(code(codes, 8*g+j)+8)&15 | byte(code(codes, 8*g+4+j)+8)<<4
		}
	}
}

// ReadCode is what PutCode wrote to a slot of a code tile.
func ReadCode(e Elem, tile []byte, slot int, codes []int8) {
	for d := range codes {
		if e == I8 {
			codes[d] = int8(tile[(d/4*Tile+slot)*4+d%4])
			continue
		}
		codes[d] = int8(tile[(d/8*Tile+slot)*4+d%4]>>(d%8/4*4)&15) - 8
	}
}

func code(codes []int8, d int) int8 {
	if d < len(codes) {
		return codes[d]
	}
	return 0
}
