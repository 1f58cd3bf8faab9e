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
	if n == 2 {
		return func(src []byte) int { return finitePairs(src, blockBytes, offset) }
	}
	return func(src []byte) int { return finiteSingles(src, blockBytes, offset) }
}

// finitePairs returns the first block whose two f16 numbers at an offset are not both finite, -1 if there is none; four blocks at once
// until one is bad. (Functions of their own: what is written inside a package's variables is compiled without inlining.)
func finitePairs(src []byte, blockBytes, offset int) int {
	const mask, low, signs = 0x7fff7fff, 0x04000400, 0x80008000
	word := func(at int) uint32 { return binary.LittleEndian.Uint32(src[at:])&mask + low }
	at := offset
	for ; at+3*blockBytes+4 <= len(src); at += 4 * blockBytes {
		if (word(at)|word(at+blockBytes)|word(at+2*blockBytes)|word(at+3*blockBytes))&signs != 0 {
			break
		}
	}
	for ; at+4 <= len(src); at += blockBytes {
		if word(at)&signs != 0 {
			return at / blockBytes
		}
	}
	return -1
}

// finiteSingles is finitePairs for one number a block.
func finiteSingles(src []byte, blockBytes, offset int) int {
	const mask, low, sign = 0x7fff, 0x0400, 0x8000
	word := func(at int) uint32 { return uint32(binary.LittleEndian.Uint16(src[at:]))&mask + low }
	at := offset
	for ; at+3*blockBytes+2 <= len(src); at += 4 * blockBytes {
		if (word(at)|word(at+blockBytes)|word(at+2*blockBytes)|word(at+3*blockBytes))&sign != 0 {
			break
		}
	}
	for ; at+2 <= len(src); at += blockBytes {
		if word(at)&sign != 0 {
			return at / blockBytes
		}
	}
	return -1
}

func finiteMXFP4(src []byte) int {
	for i := 0; i < len(src); i += 17 {
		if src[i] == 255 {
			return i / 17
		}
	}
	return -1
}

// finiteIQ1M is finiteSingles for the scale whose nibbles lie apart.
func finiteIQ1M(src []byte) int {
	for i := 0; i+56 <= len(src); i += 56 {
		if superIQ1M(src[i:])&0x7c00 == 0x7c00 {
			return i / 56
		}
	}
	return -1
}
