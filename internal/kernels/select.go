package kernels

import "terrace/internal/kernels/ref"

// Room is how much longer than its input the output of AtLeast, Below and Reaching must be.
const Room = 16

// selectOps are the selected path's; nil where there is no assembly.
type selectOps struct {
	atLeast, below func(dst, x *float32, blocks int, bound float32) int
	reaching       func(dst *int32, x *float32, blocks int, bound float32, first int) int
	hide           func(x *float32, masks *uint16, tiles int)
}

var selecting selectOps

// AtLeast copies the numbers of x that are at least bound to dst, in order, and returns how many; NaN is not. dst may be x
// with Room behind it, and is undefined past what was copied.
func AtLeast(dst, x []float32, bound float32) int {
	wantLen("AtLeast", len(x)+Room, len(dst))
	n, whole := 0, len(x)/16
	if selecting.atLeast != nil && whole > 0 {
		n = selecting.atLeast(&dst[0], &x[0], whole, bound)
		x = x[16*whole:]
	}
	return n + ref.AtLeast(dst[n:], x, bound)
}

// Below is AtLeast for the numbers less than bound.
func Below(dst, x []float32, bound float32) int {
	wantLen("Below", len(x)+Room, len(dst))
	n, whole := 0, len(x)/16
	if selecting.below != nil && whole > 0 {
		n = selecting.below(&dst[0], &x[0], whole, bound)
		x = x[16*whole:]
	}
	return n + ref.Below(dst[n:], x, bound)
}

// Reaching writes first plus the index of every number of x that is at least bound to dst, in order, and returns how many.
func Reaching(dst []int32, x []float32, bound float32, first int32) int {
	wantLen("Reaching", len(x)+Room, len(dst))
	n, whole := 0, len(x)/16
	if selecting.reaching != nil && whole > 0 {
		n = selecting.reaching(&dst[0], &x[0], whole, bound, int(first))
		x, first = x[16*whole:], first+int32(16*whole)
	}
	return n + ref.Reaching(dst[n:], x, bound, first)
}

// Hide writes -Inf to the numbers of x, 16 for each mask, whose bits (bit j of a mask: number j of its 16) are not set.
func Hide(x []float32, masks []uint16) {
	wantLen("Hide", 16*len(masks), len(x))
	switch {
	case len(masks) == 0:
	case selecting.hide != nil:
		selecting.hide(&x[0], &masks[0], len(masks))
	default:
		ref.Hide(x, masks)
	}
}
