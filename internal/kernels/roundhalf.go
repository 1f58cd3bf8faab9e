package kernels

import "math"

// RoundHalf rounds to the nearest IEEE half precision number (ties to even); beyond their range the largest finite one, NaN
// stays. Host and drive round scores by it (HillInfer's score blocks carry two bytes a score, algorithms.md 1.5), so that a
// score does not depend on who computed it.
func RoundHalf(f float32) float32 {
	const limit = 65504
	switch {
	case f != f:
		return f
	case f >= limit:
		return limit
	case f <= -limit:
		return -limit
	case f > -6.103515625e-05 && f < 6.103515625e-05: // subnormal halves are multiples of 2^-24
		return float32(math.RoundToEven(float64(f)*(1<<24)) / (1 << 24))
	}
	bits := math.Float32bits(f)
	bits += 0xfff + bits>>13&1
	return math.Float32frombits(bits &^ 0x1fff)
}
