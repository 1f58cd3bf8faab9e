package kvpage

import (
	"encoding/binary"
	"math"
)

// toF16 rounds to float16, to nearest with ties to even; too large becomes infinite, NaN stays NaN.
func toF16(f float32) uint16 {
	b := math.Float32bits(f)
	sign := uint16(b >> 16 & 0x8000)
	b &= 0x7fffffff
	switch {
	case b >= 0x7f800001:
		return sign | 0x7e00
	case b >= 0x477ff000: // 65520 and more round to infinity
		return sign | 0x7c00
	case b < 0x38800000: // below 2^-14: denormal; the sum below leaves the rounded multiple of 2^-24 in the low bits
		d := math.Float32bits(math.Float32frombits(b)+0.5) - 0x3f000000
		return sign | uint16(d)
	}
	b += 0xfff + b>>13&1
	return sign | uint16((b-0x38000000)>>13)
}

func fromF16(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	mag := uint32(h & 0x7fff)
	switch {
	case mag >= 0x7c00:
		return math.Float32frombits(sign | 0x7f800000 | mag<<13&0x7fffff)
	case mag < 0x400:
		f := float32(mag) * (1.0 / (1 << 24))
		return math.Float32frombits(sign | math.Float32bits(f))
	}
	return math.Float32frombits(sign | (mag<<13 + 0x38000000))
}

// toBF16 rounds to bfloat16, to nearest with ties to even; NaN stays NaN.
func toBF16(f float32) uint16 {
	b := math.Float32bits(f)
	if b&0x7fffffff > 0x7f800000 {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

func fromBF16(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// store writes one number of a float type at index i of b.
func store(e Elem, b []byte, i int, f float32) {
	switch e {
	case F32:
		binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(f))
	case F16:
		binary.LittleEndian.PutUint16(b[2*i:], toF16(f))
	case BF16:
		binary.LittleEndian.PutUint16(b[2*i:], toBF16(f))
	}
}

// load reads one number of a float type at index i of b.
func load(e Elem, b []byte, i int) float32 {
	switch e {
	case F32:
		return math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	case F16:
		return fromF16(binary.LittleEndian.Uint16(b[2*i:]))
	default:
		return fromBF16(binary.LittleEndian.Uint16(b[2*i:]))
	}
}

// ReadRow widens the numbers of a row of a float type to dst.
func ReadRow(e Elem, row []byte, dst []float32) {
	for i := range dst {
		dst[i] = load(e, row, i)
	}
}

// PutRow rounds numbers to a row of a float type.
func PutRow(e Elem, row []byte, src []float32) {
	for i, f := range src {
		store(e, row, i, f)
	}
}
