package quant

import (
	"encoding/binary"
	"math"
)

// f16 returns the value of a half-precision number. The scaling by 2^112 is exact for normal and subnormal numbers alike.
func f16(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	bits := uint32(h&0x7fff) << 13
	if bits >= 0x7c00<<13 { // Inf, NaN
		return math.Float32frombits(sign | bits | 0x7f800000)
	}
	x := math.Float32frombits(bits) * 0x1p112
	return math.Float32frombits(math.Float32bits(x) | sign)
}

// toF16 rounds to the nearest half-precision number, ties to even; what is too large becomes infinite.
func toF16(x float32) uint16 {
	b := math.Float32bits(x)
	sign := uint16(b >> 16 & 0x8000)
	b &= 0x7fffffff
	switch {
	case b > 0x7f800000: // NaN stays NaN
		return sign | 0x7e00 | uint16(b>>13&0x3ff)
	case b >= 0x477ff000: // 65520 and more round to Inf
		return sign | 0x7c00
	case b < 0x38800000: // below 2^-14: let the addition of 0.5, whose last place is 2^-24, do the rounding
		return sign | uint16(math.Float32bits(math.Float32frombits(b)+0.5)-0x3f000000)
	}
	return sign | uint16((b+0xc8000fff+b>>13&1)>>13)
}

// bf16 returns the value of a bfloat16 number.
func bf16(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// toBF16 rounds to the nearest bfloat16 number, ties to even; NaN stays a quiet NaN.
func toBF16(x float32) uint16 {
	b := math.Float32bits(x)
	if b&0x7fffffff > 0x7f800000 {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

func half(b []byte) float32 { return f16(binary.LittleEndian.Uint16(b)) }

func putHalf(b []byte, x float32) { binary.LittleEndian.PutUint16(b, toF16(x)) }

func dequantizeF32(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
	}
}

func quantizeF32(dst []byte, src []float32) {
	for i, x := range src {
		binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(x))
	}
}

func dequantizeF16(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = half(src[2*i:])
	}
}

func quantizeF16(dst []byte, src []float32) {
	for i, x := range src {
		putHalf(dst[2*i:], x)
	}
}

func dequantizeBF16(dst []float32, src []byte) {
	for i := range dst {
		dst[i] = bf16(binary.LittleEndian.Uint16(src[2*i:]))
	}
}

func quantizeBF16(dst []byte, src []float32) {
	for i, x := range src {
		binary.LittleEndian.PutUint16(dst[2*i:], toBF16(x))
	}
}
