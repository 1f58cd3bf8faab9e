//go:build arm64 && !purego

package kernels

import "terrace/internal/kernels/arm64/neon"

func init() {
	onSelect(func(path isa) {
		elem = plainElem
		if path >= isaNEON {
			elem = elemNEON
		}
	})
}

var elemNEON = elemASM{
	add: neon.Add, mul: neon.Mul, scale: neon.Scale, axpy: neon.Axpy, mulScale: neon.MulScale,
	normalise: neon.Normalise, dot: neon.Dot, sum: neon.Sum, sumSquares: neon.SumSquares, siluMul: neon.SiluMul,
	sigmoidMul: neon.SigmoidMul, clampedMul: neon.ClampedMul, geluMul: neon.GeluMul, gelu: neon.Gelu, relu: neon.ReLU, softcap: neon.Softcap,
	expSum: neon.ExpSum, max: neon.Max, maxAbs: neon.MaxAbs, ropeNeox: neon.RopeNeox, ropeNorm: neon.RopeNorm,
	fromF16: neon.F16ToF32, fromBF16: neon.BF16ToF32,
}.ops()
