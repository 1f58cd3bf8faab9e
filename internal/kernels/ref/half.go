package ref

import "math"

// F32ToF16 rounds to float16, to nearest with ties to even; too large becomes infinite, NaN stays NaN.
func F32ToF16(dst []uint16, src []float32) {
	for i, f := range src {
		dst[i] = toF16(f)
	}
}

func toF16(f float32) uint16 {
	b := math.Float32bits(f)
	sign := uint16(b >> 16 & 0x8000)
	b &= 0x7fffffff
	switch {
	case b > 0x7f800000:
		return sign | 0x7e00 | uint16(b>>13&0x3ff)
	case b >= 0x477ff000: // 65520 and more
		return sign | 0x7c00
	case b < 0x38800000: // denormal: a multiple of 2^-24
		return sign | uint16(math.RoundToEven(float64(math.Float32frombits(b))*(1<<24)))
	}
	return sign | uint16((b+0xfff+b>>13&1-0x38000000)>>13)
}

// F32ToBF16 rounds to bfloat16, to nearest with ties to even; NaN stays NaN.
func F32ToBF16(dst []uint16, src []float32) {
	for i, f := range src {
		b := math.Float32bits(f)
		if f != f {
			dst[i] = uint16(b>>16) | 0x40
			continue
		}
		dst[i] = uint16((b + 0x7fff + b>>16&1) >> 16)
	}
}

// F16ToF32 widens float16 exactly.
func F16ToF32(dst []float32, src []uint16) {
	for i, h := range src {
		dst[i] = fromF16(h)
	}
}

// BF16ToF32 widens bfloat16 exactly.
func BF16ToF32(dst []float32, src []uint16) {
	for i, h := range src {
		dst[i] = math.Float32frombits(uint32(h) << 16)
	}
}
