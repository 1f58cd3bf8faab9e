package kvpage

import "encoding/binary"

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

// MostCode is the largest magnitude of the integers that kernels.Quantise makes for I8 or I4.
func MostCode(e Elem) float32 {
	if e == I4 {
		return 7
	}
	return 127
}

// PutCode writes a vector to a slot of a code tile.
func PutCode(e Elem, tile []byte, slot int, codes []int8) {
	if n := len(codes); e == I8 && n%4 == 0 {
		for at := slot * 4; len(codes) > 0; at, codes = at+4*Tile, codes[4:] {
			binary.LittleEndian.PutUint32(tile[at:], uint32(uint8(codes[0]))|uint32(uint8(codes[1]))<<8|uint32(uint8(codes[2]))<<16|uint32(uint8(codes[3]))<<24)
		}
		return
	}
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
