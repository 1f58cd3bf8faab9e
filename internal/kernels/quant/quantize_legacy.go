package quant

import (
	"encoding/binary"
	"math"
)

// groupMaxEps is what a group of values must reach to get a scale at all (GROUP_MAX_EPS).
const groupMaxEps = 1e-15

// nearest rounds to the nearest integer, ties to even, for |x| < 2^22 (ggml's nearest_int).
func nearest(x float32) int {
	return int(math.Float32bits(x+12582912)&0x007fffff) - 0x00400000
}

func inverse(x float32) float32 {
	if x == 0 {
		return 0
	}
	return 1 / x
}

// quantizeQ8_0: the largest magnitude becomes 127; halves round away from zero.
func quantizeQ8_0(dst []byte, src []float32) {
	for ; len(src) > 0; dst, src = dst[34:], src[32:] {
		var amax float32
		for _, x := range src[:32] {
			amax = max(amax, float32(math.Abs(float64(x))))
		}
		d := amax / 127
		id := inverse(d)
		putHalf(dst, finiteOr(d, src[:32]))
		for j, x := range src[:32] {
			dst[2+j] = byte(int8(math.Round(float64(x * id))))
		}
	}
}

// quantizeQ4_0: the value of largest magnitude becomes -8 whatever its sign.
func quantizeQ4_0(dst []byte, src []float32) {
	for ; len(src) > 0; dst, src = dst[18:], src[32:] {
		var amax, top float32
		for _, x := range src[:32] {
			if a := float32(math.Abs(float64(x))); a > amax {
				amax, top = a, x
			}
		}
		d := top / -8
		id := inverse(d)
		putHalf(dst, finiteOr(d, src[:32]))
		level := func(x float32) byte { return byte(min(15, int8(float32(x*id)+8.5))) }
		for j := range 16 {
			dst[2+j] = level(src[j]) | level(src[j+16])<<4
		}
	}
}

// quantizeQ4_1: minimum 0, maximum 15.
func quantizeQ4_1(dst []byte, src []float32) {
	for ; len(src) > 0; dst, src = dst[20:], src[32:] {
		lo, hi := src[0], src[0]
		for _, x := range src[1:32] {
			lo, hi = min(lo, x), max(hi, x)
		}
		d := (hi - lo) / 15
		id := inverse(d)
		putHalf(dst, finiteOr(d, src[:32]))
		putHalf(dst[2:], lo)
		level := func(x float32) byte { return byte(min(15, int8(float32((x-lo)*id)+0.5))) }
		for j := range 16 {
			dst[4+j] = level(src[j]) | level(src[j+16])<<4
		}
	}
}

// quantizeQ5_0: the value of largest magnitude becomes -16 whatever its sign.
func quantizeQ5_0(dst []byte, src []float32) {
	for ; len(src) > 0; dst, src = dst[22:], src[32:] {
		var amax, top float32
		for _, x := range src[:32] {
			if a := float32(math.Abs(float64(x))); a > amax {
				amax, top = a, x
			}
		}
		d := top / -16
		id := inverse(d)
		putHalf(dst, finiteOr(d, src[:32]))
		level := func(x float32) byte { return byte(min(31, int8(float32(x*id)+16.5))) }
		putLevels5(dst[2:22], src, level)
	}
}

// quantizeQ5_1: minimum 0, maximum 31.
func quantizeQ5_1(dst []byte, src []float32) {
	for ; len(src) > 0; dst, src = dst[24:], src[32:] {
		lo, hi := src[0], src[0]
		for _, x := range src[1:32] {
			lo, hi = min(lo, x), max(hi, x)
		}
		d := (hi - lo) / 31
		id := inverse(d)
		putHalf(dst, finiteOr(d, src[:32]))
		putHalf(dst[2:], lo)
		level := func(x float32) byte { return byte(float32((x-lo)*id) + 0.5) }
		putLevels5(dst[4:24], src, level)
	}
}

// putLevels5 writes 32 levels of 5 bits: four bytes of fifth bits, then the nibbles.
func putLevels5(dst []byte, src []float32, level func(float32) byte) {
	var high uint32
	for j := range 16 {
		a, b := level(src[j]), level(src[j+16])
		dst[4+j] = a&15 | b&15<<4
		high |= uint32(a>>4&1)<<j | uint32(b>>4&1)<<(j+16)
	}
	binary.LittleEndian.PutUint32(dst, high)
}

// finiteOr returns the scale d, or NaN if a value is not finite, so that the block is refused when read and never taken for
// one that means something.
func finiteOr(d float32, values []float32) float32 {
	for _, x := range values {
		if x-x != 0 { // Inf-Inf and NaN-NaN are NaN
			return float32(math.NaN())
		}
	}
	return d
}
