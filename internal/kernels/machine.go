package kernels

import "terrace/internal/kernels/quant"

// machine is the set of matmul kernels of one CPU path. Kernels come in versions for T rows of activations, all with
// the same arithmetic for a row; lists are in falling order of T and end with 1.
type machine struct {
	quantize func(act *byte, rows, row int, x *float32, records int)
	group    groupQuantizer    // 16 rows at once; nil: row by row
	tiles    [64]tileKernels   // by quant.Type, quantised types
	panels   [64][]panelKernel // by quant.Type, float types; F32 also serves unpacked panels
	pack     [64]packKernel    // by quant.Type; nil: plain Go packs the type
	matrix   *matrixUnit       // nil without AMX or AVX512_BF16
}

// matrixUnit multiplies bf16 tiles, see tiles.go: AMX, or VDPBF16PS in the same layout.
type matrixUnit struct {
	round    func(act *byte, x *float32, records int)
	split    func(act *byte, x *float32, records int) // nil: no classSplit
	unpack   [64]func(panel, tile *byte, records int) // by quant.Type
	multiply tileProduct
	once     tileProduct // of panels that come from memory and are used once, with split
}

// takes says whether the unit multiplies matrices of a type; paired BF16 as it is packed.
func (u *matrixUnit) takes(t quant.Type) bool {
	return u != nil && (u.unpack[t] != nil || t == quant.BF16 && pairedBF16)
}

// tileProduct multiplies a panel of 32 weight rows with groups of 32 activation rows.
type tileProduct func(config *byte, args *tileArgs)

// tileArgs are what assembly reads at fixed places, and changes (_asm/matmul_tiles.go). Panels of 16 weight rows each have a B tile each
// panelStep bytes. Sums start as from, [32*groups][32], or as zeros where it
// is nil, and go to dst, whose rows are strideBytes apart and which may be from. Groups of rows lie groupBytes apart. A product
// asks for 128 bytes a step at nextAct, and for the lines at nextTile and tileBytes behind it, which moves by tileStep.
type tileArgs struct {
	dst           *float32
	strideBytes   uintptr
	from          *float32
	panel, act    *byte
	groupBytes    uintptr
	steps, groups int
	nextAct       uintptr // an address to ask for, which may lie behind the rows; no pointer, so that nothing follows it
	nextTile      *byte
	tileStep      uintptr
	tileBytes     uintptr
	panel2        *byte
	panelStep     uintptr
}

// groupQuantizer fills a group of 16 rows, strideBytes apart in x, as quantize does.
type groupQuantizer func(act *byte, x *float32, strideBytes uintptr, records int)

type tileKernels struct {
	dot    []dotKernel
	unpack func(panel *float32, tile *byte, first, records int)
	many   manyKernels
}

type dotKernel struct {
	rows int
	run  func(dst *float32, strideBytes uintptr, tile *byte, act *byte, records int)
}

// packKernel packs 16 whole rows of so many blocks.
type packKernel func(dst, src *byte, rowBytes uintptr, blocks int)

type panelKernel struct {
	rows int
	run  func(out *float32, panel *byte, x *float32, xStrideBytes uintptr, k int)
}

// simd is the machine of the selected path; nil is plain Go.
var simd *machine

// class is the arithmetic of one product.
type class uint8

const (
	classPlain   class = iota // float32 in plain Go
	classFloat                // float32 panels and activations
	classInteger              // quantised weights as they are, int8 activations
	classMatrix               // bf16 tiles
	classSplit                // bf16 tiles as they are packed, activations as two bf16
)

// PhasesAlike reports whether matrices of a type and so many columns have one arithmetic in the phases Prefill and Decode, on the
// path in use.
func PhasesAlike(t quant.Type, cols int) bool {
	w := &Matrix{typ: t, cols: cols}
	return classOf(Prefill, w) == classOf(Decode, w)
}

// classOf chooses the arithmetic from the path, the phase and the matrix, and from nothing else (invariant 1).
func classOf(ph Phase, w *Matrix) class {
	switch {
	case simd == nil:
		return classPlain
	case ph == Prefill && simd.matrix.takes(w.typ) && w.cols%recordCols == 0:
		return classMatrix
	case ph == Decode && w.typ == quant.BF16 && pairedBF16 && simd.matrix != nil && simd.matrix.split != nil && w.cols%recordCols == 0:
		return classSplit
	case ph != Exact && simd.tiles[w.typ].dot != nil:
		return classInteger
	}
	return classFloat
}
