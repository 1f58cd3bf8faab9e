package ref

import "math"

// AtLeast copies the numbers of x that are at least bound to dst, which is longer by one at least, and returns how many.
func AtLeast(dst, x []float32, bound float32) (n int) {
	for _, v := range x {
		dst[n] = v // without a branch, which would be mispredicted
		if v >= bound {
			n++
		}
	}
	return n
}

// Below is AtLeast for the numbers less than bound.
func Below(dst, x []float32, bound float32) (n int) {
	for _, v := range x {
		dst[n] = v
		if v < bound {
			n++
		}
	}
	return n
}

// Reaching writes first plus the index of every number of x that is at least bound to dst and returns how many.
func Reaching(dst []int32, x []float32, bound float32, first int32) (n int) {
	for i, v := range x {
		dst[n] = first + int32(i)
		if v >= bound {
			n++
		}
	}
	return n
}

// Hide writes -Inf to the numbers of x, 16 for each mask, whose bits (bit j of a mask: number j of its 16) are not set.
func Hide(x []float32, masks []uint16) {
	for i, m := range masks {
		for j := range 16 {
			if m>>j&1 == 0 {
				x[16*i+j] = float32(math.Inf(-1))
			}
		}
	}
}
