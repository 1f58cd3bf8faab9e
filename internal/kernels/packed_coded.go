package kernels

import (
	"math"

	"terrace/internal/kernels/quant"
)

// Packing of the coded types. Their blocks name entries of a grid of 256 to 2,048 times 4 or 8 values, which no kernel looks up: tiles
// hold the code of each value's level and its sign, so that a kernel turns 64 codes into bytes with one shuffle. Bits a weight,
// in a file and in a tile:
//
//	IQ1_S 1.56, IQ1_M 1.75    3.56
//	IQ2_XXS 2.06              3.31
//	IQ2_XS 2.31, IQ2_S 2.56   3.56
//	IQ3_XXS 3.06, IQ3_S 3.44  4.31
//	TQ1_0 1.69, TQ2_0 2.06    2.31

// codePair are eight codes as dwords of four, as groups of columns.
func codePair(c *quant.Codes, g int) uint32 { return uint32(c.Code[g/2] >> (g % 2 * 32)) }

// putPairs packs bits 0 and 1 of the codes of record s into two planes of pairs.
func putPairs(dst []byte, r, s int, c *quant.Codes) {
	for p := range 2 {
		var plane uint32
		for i := range 4 {
			plane |= codePair(c, 8*s+4*p+i) & lowPairs << (2 * i)
		}
		put32(dst[64*p+4*r:], plane)
	}
}

// putThirdBits packs bit 2 of the codes of record s into a plane of one bit each.
func putThirdBits(dst []byte, r, s int, c *quant.Codes) {
	var plane uint32
	for g := range 8 {
		plane |= codePair(c, 8*s+g) >> 2 & lowBits << g
	}
	put32(dst[4*r:], plane)
}

// packTriples packs types of 3 bits with two scales a record.
func packTriples(t quant.Type) func(dst []byte, r int, b []byte) {
	return func(dst []byte, r int, b []byte) {
		var c quant.Codes
		quant.ReadCodes(t, &c, b)
		put16(dst[2*r:], c.Super)
		for s := range 8 {
			rec := dst[32+224*s:][:224]
			putPairs(rec, r, s, &c)
			putThirdBits(rec[128:], r, s, &c)
			rec[192+r], rec[208+r] = byte(c.Scale[2*s]), byte(c.Scale[2*s+1])
		}
	}
}

func packIQ2XXS(dst []byte, r int, b []byte) {
	var c quant.Codes
	quant.ReadCodes(quant.IQ2_XXS, &c, b)
	put16(dst[2*r:], c.Super)
	for s := range 8 {
		rec := dst[32+208*s:][:208]
		putPairs(rec, r, s, &c)
		putThirdBits(rec[128:], r, s, &c)
		rec[192+r] = byte(c.Scale[2*s])
	}
}

func packIQ3(t quant.Type) func(dst []byte, r int, b []byte) {
	return func(dst []byte, r int, b []byte) {
		var c quant.Codes
		quant.ReadCodes(t, &c, b)
		put16(dst[2*r:], c.Super)
		for s := range 8 {
			rec := dst[32+272*s:][:272]
			for i := range 4 {
				put32(rec[64*i+4*r:], codePair(&c, 8*s+i)|codePair(&c, 8*s+i+4)<<4)
			}
			rec[256+r] = byte(c.Scale[2*s])
		}
	}
}

func packTernary(t quant.Type) func(dst []byte, r int, b []byte) {
	return func(dst []byte, r int, b []byte) {
		var c quant.Codes
		quant.ReadCodes(t, &c, b)
		put16(dst[2*r:], c.Super)
		for s := range 8 {
			rec := dst[32+144*s:][:144]
			putPairs(rec, r, s, &c)
			rec[128+r] = byte(c.Scale[2*s])
		}
	}
}

// packNVFP4 packs a block of 64 columns into two records, whose scales are float16: every one is exact there.
func packNVFP4(dst []byte, r int, b []byte) {
	for s := range 2 {
		rec := dst[320*s:][:320]
		packFP4(rec, r, b[4+16*s:])
		for h := range 2 {
			put16(rec[256+32*h+2*r:], nvHalves[b[2*s+h]])
		}
	}
}

// packFP4 packs 32 columns of which each 16 are 8 bytes: low nibbles are columns 0 to 7, high ones 8 to 15.
func packFP4(dst []byte, r int, qs []byte) {
	for i := range 4 { // groups i of the first 16 columns, low in the tile, and i+4, of the others
		from, shift := qs[i%2*4:], i/2*4
		put32(dst[64*i+4*r:], get32(from)>>shift&lowNibbles|get32(from[8:])>>shift&lowNibbles<<4)
	}
}

func packNVFP4F32(dst []byte, r int, b []byte) {
	packFP4(dst, r, b[8:])
	put32(dst[256+4*r:], get32(b))
	put32(dst[320+4*r:], get32(b[4:]))
}

// packF8 packs 32 columns of codes. The scale takes in 2^8: a code is read as the float16 of its bits, whose exponent has another bias.
func packF8(dst []byte, r int, b []byte) {
	for k, code := range b[4:36] {
		dst[16*k+r] = code
	}
	put32(dst[512+4*r:], math.Float32bits(math.Float32frombits(get32(b))*256))
}

// nvHalves are the scales of NVFP4 as float16.
var nvHalves = func() (table [256]uint16) {
	for i := range table {
		var b [2]byte
		_ = quant.Quantize(quant.F16, b[:], []float32{quant.NVScale(byte(i))})
		table[i] = get16(b[:])
	}
	return table
}()
