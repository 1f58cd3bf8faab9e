package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func init() {
	for _, make := range flavours {
		f := make()
		register("elem_exp", f.isa, func() {
			f.gated("SiluMul", "SiluMul writes gate/(1+e^-gate)·up to dst.", silu, true)
			f.gated("SigmoidMul", "SigmoidMul writes 1/(1+e^-gate)·up to dst.", sigmoid, true)
			f.gated("GeluMul", "GeluMul writes gelu(gate)·up to dst, gelu in its tanh form.", gelu, true)
			f.gated("Gelu", "Gelu replaces x by gelu(x) in its tanh form.", gelu, false)
			f.clamped()
			f.softcap()
		})
	}
}

// gate is which function of a gate a kernel multiplies by.
type gate int

const (
	silu gate = iota
	gelu
	sigmoid
)

// gated emits g/(1+e^-z)·up with z = g (silu; sigmoid with 1 in place of the first g), or 2·sqrt(2/π)·(g + 0.044715·g³) (gelu: (1+tanh u)/2 = 1/(1+e^-2u)).
// Where e^-z overflows the quotient is -0; NaN stays.
func (f *flavour) gated(name, doc string, kind gate, up bool) {
	if up {
		f.begin(name, "func(dst, gate, up *float32, n int)", doc)
	} else {
		f.begin(name, "func(x *float32, n int)", doc)
	}
	var dst, gate, ups reg.Register
	if up {
		dst, gate, ups = Load(Param("dst"), GP64()), Load(Param("gate"), GP64()), Load(Param("up"), GP64())
	} else {
		dst = Load(Param("x"), GP64())
		gate = dst
	}
	n := Load(Param("n"), GP64())
	e := f.newExponential(true)
	one := f.operand(1)
	g, z, t := f.vec(), f.vec(), f.vecs(e.temps())
	Label("loop")
	for i := 0; i < 16/f.lanes; i++ {
		d := i * f.bytes()
		VMOVUPS(at(gate, d), g)
		if kind == gelu {
			VMULPS(g, g, z)
			VMULPS(f.operandOnce(-0.0713548162726), z, z) // -2·sqrt(2/π)·0.044715
			VADDPS(f.operandOnce(-1.5957691216057), z, z) // -2·sqrt(2/π)
			VMULPS(g, z, z)
		} else {
			VMULPS(f.operandOnce(-1), g, z)
		}
		e.apply(z, t)
		VADDPS(one, z, z)
		if kind == sigmoid {
			VMOVUPS(one, g)
		}
		VDIVPS(z, g, z)
		if up {
			VMULPS(at(ups, d), z, z)
		}
		VMOVUPS(z, at(dst, d))
	}
	ADDQ(U8(64), dst)
	if up {
		ADDQ(U8(64), gate)
		ADDQ(U8(64), ups)
	}
	SUBQ(U8(16), n)
	JNZ(LabelRef("loop"))
	f.end()
}

// clamped emits (u+1)·g·σ(alpha·g) with g = min(gate, limit) and u = up within ±limit; NaN stays.
func (f *flavour) clamped() {
	f.begin("ClampedMul", "func(dst, gate, up *float32, n int, alpha, limit float32)",
		"ClampedMul writes (u+1)·g/(1+e^(-alpha·g)) to dst, g = min(gate, limit), u = up within ±limit.")
	dst, gate, up, n := Load(Param("dst"), GP64()), Load(Param("gate"), GP64()), Load(Param("up"), GP64()), Load(Param("n"), GP64())
	e := f.newExponential(true)
	one := f.operand(1)
	alpha, limit := f.broadcastParam("alpha"), f.broadcastParam("limit")
	g, z, t := f.vec(), f.vec(), f.vecs(max(2, e.temps()))
	Label("loop")
	for i := 0; i < 16/f.lanes; i++ {
		d := i * f.bytes()
		VMOVUPS(at(gate, d), g)
		VMINPS(g, limit, g) // of a NaN and a number the first operand
		f.zero(z)
		VSUBPS(alpha, z, z)
		VMULPS(g, z, z)
		e.apply(z, t)
		VADDPS(one, z, z)
		VDIVPS(z, g, z)
		VMOVUPS(at(up, d), g)
		VMINPS(g, limit, g)
		f.zero(t[0])
		VSUBPS(limit, t[0], t[0])
		VMAXPS(g, t[0], g)
		VADDPS(one, g, g)
		VMULPS(g, z, z)
		VMOVUPS(z, at(dst, d))
	}
	ADDQ(U8(64), dst)
	ADDQ(U8(64), gate)
	ADDQ(U8(64), up)
	SUBQ(U8(16), n)
	JNZ(LabelRef("loop"))
	f.end()
}

// operandOnce is v in all lanes as a memory operand or in a register; within a loop body, which runs once a vector, the
// wide flavour takes the embedded form's place by a register that is loaded again.
func (f *flavour) operandOnce(v float32) Op {
	if !f.wide() {
		return vectorConst(v)
	}
	r := f.regs[len(f.regs)-1]
	VBROADCASTSS(floatConst(v), r)
	return r
}

// softcap emits cap·tanh(x/cap): 1 - 2/(1+e^2y), and for |y| < 1/4 the odd series to y^9, whose error is 1e-8 of y
// where the quotient would cancel.
func (f *flavour) softcap() {
	f.begin("Softcap", "func(x *float32, n int, limit float32)", "Softcap replaces x by limit·tanh(x/limit).")
	x, n := Load(Param("x"), GP64()), Load(Param("n"), GP64())
	limit := f.broadcastParam("limit")
	e := f.newExponential(true)
	one := f.constant(1)
	y, z, p := f.vec(), f.vec(), f.vec()
	t := f.vecs(e.temps())
	Label("loop")
	for i := 0; i < 16/f.lanes; i++ {
		VMOVUPS(at(x, i*f.bytes()), y)
		VDIVPS(limit, y, y)
		VADDPS(y, y, z)
		e.apply(z, t)
		VADDPS(one, z, z)
		VDIVPS(z, one, z)
		VADDPS(z, z, z)
		VSUBPS(z, one, z) // 1 - 2/(1+e^2y)
		VMULPS(y, y, t[0])
		f.setTo(62.0/2835, p)
		for _, c := range []float32{-17.0 / 315, 2.0 / 15, -1.0 / 3, 1} {
			VFMADD213PS(f.operandOnce(c), t[0], p)
		}
		VMULPS(y, p, p)
		// |y| < 1/4: y² < 1/16.
		f.setTo(1.0/16, y)
		if f.wide() {
			VCMPPS(U8(1), y, t[0], reg.K1)
			VBLENDMPS(p, z, reg.K1, z)
		} else {
			VCMPPS(U8(1), y, t[0], t[0])
			VBLENDVPS(t[0], p, z, z)
		}
		VMULPS(limit, z, z)
		VMOVUPS(z, at(x, i*f.bytes()))
	}
	ADDQ(U8(64), x)
	SUBQ(U8(16), n)
	JNZ(LabelRef("loop"))
	f.end()
}

// setTo fills a register with a constant.
func (f *flavour) setTo(v float32, r reg.VecPhysical) { VBROADCASTSS(floatConst(v), r) }
