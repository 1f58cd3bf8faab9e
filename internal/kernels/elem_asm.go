//go:build (amd64 || arm64) && !purego

package kernels

import (
	"math"
	"slices"
	"sync"

	"terrace/internal/kernels/ref"
)

// elemASM is one path's assembly; n is a multiple of 16 and not 0.
type elemASM struct {
	add, mul          func(dst, x *float32, n int)
	scale             func(x *float32, n int, s float32)
	axpy              func(dst, x *float32, n int, a float32)
	mulScale          func(dst, x, w *float32, n int, s float32)
	normalise         func(dst, x, w, b *float32, n int, mean, s float32)
	dot               func(x, y *float32, n int) float32
	sum, sumSquares   func(x *float32, n int, mean float64) float64
	siluMul, geluMul  func(dst, gate, up *float32, n int)
	sigmoidMul        func(dst, gate, up *float32, n int)
	clampedMul        func(dst, gate, up *float32, n int, alpha, limit float32)
	gelu, relu        func(x *float32, n int)
	softcap           func(x *float32, n int, limit float32)
	expSum            func(x []float32, m float32) float32
	max, maxAbs       func(x *float32, n int) (float32, bool)
	ropeNeox          func(low, high, cos, sin *float32, n int)
	ropeNorm          func(x, cos, sin *float32, n int)
	fromF16, fromBF16 func(dst *float32, src *uint16, n int)
}

// whole is the part of n numbers that the assembly takes.
func whole(n int) int { return n &^ 15 }

// lastVector holds the last numbers of an operation that are no whole vector. Where the assembly rounds differently from
// plain Go (everything with an exponential) they pass through it in here, so that a number's result does not depend on how
// many stand before it: the rows of a call may be any part of a prompt (invariant 1).
type lastVector struct{ x, y [16]float32 }

var lastVectors = sync.Pool{New: func() any { return new(lastVector) }}

// load takes a copy of up to 16 numbers of each operand, with zeros behind them. Its caller gives the vector back.
func load(x, y []float32) *lastVector {
	v := lastVectors.Get().(*lastVector)
	clear(v.x[copy(v.x[:], x):])
	clear(v.y[copy(v.y[:], y):])
	return v
}

// ops adapts the assembly to slices of any length: whole vectors there, the rest as lastVector where rounding differs, in
// plain Go where it is the same or where the length is that of a row.
func (a elemASM) ops() elemOps {
	o := plainElem
	a.arithmetic(&o)
	a.norms(&o)
	a.activations(&o)
	a.reductions(&o)
	a.rotations(&o)
	a.conversions(&o)
	return o
}

func (a elemASM) arithmetic(o *elemOps) {
	o.add = two(a.add, ref.Add)
	o.mul = two(a.mul, ref.Mul)
	o.scale = func(x []float32, s float32) {
		n := whole(len(x))
		if n > 0 {
			a.scale(&x[0], n, s)
		}
		ref.Scale(x[n:], s)
	}
	o.axpy = func(dst []float32, f float32, x []float32) {
		n := whole(len(x))
		if n > 0 {
			a.axpy(&dst[0], &x[0], n, f)
		}
		ref.Axpy(dst[n:], f, x[n:])
	}
}

func two(asm func(dst, x *float32, n int), rest func(dst, x []float32)) func(dst, x []float32) {
	return func(dst, x []float32) {
		n := whole(len(x))
		if n > 0 {
			asm(&dst[0], &x[0], n)
		}
		rest(dst[n:], x[n:])
	}
}

func (a elemASM) norms(o *elemOps) {
	o.rmsNorm = func(dst, x, w []float32, eps float32) {
		n := whole(len(x))
		if n == 0 || w == nil {
			ref.RMSNorm(dst, x, w, eps)
			return
		}
		o.mulScale(dst, x, w, o.rmsScale(x, eps))
	}
	o.rmsScale = func(x []float32, eps float32) float32 {
		n := whole(len(x))
		if n == 0 {
			return ref.RMSScale(x, eps)
		}
		sum := a.sumSquares(&x[0], n, 0)
		for _, v := range x[n:] {
			sum += float64(v) * float64(v)
		}
		return float32(1 / math.Sqrt(sum/float64(len(x))+float64(eps)))
	}
	o.mulScale = func(dst, x, w []float32, s float32) {
		n := whole(len(x))
		if n > 0 {
			a.mulScale(&dst[0], &x[0], &w[0], n, s)
		}
		ref.MulScale(dst[n:], x[n:], w[n:], s)
	}
	o.layerNorm = func(dst, x, w, b []float32, eps float32) {
		n := whole(len(x))
		if n == 0 || w == nil || b == nil {
			ref.LayerNorm(dst, x, w, b, eps)
			return
		}
		mean := a.sum(&x[0], n, 0)
		for _, v := range x[n:] {
			mean += float64(v)
		}
		mean /= float64(len(x))
		sq := a.sumSquares(&x[0], n, mean)
		for _, v := range x[n:] {
			sq += (float64(v) - mean) * (float64(v) - mean)
		}
		s := float32(1 / math.Sqrt(sq/float64(len(x))+float64(eps)))
		a.normalise(&dst[0], &x[0], &w[0], &b[0], n, float32(mean), s)
		for i := n; i < len(x); i++ {
			dst[i] = (x[i]-float32(mean))*s*w[i] + b[i]
		}
	}
}

func (a elemASM) activations(o *elemOps) {
	gated := func(asm func(dst, gate, up *float32, n int)) func(dst, gate, up []float32) {
		return func(dst, gate, up []float32) {
			n := whole(len(gate))
			if n > 0 {
				asm(&dst[0], &gate[0], &up[0], n)
			}
			if n < len(gate) {
				v := load(gate[n:], up[n:len(gate)])
				asm(&v.x[0], &v.x[0], &v.y[0], 16)
				copy(dst[n:len(gate)], v.x[:])
				lastVectors.Put(v)
			}
		}
	}
	o.clampedMul = func(dst, gate, up []float32, alpha, limit float32) {
		n := whole(len(gate))
		if n > 0 {
			a.clampedMul(&dst[0], &gate[0], &up[0], n, alpha, limit)
		}
		if n < len(gate) {
			v := load(gate[n:], up[n:len(gate)])
			a.clampedMul(&v.x[0], &v.x[0], &v.y[0], 16, alpha, limit)
			copy(dst[n:len(gate)], v.x[:])
			lastVectors.Put(v)
		}
	}
	one := func(asm func(x *float32, n int)) func(x []float32) {
		return func(x []float32) {
			n := whole(len(x))
			if n > 0 {
				asm(&x[0], n)
			}
			if n < len(x) {
				v := load(x[n:], nil)
				asm(&v.x[0], 16)
				copy(x[n:], v.x[:])
				lastVectors.Put(v)
			}
		}
	}
	o.siluMul, o.geluMul, o.sigmoidMul = gated(a.siluMul), gated(a.geluMul), gated(a.sigmoidMul)
	o.gelu, o.relu = one(a.gelu), one(a.relu)
	o.softcap = func(x []float32, limit float32) {
		n := whole(len(x))
		if n > 0 {
			a.softcap(&x[0], n, limit)
		}
		if n < len(x) {
			v := load(x[n:], nil)
			a.softcap(&v.x[0], 16, limit)
			copy(x[n:], v.x[:])
			lastVectors.Put(v)
		}
	}
}

func (a elemASM) reductions(o *elemOps) {
	o.dot = func(x, y []float32) float32 {
		n := whole(len(x))
		if n == 0 {
			return ref.Dot(x, y)
		}
		sum := a.dot(&x[0], &y[0], n)
		if n < len(x) {
			sum += ref.Dot(x[n:], y[n:])
		}
		return sum
	}
	extreme := func(asm func(x *float32, n int) (float32, bool), rest func(x []float32) float32) func(x []float32) float32 {
		return func(x []float32) float32 {
			n := whole(len(x))
			if n == 0 {
				return rest(x)
			}
			top, nan := asm(&x[0], n)
			if nan {
				return float32(math.NaN())
			}
			if n < len(x) {
				top = max(top, rest(x[n:]))
			}
			return top
		}
	}
	o.max, o.maxAbs = extreme(a.max, ref.Max), extreme(a.maxAbs, ref.MaxAbs)
	o.softmax = func(x []float32) {
		n := whole(len(x))
		if n == 0 {
			ref.Softmax(x)
			return
		}
		top := o.max(x)
		sum := float64(ref.ExpSum(x[n:], top))
		for part := range slices.Chunk(x[:n], 256) { // float32 sums of more numbers lose bits
			sum += float64(a.expSum(part, top))
		}
		o.scale(x, float32(1/sum))
	}
}

func (a elemASM) rotations(o *elemOps) {
	o.ropeNeox = func(x []float32, heads, d, rot int, cos, sin []float32) {
		half := rot / 2
		if half%16 != 0 || half == 0 {
			ref.RopeNeox(x, heads, d, rot, cos, sin)
			return
		}
		for h := range heads {
			a.ropeNeox(&x[h*d], &x[h*d+half], &cos[0], &sin[0], half)
		}
	}
	o.ropeNorm = func(x []float32, heads, d, rot int, cos, sin []float32) {
		if rot%32 != 0 || rot == 0 {
			ref.RopeNorm(x, heads, d, rot, cos, sin)
			return
		}
		for h := range heads {
			a.ropeNorm(&x[h*d], &cos[0], &sin[0], rot/2)
		}
	}
}

func (a elemASM) conversions(o *elemOps) {
	widen := func(asm func(dst *float32, src *uint16, n int), rest func(dst []float32, src []uint16)) func(dst []float32, src []uint16) {
		return func(dst []float32, src []uint16) {
			n := whole(len(src))
			if n > 0 {
				asm(&dst[0], &src[0], n)
			}
			rest(dst[n:], src[n:])
		}
	}
	o.fromF16, o.fromBF16 = widen(a.fromF16, ref.F16ToF32), widen(a.fromBF16, ref.BF16ToF32)
}
