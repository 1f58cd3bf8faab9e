package quant

import "encoding/binary"

// Exponents of all ones mean NaN or Inf. A word of 64 bits is tested at once: adding one to the exponent field (its lowest
// bit) carries out of the field exactly if it is all ones; the sign bits are cleared before, so that the carry shows there.
const (
	signs32, low32 = 0x8000000080000000, 0x0080000000800000
	mask32         = ^uint64(signs32)
	signs16        = 0x8000800080008000
	mask16         = ^uint64(signs16)
	lowF16         = 0x0400040004000400
	lowBF16        = 0x0080008000800080
)

func finiteF32(src []byte) int  { return finiteWords(src, 4, mask32, low32, signs32) }
func finiteF16(src []byte) int  { return finiteWords(src, 2, mask16, lowF16, signs16) }
func finiteBF16(src []byte) int { return finiteWords(src, 2, mask16, lowBF16, signs16) }

// finiteWords returns the index of the first element of elemBytes whose exponent is all ones, -1 if there is none.
func finiteWords(src []byte, elemBytes int, mask, low, signs uint64) int {
	rest := src
	for ; len(rest) >= 64; rest = rest[64:] {
		var bad uint64
		for i := 0; i < 64; i += 8 {
			bad |= binary.LittleEndian.Uint64(rest[i:])&mask + low
		}
		if bad&signs != 0 {
			break
		}
	}
	var word [8]byte
	for ; len(rest) >= elemBytes; rest = rest[elemBytes:] {
		copy(word[:], rest[:elemBytes]) // upper elements of word stay 0: finite
		if (binary.LittleEndian.Uint64(word[:])&mask+low)&signs != 0 {
			return (len(src) - len(rest)) / elemBytes
		}
	}
	return -1
}

// scalesAt returns the test of a block type that has n f16 numbers (1 or 2) at an offset in each block.
func scalesAt(blockBytes, offset, n int) func(src []byte) int {
	mask, low := uint32(0x7fff), uint32(0x0400)
	if n == 2 {
		mask, low = 0x7fff7fff, 0x04000400
	}
	return func(src []byte) int {
		block := 0
		for at := offset; at+2*n <= len(src); at, block = at+blockBytes, block+1 {
			var w uint32
			if n == 2 {
				w = binary.LittleEndian.Uint32(src[at:])
			} else {
				w = uint32(binary.LittleEndian.Uint16(src[at:]))
			}
			if (w&mask+low)&0x80008000 != 0 {
				return block
			}
		}
		return -1
	}
}

func finiteMXFP4(src []byte) int {
	for i := 0; i < len(src); i += 17 {
		if src[i] == 255 {
			return i / 17
		}
	}
	return -1
}
