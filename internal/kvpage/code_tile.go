package kvpage

// A code tile holds 16 vectors of small integers, such as a policy's low-bit copy of keys, so that four of them fill a
// 32-bit lane of a vector register: [groups][16][4] bytes. Bytes of I8 tiles are one dimension each, -127..127, four to a
// group; bytes of I4 tiles hold dimension j of the group's eight in the low half and j+4 in the high one, each -8..7 plus 8.
// Places past the last dimension hold zero. Scales are the writer's.

// CodeGroups is the number of groups of a code tile of I8 or I4.
func CodeGroups(e Elem, dim int) int {
	if e == I4 {
		return (dim + 7) / 8
	}
	return (dim + 3) / 4
}

// CodeTileBytes is the size of a code tile of I8 or I4.
func CodeTileBytes(e Elem, dim int) int { return CodeGroups(e, dim) * 4 * Tile }

// PutCode writes a vector to a slot of a code tile.
func PutCode(e Elem, tile []byte, slot int, codes []int8) {
	for g := range CodeGroups(e, len(codes)) {
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

func code(codes []int8, d int) int8 {
	if d < len(codes) {
		return codes[d]
	}
	return 0
}

// Code is number d of the vector in a slot.
func Code(e Elem, tile []byte, slot, d int) int8 {
	if e == I8 {
		return int8(tile[(d/4*Tile+slot)*4+d%4])
	}
	return int8(tile[(d/8*Tile+slot)*4+d%4]>>(d%8/4*4)&15) - 8
}
