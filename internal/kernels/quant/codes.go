package quant

import (
	"encoding/binary"
	"encoding/hex"
	"math/bits"
)

// Codes is a super-block of 256 values of a coded type (IQ1_S to IQ3_S, TQ1_0, TQ2_0), taken apart: value i is
//
//	Super * factor * Scale[i/16] * levels[code i]
//
// with the type's factor, a power of two, and its levels, which are whole numbers. All products are exact in float32.
type Codes struct {
	Code  [superBlock / 8]uint64 // eight codes each, the first in the lowest byte: 2 bits, 3 (IQ1, IQ2) or 4 (IQ3)
	Scale [superBlock / 16]int8  // 1 to 31
	Super uint16                 // float16
}

// coded is what a coded type adds to its format.
type coded struct {
	levels [16]int8
	factor float32
	read   func(c *Codes, block []byte)
}

// The levels by code. Of IQ2 and IQ3 the highest bit is the sign; of IQ1 it is the sign of the shift by an eighth, and levels are eighths.
var (
	levels1 = [16]int8{-7, 1, 9, 0, -9, -1, 7, 0}
	levels2 = [16]int8{8, 25, 43, 0, -8, -25, -43, 0}
	levels3 = [16]int8{4, 12, 20, 28, 36, 44, 52, 62, -4, -12, -20, -28, -36, -44, -52, -62}
	odds    = [16]int8{1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15}
	ternary = [16]int8{-1, 0, 1, 2}
)

var codedTypes = map[Type]*coded{
	IQ1_S:   {levels1, 1. / 8, (*Codes).readIQ1S},
	IQ1_M:   {levels1, 1. / 8, (*Codes).readIQ1M},
	IQ2_XXS: {levels2, 1. / 8, (*Codes).readIQ2XXS},
	IQ2_XS:  {levels2, 1. / 8, (*Codes).readIQ2XS},
	IQ2_S:   {levels2, 1. / 8, (*Codes).readIQ2S},
	IQ3_XXS: {levels3, 1. / 4, (*Codes).readIQ3XXS},
	IQ3_S:   {odds, 1, (*Codes).readIQ3S},
	TQ1_0:   {ternary, 1, (*Codes).readTQ1},
	TQ2_0:   {ternary, 1, (*Codes).readTQ2},
}

// ReadCodes takes one block of a coded type apart; it panics for other types and blocks that are too short.
func ReadCodes(t Type, c *Codes, block []byte) { codedTypes[t].read(c, block) }

// dequantize writes the values of whole blocks.
func (k *coded) dequantize(dst []float32, src []byte, blockBytes int) {
	var c Codes
	for ; len(dst) > 0; dst, src = dst[superBlock:], src[blockBytes:] {
		k.read(&c, src[:blockBytes])
		d := f16(c.Super) * k.factor
		for i := range dst[:superBlock] {
			dst[i] = float32(d*float32(c.Scale[i/16])) * float32(k.levels[c.Code[i/8]>>(i%8*8)&15])
		}
	}
}

// The grids, taken apart: a code a byte.
var (
	codes2XXS = wideGrid(grid2XXS)
	codes2XS  = wideGrid(grid2XS)
	codes2S   = wideGrid(grid2S)
	codes1S   = wideGrid(grid1S)
	codes3XXS = narrowGrid(grid3XXS)
	codes3S   = narrowGrid(grid3S)
	bitBytes  = spreadBits()
)

// wideGrid unpacks entries of eight numbers of 2 bits.
func wideGrid(text string) []uint64 {
	packed, _ := hex.DecodeString(text)
	grid := make([]uint64, len(packed)/2)
	for i := range grid {
		word := binary.LittleEndian.Uint16(packed[2*i:])
		for j := range 8 {
			grid[i] |= uint64(word>>(2*j)&3) << (8 * j)
		}
	}
	return grid
}

// narrowGrid unpacks entries of four nibbles.
func narrowGrid(text string) []uint64 {
	packed, _ := hex.DecodeString(text)
	grid := make([]uint64, len(packed)/2)
	for i := range grid {
		word := binary.LittleEndian.Uint16(packed[2*i:])
		for j := range 4 {
			grid[i] |= uint64(word>>(4*j)&15) << (8 * j)
		}
	}
	return grid
}

// spreadBits has, for each byte, its bit j in byte j.
func spreadBits() (table [256]uint64) {
	for i := range table {
		for j := range 8 {
			table[i] |= uint64(i>>j&1) << (8 * j)
		}
	}
	return table
}

// evenSigns are the eight signs that 7 bits stand for: the last one makes their number even.
func evenSigns(seven uint32) uint64 {
	seven &= 127
	return bitBytes[seven|uint32(bits.OnesCount32(seven)&1)<<7]
}

// odd is 2n+1 of the lowest bits that mask leaves.
func odd[N byte | uint16 | uint32](n, mask N) int8 { return int8(n&mask)*2 + 1 }

func u16(b []byte, i int) uint16 { return binary.LittleEndian.Uint16(b[2*i:]) }
func u32(b []byte, i int) uint32 { return binary.LittleEndian.Uint32(b[4*i:]) }

// readIQ2XXS: scale f16, then of each 32 values four bytes of grid entries and 4·7 bits of signs under 4 bits of scale.
func (c *Codes) readIQ2XXS(b []byte) {
	c.Super = u16(b, 0)
	for ib := range 8 {
		grid, rest := b[2+8*ib:], u32(b[6+8*ib:], 0)
		for l := range 4 {
			c.Code[4*ib+l] = codes2XXS[grid[l]] | evenSigns(rest>>(7*l))<<2
		}
		c.Scale[2*ib] = odd(rest>>28, 15)
		c.Scale[2*ib+1] = c.Scale[2*ib]
	}
}

// nibbleScales reads sixteen scales from 8 bytes.
func (c *Codes) nibbleScales(b []byte) {
	for i := range c.Scale {
		c.Scale[i] = odd(b[i/2]>>(i%2*4), 15)
	}
}

// readIQ2XS: scale f16, of each 8 values 9 bits of grid under 7 of signs, 8 bytes of scales.
func (c *Codes) readIQ2XS(b []byte) {
	c.Super = u16(b, 0)
	for i := range c.Code {
		q := u16(b[2:], i)
		c.Code[i] = codes2XS[q&511] | evenSigns(uint32(q>>9))<<2
	}
	c.nibbleScales(b[66:])
}

// readIQ2S: scale f16, 32 bytes of grid, 32 of signs, 8 of the grid's upper bit pairs, 8 of scales.
func (c *Codes) readIQ2S(b []byte) {
	c.Super = u16(b, 0)
	for i := range c.Code {
		high := int(b[66+i/4]>>(i%4*2)) & 3
		c.Code[i] = codes2S[int(b[2+i])|high<<8] | bitBytes[b[34+i]]<<2
	}
	c.nibbleScales(b[74:])
}

// readIQ3XXS: scale f16, 64 bytes of grid of 4 values each, of each 32 values 4·7 bits of signs under 4 bits of scale.
func (c *Codes) readIQ3XXS(b []byte) {
	c.Super = u16(b, 0)
	for ib := range 8 {
		grid, rest := b[2+8*ib:], u32(b[66:], ib)
		for l := range 4 {
			c.Code[4*ib+l] = codes3XXS[grid[2*l]] | codes3XXS[grid[2*l+1]]<<32 | evenSigns(rest>>(7*l))<<3
		}
		c.Scale[2*ib] = odd(rest>>28, 15)
		c.Scale[2*ib+1] = c.Scale[2*ib]
	}
}

// readIQ3S: scale f16, 64 bytes of grid of 4 values each, 8 of the grid's upper bits, 32 of signs, 4 of scales.
func (c *Codes) readIQ3S(b []byte) {
	c.Super = u16(b, 0)
	for i := range c.Code {
		high := int(b[66+i/4]) >> (i % 4 * 2)
		low := codes3S[int(b[2+2*i])|high&1<<8]
		c.Code[i] = low | codes3S[int(b[3+2*i])|high>>1&1<<8]<<32 | bitBytes[b[74+i]]<<3
	}
	for i := range c.Scale {
		c.Scale[i] = odd(b[106+i/4]>>(i/2%2*4), 15)
	}
}

// shifts sets the bit of codes that says that eight values are an eighth lower.
const shifts = 0x0404040404040404

// readIQ1S: scale f16, 32 bytes of grid, of each 32 values 4·3 upper bits of grid under 3 bits of scale and the shift's sign.
func (c *Codes) readIQ1S(b []byte) {
	c.Super = u16(b, 0)
	for i := range c.Code {
		rest := u16(b[34:], i/4)
		c.Code[i] = codes1S[int(b[2+i])|int(rest>>(i%4*3))&7<<8] | uint64(rest>>15)*shifts
		c.Scale[i/2] = odd(rest>>12, 7)
	}
}

// readIQ1M: 32 bytes of grid, 16 of its upper 3 bits and the shift's sign of each 8 values, four words of four 3-bit scales under a
// nibble of the f16 scale each.
func (c *Codes) readIQ1M(b []byte) {
	c.Super = superIQ1M(b)
	for i := range c.Code {
		rest := uint64(b[32+i/2] >> (i % 2 * 4))
		c.Code[i] = codes1S[uint64(b[i])|rest&7<<8] | rest>>3&1*shifts
	}
	for i := range c.Scale {
		c.Scale[i] = odd(u16(b[48:], i/4)>>(i%4*3), 7)
	}
}

// superIQ1M is the scale whose nibbles lie apart.
func superIQ1M(b []byte) (d uint16) {
	for i := range 4 {
		d |= u16(b[48:], i) >> 12 << (4 * i)
	}
	return d
}

// readTQ1: 48 bytes of five and 4 bytes of four ternary digits as a binary fraction, scale f16: digit n of byte m is a column of 32 (of
// 16, of 4 at the end) values.
func (c *Codes) readTQ1(b []byte) {
	c.ones(u16(b[52:], 0))
	at := 0
	for _, part := range []struct{ from, bytes, digits int }{{0, 32, 5}, {32, 16, 5}, {48, 4, 4}} {
		power := byte(1)
		for range part.digits {
			for m := range part.bytes {
				c.put(at, byte(uint16(b[part.from+m]*power)*3>>8))
				at++
			}
			power *= 3
		}
	}
}

// readTQ2: 64 bytes of bit pairs, laid out as in Q2_K, scale f16.
func (c *Codes) readTQ2(b []byte) {
	c.ones(u16(b[64:], 0))
	for i := range superBlock {
		c.put(i, b[i/128*32+i%32]>>(i%128/32*2)&3)
	}
}

// ones starts a block that has one scale only.
func (c *Codes) ones(super uint16) {
	*c = Codes{Super: super}
	for i := range c.Scale {
		c.Scale[i] = 1
	}
}

func (c *Codes) put(i int, code byte) { c.Code[i/8] |= uint64(code) << (i % 8 * 8) }
