package ref

import "math"

// Quantise writes x divided by its scales as integers, halves to even, cut to most in magnitude, NaN too: it has no place. There is one
// scale, or one a number; where it is not above 0 the code is 0.
func Quantise(codes []int8, x, scale []float32, most float32) {
	top := math.Float32bits(most)
	codes = codes[:len(x)]
	if len(scale) > 1 {
		scale = scale[:len(x)]
		for d, v := range x {
			if codes[d] = 0; scale[d] > 0 {
				codes[d] = nearestCode(v/scale[d], top)
			}
		}
		return
	}
	s := scale[0]
	if !(s > 0) {
		clear(codes)
		return
	}
	for d, v := range x {
		codes[d] = nearestCode(v/s, top)
	}
}

// nearestCode rounds, cutting to the number whose bits are most.
func nearestCode(v float32, most uint32) int8 {
	const rounder = 12582912 // 1.5·2^23: its sums' low bits are the nearest integer
	c := math.Float32bits(v)
	if abs := c &^ (1 << 31); abs > most {
		c ^= abs ^ most
	}
	return int8(math.Float32bits(math.Float32frombits(c) + rounder))
}
