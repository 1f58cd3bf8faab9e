package kernels

import (
	"fmt"

	"terrace/internal/kernels/ref"
)

// plainElem are the elementwise kernels without assembly.
var plainElem = elemOps{
	rmsNorm: ref.RMSNorm, rmsScale: ref.RMSScale, mulScale: ref.MulScale, layerNorm: ref.LayerNorm, add: ref.Add, mul: ref.Mul, scale: ref.Scale, axpy: ref.Axpy,
	dot: ref.Dot, siluMul: ref.SiluMul, sigmoidMul: ref.SigmoidMul, clampedMul: ref.ClampedMul, geluMul: ref.GeluMul, gelu: ref.Gelu, geluErf: ref.GeluErf,
	geluErfMul: ref.GeluErfMul, relu: ref.ReLU, softcap: ref.Softcap, softmax: ref.Softmax,
	max: ref.Max, maxAbs: ref.MaxAbs, ropeNeox: ref.RopeNeox, ropeNorm: ref.RopeNorm,
	fromF16: ref.F16ToF32, fromBF16: ref.BF16ToF32,
}

// elem are those of the selected path; arguments are checked.
var elem = plainElem

type elemOps struct {
	rmsNorm            func(dst, x, w []float32, eps float32)
	rmsScale           func(x []float32, eps float32) float32
	mulScale           func(dst, x, w []float32, s float32)
	layerNorm          func(dst, x, w, b []float32, eps float32)
	add, mul           func(dst, x []float32)
	scale              func(x []float32, s float32)
	axpy               func(dst []float32, a float32, x []float32)
	dot                func(x, y []float32) float32
	siluMul, geluMul   func(dst, gate, up []float32)
	sigmoidMul         func(dst, gate, up []float32)
	clampedMul         func(dst, gate, up []float32, alpha, limit float32)
	geluErfMul         func(dst, gate, up []float32)
	gelu, geluErf      func(x []float32)
	relu, softmax      func(x []float32)
	softcap            func(x []float32, cap float32)
	max, maxAbs        func(x []float32) float32
	ropeNeox, ropeNorm func(x []float32, heads, d, rot int, cos, sin []float32)
	fromF16, fromBF16  func(dst []float32, src []uint16)
}

func wantLen(op string, n int, lens ...int) {
	for _, l := range lens {
		if l < n {
			panic(fmt.Sprintf("kernels: %s: operand of %d numbers, want %d", op, l, n))
		}
	}
}

// RMSNorm writes x / sqrt(mean(x²) + eps) · w to dst, one row; a nil w is all ones; dst may be x.
// The sum of squares is taken in float64 or in pairs: within 2 ulp of the exact formula.
func RMSNorm(dst, x, w []float32, eps float32) {
	wantLen("RMSNorm", len(x), len(dst))
	if w != nil {
		wantLen("RMSNorm", len(x), len(w))
	}
	elem.rmsNorm(dst, x, w, eps)
}

// LayerNorm writes (x - mean) / sqrt(var + eps) · w + b to dst, one row; nil w and b are ones and zeros; dst may be x.
func LayerNorm(dst, x, w, b []float32, eps float32) {
	wantLen("LayerNorm", len(x), len(dst))
	if w != nil {
		wantLen("LayerNorm", len(x), len(w))
	}
	if b != nil {
		wantLen("LayerNorm", len(x), len(b))
	}
	elem.layerNorm(dst, x, w, b, eps)
}

// Add adds x to dst.
func Add(dst, x []float32) {
	wantLen("Add", len(x), len(dst))
	elem.add(dst, x)
}

// Mul multiplies dst by x.
func Mul(dst, x []float32) {
	wantLen("Mul", len(x), len(dst))
	elem.mul(dst, x)
}

// Scale multiplies x by s.
func Scale(x []float32, s float32) { elem.scale(x, s) }

// Axpy adds a·x to dst.
func Axpy(dst []float32, a float32, x []float32) {
	wantLen("Axpy", len(x), len(dst))
	elem.axpy(dst, a, x)
}

// Dot is the sum of x·y.
func Dot(x, y []float32) float32 {
	wantLen("Dot", len(x), len(y))
	return elem.dot(x, y)
}

// SiluMul writes gate / (1 + e^-gate) · up to dst, which may be gate or up.
func SiluMul(dst, gate, up []float32) {
	wantLen("SiluMul", len(gate), len(dst), len(up))
	elem.siluMul(dst, gate, up)
}

// SigmoidMul writes up / (1 + e^-gate) to dst, which may be gate or up.
func SigmoidMul(dst, gate, up []float32) {
	wantLen("SigmoidMul", len(gate), len(dst), len(up))
	elem.sigmoidMul(dst, gate, up)
}

// ClampedMul writes (u+1) · g / (1 + e^-alpha·g) to dst, which may be gate or up: g = min(gate, limit), u = up within ±limit.
func ClampedMul(dst, gate, up []float32, alpha, limit float32) {
	wantLen("ClampedMul", len(gate), len(dst), len(up))
	elem.clampedMul(dst, gate, up, alpha, limit)
}

// GeluMul writes gelu(gate) · up to dst, which may be gate or up; gelu in its tanh form.
func GeluMul(dst, gate, up []float32) {
	wantLen("GeluMul", len(gate), len(dst), len(up))
	elem.geluMul(dst, gate, up)
}

// GeluErfMul writes gate·Φ(gate) · up to dst, which may be gate or up.
func GeluErfMul(dst, gate, up []float32) {
	wantLen("GeluErfMul", len(gate), len(dst), len(up))
	elem.geluErfMul(dst, gate, up)
}

// Gelu replaces x by gelu(x) in its tanh form.
func Gelu(x []float32) { elem.gelu(x) }

// GeluErf replaces x by x·Φ(x), gelu in its exact form.
func GeluErf(x []float32) { elem.geluErf(x) }

// ReLU replaces negative numbers by zero.
func ReLU(x []float32) { elem.relu(x) }

// Softcap replaces x by cap·tanh(x/cap).
func Softcap(x []float32, cap float32) { elem.softcap(x, cap) }

// Softmax replaces x by e^x / Σ e^x.
func Softmax(x []float32) { elem.softmax(x) }

// Max is the largest number of x, -Inf of none; NaN anywhere makes it NaN.
func Max(x []float32) float32 { return elem.max(x) }

// MaxAbs is the largest magnitude of x, 0 of none; NaN anywhere makes it NaN.
func MaxAbs(x []float32) float32 { return elem.maxAbs(x) }

// RopeNeox rotates the first rot numbers of each of the heads of x [heads, d]: number i with number i + rot/2 by the
// angle whose cosine and sine are cos[i], sin[i] (both [rot/2]).
func RopeNeox(x []float32, heads, d, rot int, cos, sin []float32) {
	checkRope(x, heads, d, rot, cos, sin)
	elem.ropeNeox(x, heads, d, rot, cos, sin)
}

// RopeNorm rotates the first rot numbers of each of the heads of x [heads, d]: number 2i with number 2i+1 by the angle
// whose cosine and sine are cos[i], sin[i] (both [rot/2]).
func RopeNorm(x []float32, heads, d, rot int, cos, sin []float32) {
	checkRope(x, heads, d, rot, cos, sin)
	elem.ropeNorm(x, heads, d, rot, cos, sin)
}

// F16ToF32 widens float16 exactly.
func F16ToF32(dst []float32, src []uint16) {
	wantLen("F16ToF32", len(src), len(dst))
	elem.fromF16(dst, src)
}

// BF16ToF32 widens bfloat16 exactly.
func BF16ToF32(dst []float32, src []uint16) {
	wantLen("BF16ToF32", len(src), len(dst))
	elem.fromBF16(dst, src)
}

func checkRope(x []float32, heads, d, rot int, cos, sin []float32) {
	if len(x) < heads*d || rot > d || rot%2 != 0 || len(cos) < rot/2 || len(sin) < rot/2 {
		panic(fmt.Sprintf("kernels: rope of %d heads of %d, %d rotated: x %d, cos %d, sin %d",
			heads, d, rot, len(x), len(cos), len(sin)))
	}
}

// Finite reports whether no number of x is NaN or infinite.
func Finite(x []float32) bool {
	var a, b, c, d float32 // of zeros, and NaN where x is not finite; four, so that no addition waits for the one before
	for ; len(x) >= 4; x = x[4:] {
		a, b, c, d = a+x[0]*0, b+x[1]*0, c+x[2]*0, d+x[3]*0
	}
	for _, v := range x {
		a += v * 0
	}
	return a+b+c+d == 0
}
