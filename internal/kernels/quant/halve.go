package quant

import (
	"encoding/binary"
	"math"
)

// halfScales tells of block types where in a block the f16 numbers lie that all of its values are proportional to.
var halfScales = map[Type]struct{ offset, n int }{
	F16: {0, 1}, Q8_0: {0, 1}, Q4_0: {0, 1}, Q4_1: {0, 2}, Q5_0: {0, 1}, Q5_1: {0, 2}, Q2_K: {80, 2}, Q3_K: {108, 1},
	Q4_K: {0, 2}, Q5_K: {0, 2}, Q6_K: {208, 1}, IQ4_NL: {0, 1}, IQ4_XS: {0, 1},
}

// Halves reports whether Halve divides blocks of t by 2^times without rounding.
func Halves(t Type, blocks []byte, times int) bool {
	exact, factor := true, float32(math.Ldexp(1, -times))
	if t == F32 || t == BF16 {
		return true
	}
	ok := eachScale(t, blocks, func(scale []byte) {
		x := half(scale)
		exact = exact && f16(toF16(x*factor)) == x*factor
	})
	return ok && exact
}

// Halve divides the values of whole blocks by 2^times in place, without a change to their codes. It is exact where Halves says so; f16 numbers
// that become smaller than 2^-14 are rounded. It panics for a type without one scale for all of a block.
func Halve(t Type, blocks []byte, times int) {
	factor := float32(math.Ldexp(1, -times))
	switch t {
	case F32:
		for at := 0; at < len(blocks); at += 4 {
			binary.LittleEndian.PutUint32(blocks[at:], math.Float32bits(float(blocks[at:])*factor))
		}
	case BF16:
		for at := 0; at < len(blocks); at += 2 {
			binary.LittleEndian.PutUint16(blocks[at:], toBF16(bf16(u16(blocks[at:], 0))*factor))
		}
	default:
		if !eachScale(t, blocks, func(scale []byte) { putHalf(scale, half(scale)*factor) }) {
			panic("quant: blocks of " + t.String() + " cannot be halved")
		}
	}
}

// eachScale calls do with the f16 numbers of blocks, false for a type that is not in halfScales.
func eachScale(t Type, blocks []byte, do func(scale []byte)) bool {
	scales, ok := halfScales[t]
	if !ok {
		return false
	}
	for at := scales.offset; at < len(blocks); at += t.BlockBytes() {
		for i := range scales.n {
			do(blocks[at+2*i:])
		}
	}
	return true
}
