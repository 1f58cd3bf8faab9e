//go:build amd64 && !purego

package kernels

import (
	"terrace/internal/kernels/amd64/avx2"
	"terrace/internal/kernels/amd64/avx512"
)

func init() {
	onSelect(func(path isa) {
		switch {
		case path >= isaAVX512:
			elem = elemAVX512
		case path == isaAVX2:
			elem = elemAVX2
		default:
			elem = plainElem
		}
	})
}

var elemAVX512 = elemASM{
	add: avx512.Add, mul: avx512.Mul, scale: avx512.Scale, axpy: avx512.Axpy, mulScale: avx512.MulScale,
	normalise: avx512.Normalise, dot: avx512.Dot, sum: avx512.Sum, sumSquares: avx512.SumSquares, siluMul: avx512.SiluMul,
	sigmoidMul: avx512.SigmoidMul, clampedMul: avx512.ClampedMul, geluMul: avx512.GeluMul, gelu: avx512.Gelu, relu: avx512.ReLU, softcap: avx512.Softcap,
	expSum: avx512.ExpSum, max: avx512.Max, maxAbs: avx512.MaxAbs, ropeNeox: avx512.RopeNeox, ropeNorm: avx512.RopeNorm,
	fromF16: avx512.F16ToF32, fromBF16: avx512.BF16ToF32,
}.ops()

var elemAVX2 = elemASM{
	add: avx2.Add, mul: avx2.Mul, scale: avx2.Scale, axpy: avx2.Axpy, mulScale: avx2.MulScale,
	normalise: avx2.Normalise, dot: avx2.Dot, sum: avx2.Sum, sumSquares: avx2.SumSquares, siluMul: avx2.SiluMul,
	sigmoidMul: avx2.SigmoidMul, clampedMul: avx2.ClampedMul, geluMul: avx2.GeluMul, gelu: avx2.Gelu, relu: avx2.ReLU, softcap: avx2.Softcap,
	expSum: avx2.ExpSum, max: avx2.Max, maxAbs: avx2.MaxAbs, ropeNeox: avx2.RopeNeox, ropeNorm: avx2.RopeNorm,
	fromF16: avx2.F16ToF32, fromBF16: avx2.BF16ToF32,
}.ops()
