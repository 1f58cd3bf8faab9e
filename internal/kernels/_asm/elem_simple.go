package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Elementwise kernels take n numbers, n a multiple of 16 and not 0; the rest of a row is done in Go.

func init() {
	for _, make := range flavours {
		f := make()
		register("elem_simple", f.isa, func() {
			f.elementwise("Add", "func(dst, x *float32, n int)", "Add adds x to dst.", []string{"dst", "x"}, func(v []reg.VecPhysical) {
				VADDPS(v[1], v[0], v[0])
			})
			f.elementwise("Mul", "func(dst, x *float32, n int)", "Mul multiplies dst by x.", []string{"dst", "x"}, func(v []reg.VecPhysical) {
				VMULPS(v[1], v[0], v[0])
			})
			f.scaled("Scale", "func(x *float32, n int, s float32)", "Scale multiplies x by s.", []string{"x"}, []string{"s"}, func(v, s []reg.VecPhysical) {
				VMULPS(s[0], v[0], v[0])
			})
			f.scaled("Axpy", "func(dst, x *float32, n int, a float32)", "Axpy adds a·x to dst.", []string{"dst", "x"}, []string{"a"}, func(v, s []reg.VecPhysical) {
				VFMADD231PS(s[0], v[1], v[0])
			})
			f.scaledTo("MulScale", "func(dst, x, w *float32, n int, s float32)", "MulScale writes x·s·w to dst.", []string{"x", "w"}, []string{"s"}, func(v, s []reg.VecPhysical) {
				VMULPS(s[0], v[0], v[0])
				VMULPS(v[1], v[0], v[0])
			})
			f.scaledTo("Normalise", "func(dst, x, w, b *float32, n int, mean, s float32)", "Normalise writes (x-mean)·s·w + b to dst.", []string{"x", "w", "b"}, []string{"mean", "s"}, func(v, s []reg.VecPhysical) {
				VSUBPS(s[0], v[0], v[0])
				VMULPS(s[1], v[0], v[0])
				VFMADD213PS(v[2], v[1], v[0])
			})
			f.elementwise("ReLU", "func(x *float32, n int)", "ReLU replaces negative numbers by 0.", []string{"x"}, func(v []reg.VecPhysical) {
				zero := f.regs[len(f.regs)-1]
				f.zero(zero)
				VMAXPS(v[0], zero, v[0])
			})
			f.dot()
			f.moment("SumSquares", "func(x *float32, n int, mean float64) float64", "SumSquares is Σ (x-mean)², in float64.", true)
			f.moment("Sum", "func(x *float32, n int, mean float64) float64", "Sum is Σ (x-mean), in float64.", false)
			f.extreme("Max", "Max is the largest number, NaN if any is NaN.", false)
			f.extreme("MaxAbs", "MaxAbs is the largest magnitude, NaN if any is NaN.", true)
			f.ropeNeox()
			f.ropeNorm()
		})
	}
}

func (f *flavour) elementwise(name, signature, doc string, params []string, body func(v []reg.VecPhysical)) {
	f.scaled(name, signature, doc, params, nil, func(v, _ []reg.VecPhysical) { body(v) })
}

// scaled emits a loop whose first operand is also the result.
func (f *flavour) scaled(name, signature, doc string, params, scalars []string, body func(v, s []reg.VecPhysical)) {
	f.loop(name, signature, doc, params, scalars, params[0], body)
}

// scaledTo emits a loop whose result is dst.
func (f *flavour) scaledTo(name, signature, doc string, params, scalars []string, body func(v, s []reg.VecPhysical)) {
	f.loop(name, signature, doc, params, scalars, "dst", body)
}

func (f *flavour) loop(name, signature, doc string, params, scalars []string, result string, body func(v, s []reg.VecPhysical)) {
	f.begin(name, signature, doc)
	f.loopBody(params, scalars, result, body)
}

func (f *flavour) loopBody(params, scalars []string, result string, body func(v, s []reg.VecPhysical)) {
	n := Load(Param("n"), GP64())
	pointers := map[string]reg.Register{}
	var order []string
	for _, p := range append([]string{result}, params...) {
		if pointers[p] == nil {
			pointers[p] = Load(Param(p), GP64())
			order = append(order, p)
		}
	}
	var s []reg.VecPhysical
	for _, name := range scalars {
		s = append(s, f.broadcastParam(name))
	}
	v := f.vecs(len(params))
	Label("loop")
	for i := 0; i < 16/f.lanes; i++ {
		for j, p := range params {
			VMOVUPS(at(pointers[p], i*f.bytes()), v[j])
		}
		body(v, s)
		VMOVUPS(v[0], at(pointers[result], i*f.bytes()))
	}
	for _, p := range order {
		ADDQ(U8(64), pointers[p])
	}
	SUBQ(U8(16), n)
	JNZ(LabelRef("loop"))
	f.end()
}

func (f *flavour) broadcastParam(name string) reg.VecPhysical {
	v := f.vec()
	f.broadcastTo(name, v)
	return v
}

func (f *flavour) dot() {
	f.begin("Dot", "func(x, y *float32, n int) float32", "Dot is Σ x·y, summed in lanes.")
	x, y, n := Load(Param("x"), GP64()), Load(Param("y"), GP64()), Load(Param("n"), GP64())
	acc, v := f.vecs(4), f.vec()
	for _, a := range acc {
		f.zero(a)
	}
	step := 4 * f.bytes()
	Label("four")
	CMPQ(n, U8(4*f.lanes))
	JLT(LabelRef("rest"))
	for i, a := range acc {
		VMOVUPS(at(x, i*f.bytes()), v)
		VFMADD231PS(at(y, i*f.bytes()), v, a)
	}
	ADDQ(U32(uint32(step)), x)
	ADDQ(U32(uint32(step)), y)
	SUBQ(U8(4*f.lanes), n)
	JMP(LabelRef("four"))
	Label("rest")
	SUBQ(U8(f.lanes), n)
	JL(LabelRef("done"))
	VMOVUPS(at(x, 0), v)
	VFMADD231PS(at(y, 0), v, acc[0])
	ADDQ(U8(f.bytes()), x)
	ADDQ(U8(f.bytes()), y)
	JMP(LabelRef("rest"))
	Label("done")
	VADDPS(acc[1], acc[0], acc[0])
	VADDPS(acc[3], acc[2], acc[2])
	VADDPS(acc[2], acc[0], acc[0])
	f.lanesSum(acc[0], v)
	Store(acc[0].AsX(), ReturnIndex(0))
	f.end()
}

// moment emits sums in float64: half a register of float32 makes a register of float64.
func (f *flavour) moment(name, signature, doc string, square bool) {
	f.begin(name, signature, doc)
	x, n := Load(Param("x"), GP64()), Load(Param("n"), GP64())
	m, err := Param("mean").Resolve()
	if err != nil {
		panic(err)
	}
	mean, acc, v := f.vec(), f.vecs(4), f.vec()
	VBROADCASTSD(m.Addr, mean)
	for _, a := range acc {
		f.zero(a)
	}
	half := f.lanes / 2
	Label("loop")
	for i := 0; i < 16/half; i++ {
		VCVTPS2PD(at(x, i*4*half), v)
		VSUBPD(mean, v, v)
		if square {
			VFMADD231PD(v, v, acc[i%4])
		} else {
			VADDPD(v, acc[i%4], acc[i%4])
		}
	}
	ADDQ(U8(64), x)
	SUBQ(U8(16), n)
	JNZ(LabelRef("loop"))
	VADDPD(acc[1], acc[0], acc[0])
	VADDPD(acc[3], acc[2], acc[2])
	VADDPD(acc[2], acc[0], acc[0])
	if f.wide() {
		VEXTRACTF64X4(U8(1), acc[0], v.AsY())
		VADDPD(v.AsY(), acc[0].AsY(), acc[0].AsY())
	}
	VEXTRACTF128(U8(1), acc[0].AsY(), v.AsX())
	VADDPD(v.AsX(), acc[0].AsX(), acc[0].AsX())
	VPERMILPD(U8(1), acc[0].AsX(), v.AsX())
	VADDPD(v.AsX(), acc[0].AsX(), acc[0].AsX())
	Store(acc[0].AsX(), ReturnIndex(0))
	f.end()
}

// extreme emits the largest number or magnitude, and whether there was a NaN, which a maximum alone forgets.
func (f *flavour) extreme(name, doc string, magnitude bool) {
	f.begin(name, "func(x *float32, n int) (top float32, nan bool)", doc)
	x, n := Load(Param("x"), GP64()), Load(Param("n"), GP64())
	top, v, tmp, zero, seen := f.vecs(2), f.vec(), f.vec(), f.vec(), f.vec()
	for i := range top {
		VBROADCASTSS(floatConst(float32(negInf)), top[i])
	}
	f.zero(zero)
	if f.wide() {
		KXORW(reg.K2, reg.K2, reg.K2)
	} else {
		f.zero(seen)
	}
	Label("loop")
	for i := 0; i < 16/f.lanes; i++ {
		VMOVUPS(at(x, i*f.bytes()), v)
		if f.wide() {
			VCMPPS(U8(3), v, v, reg.K1)
			KORW(reg.K1, reg.K2, reg.K2)
		} else {
			VCMPPS(U8(3), v, v, tmp)
			VORPS(tmp, seen, seen)
		}
		if magnitude {
			VSUBPS(v, zero, tmp)
			VMAXPS(tmp, v, v)
		}
		VMAXPS(v, top[i], top[i])
	}
	ADDQ(U8(64), x)
	SUBQ(U8(16), n)
	JNZ(LabelRef("loop"))
	if !f.wide() {
		VMAXPS(top[1], top[0], top[0])
	}
	f.lanesMax(top[0], v)
	Store(top[0].AsX(), ReturnIndex(0))
	mask := GP32()
	if f.wide() {
		KMOVW(reg.K2, mask)
	} else {
		VMOVMSKPS(seen, mask)
	}
	TESTL(mask, mask)
	nan := GP8()
	SETNE(nan)
	Store(nan, ReturnIndex(1))
	f.end()
}

// ropeNeox rotates v[i] with v[i+half] for n = half pairs of one head.
func (f *flavour) ropeNeox() {
	f.begin("RopeNeox", "func(low, high, cos, sin *float32, n int)", "RopeNeox turns the pairs (low[i], high[i]) by the angles given, n of them.")
	low, high := Load(Param("low"), GP64()), Load(Param("high"), GP64())
	cos, sin, n := Load(Param("cos"), GP64()), Load(Param("sin"), GP64()), Load(Param("n"), GP64())
	a, b, c, s, t := f.vec(), f.vec(), f.vec(), f.vec(), f.vec()
	Label("loop")
	for i := 0; i < 16/f.lanes; i++ {
		d := i * f.bytes()
		VMOVUPS(at(low, d), a)
		VMOVUPS(at(high, d), b)
		VMOVUPS(at(cos, d), c)
		VMOVUPS(at(sin, d), s)
		VMULPS(b, s, t)
		VFMSUB231PS(a, c, t) // a·c - b·s
		VMOVUPS(t, at(low, d))
		VMULPS(a, s, t)
		VFMADD231PS(b, c, t) // b·c + a·s
		VMOVUPS(t, at(high, d))
	}
	for _, p := range []reg.Register{low, high, cos, sin} {
		ADDQ(U8(64), p)
	}
	SUBQ(U8(16), n)
	JNZ(LabelRef("loop"))
	f.end()
}

// ropeNorm rotates v[2i] with v[2i+1] for n pairs of one head.
func (f *flavour) ropeNorm() {
	f.begin("RopeNorm", "func(x, cos, sin *float32, n int)", "RopeNorm turns the pairs (x[2i], x[2i+1]) by the angles given, n of them.")
	x, cos, sin, n := Load(Param("x"), GP64()), Load(Param("cos"), GP64()), Load(Param("sin"), GP64()), Load(Param("n"), GP64())
	v, c, s, t := f.vec(), f.vec(), f.vec(), f.vec()
	half := f.bytes() / 2
	Label("loop")
	for i := 0; i < 32/f.lanes; i++ {
		VMOVUPS(at(x, i*f.bytes()), v)
		VPMOVZXDQ(at(cos, i*half), c)
		VPMOVZXDQ(at(sin, i*half), s)
		VMOVSLDUP(c, c)
		VMOVSLDUP(s, s)
		VPERMILPS(U8(0xb1), v, t)
		VMULPS(s, t, t)
		VFMADDSUB213PS(t, c, v) // even lanes v·c - t, odd lanes v·c + t
		VMOVUPS(v, at(x, i*f.bytes()))
	}
	ADDQ(U32(128), x)
	ADDQ(U8(64), cos)
	ADDQ(U8(64), sin)
	SUBQ(U8(16), n)
	JNZ(LabelRef("loop"))
	f.end()
}
