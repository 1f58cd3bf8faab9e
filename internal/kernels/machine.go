package kernels

import "terrace/internal/kernels/quant"

// machine is the set of matmul kernels of one CPU path. Kernels come in versions for T rows of activations, all with
// the same arithmetic for a row; lists are in falling order of T and end with 1.
type machine struct {
	quantize func(act *byte, rows, row int, x *float32, records int)
	tiles    [64]tileKernels   // by quant.Type, quantised types
	panels   [64][]panelKernel // by quant.Type, float types; F32 also serves unpacked panels
}

type tileKernels struct {
	dot    []dotKernel
	unpack func(panel *float32, tile *byte, first, records int)
}

type dotKernel struct {
	rows int
	run  func(dst *float32, strideBytes uintptr, tile *byte, act *byte, records int)
}

type panelKernel struct {
	rows int
	run  func(out *float32, panel *byte, x *float32, xStrideBytes uintptr, k int)
}

// simd is the machine of the selected path; nil is plain Go.
var simd *machine

// quantised says whether products with the type use int8 activations in the fast phases.
func (m *machine) quantised(t quant.Type) bool { return m.tiles[t].dot != nil }
