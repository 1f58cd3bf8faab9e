package kvpage

import "encoding/binary"

// halfOne and halfMinus8 are 1 and -8 in IEEE half precision.
const (
	halfOne    = 0x3c00
	halfMinus8 = 0xc800
)

// PutCodes writes integers as the key of a slot of one tile of I8 (-127..127) or I4 (-8..7) keys, with unit scales: the
// tile then multiplies as exactly those integers. Whoever writes them keeps their scales. Slot 0 prepares the tile, so a
// tile's slots are written in rising order, or rewritten.
func PutCodes(l Layout, tile []byte, slot int, codes []int8) {
	switch l.K {
	case I8:
		rows := tile[2*l.KeyDim:]
		for d, c := range codes[:l.KeyDim] {
			if slot == 0 {
				binary.LittleEndian.PutUint16(tile[2*d:], halfOne)
			}
			rows[d*Tile+slot] = byte(c)
		}
	case I4:
		rows := tile[4*l.KeyDim:]
		for d, c := range codes[:l.KeyDim] {
			if slot == 0 {
				binary.LittleEndian.PutUint16(tile[2*d:], halfOne)
				binary.LittleEndian.PutUint16(tile[2*l.KeyDim+2*d:], halfMinus8)
			}
			b, shift := &rows[d*Tile/2+slot%8], slot/8*4
			*b = *b&^(15<<shift) | byte(c+8)&15<<shift
		}
	default:
		panic("kvpage: PutCodes of " + l.K.String() + " keys")
	}
}
