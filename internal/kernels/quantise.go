package kernels

import "terrace/internal/kernels/ref"

// quantiseOps are the selected path's; nil where there is no assembly.
type quantiseOps struct {
	one  func(dst *int8, x *float32, scale float32, n int, most float32)
	each func(dst *int8, x, scale *float32, n int, most float32)
}

var quantising quantiseOps

// Quantise writes x divided by its scales as integers, halves to even, saturating at most (127 at most), NaN too: codes are the same
// wherever they are made. There is one scale, or one a number; where it is not above 0 the code is 0.
func Quantise(codes []int8, x, scale []float32, most float32) {
	wantLen("Quantise", len(x), len(codes))
	if len(scale) != 1 {
		wantLen("Quantise", len(x), len(scale))
	}
	n := len(x) &^ 15
	switch {
	case n == 0 || quantising.one == nil:
		n = 0
	case len(scale) > 1:
		quantising.each(&codes[0], &x[0], &scale[0], n, most)
		scale = scale[n:]
	case scale[0] > 0:
		quantising.one(&codes[0], &x[0], scale[0], n, most)
	default:
		n = 0
	}
	if n < len(x) {
		ref.Quantise(codes[n:], x[n:], scale, most)
	}
}
