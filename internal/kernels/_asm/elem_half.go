package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func init() {
	for _, make := range flavours {
		f := make()
		register("elem_half", f.isa, func() {
			f.narrowF16()
			f.widenHalf("F16ToF32", "float16", elements[1])
			f.widenHalf("BF16ToF32", "bfloat16", elements[2])
			if f.wide() {
				f.narrowBF16()
			}
		})
	}
}

func (f *flavour) narrowF16() {
	f.begin("F32ToF16", "func(dst *uint16, src *float32, n int)", "F32ToF16 rounds to float16, to nearest with ties to even.")
	dst, src, n := Load(Param("dst"), GP64()), Load(Param("src"), GP64()), Load(Param("n"), GP64())
	v := f.vec()
	Label("loop")
	for i := 0; i < 16/f.lanes; i++ {
		VMOVUPS(at(src, i*f.bytes()), v)
		VCVTPS2PH(U8(0), v, at(dst, i*f.bytes()/2))
	}
	ADDQ(U8(64), src)
	ADDQ(U8(32), dst)
	SUBQ(U8(16), n)
	JNZ(LabelRef("loop"))
	f.end()
}

func (f *flavour) widenHalf(name, typ string, e element) {
	f.begin(name, "func(dst *float32, src *uint16, n int)", name+" widens "+typ+" exactly.")
	dst, src, n := Load(Param("dst"), GP64()), Load(Param("src"), GP64()), Load(Param("n"), GP64())
	v := f.vec()
	Label("loop")
	for i := 0; i < 16/f.lanes; i++ {
		f.widen(e, at(src, i*f.bytes()/2), v)
		VMOVUPS(v, at(dst, i*f.bytes()))
	}
	ADDQ(U8(32), src)
	ADDQ(U8(64), dst)
	SUBQ(U8(16), n)
	JNZ(LabelRef("loop"))
	f.end()
}

// narrowBF16 rounds with integers: x + 0x7fff + the last bit kept; NaN instead keeps its high half, made quiet.
func (f *flavour) narrowBF16() {
	f.begin("F32ToBF16", "func(dst *uint16, src *float32, n int)", "F32ToBF16 rounds to bfloat16, to nearest with ties to even; NaN stays NaN.")
	dst, src, n := Load(Param("dst"), GP64()), Load(Param("src"), GP64()), Load(Param("n"), GP64())
	v, t, half, one, quiet := f.vec(), f.vec(), f.vec(), f.vec(), f.vec()
	tmp := GP32()
	for i, c := range []uint32{0x7fff, 1, 0x400000} {
		MOVL(U32(c), tmp)
		VPBROADCASTD(tmp, f.regs[num(half)+i])
	}
	Label("loop")
	VMOVUPS(at(src, 0), v)
	VCMPPS(U8(3), v, v, reg.K1)
	VPSRLD(U8(16), v, t)
	VPANDD(one, t, t)
	VPADDD(half, t, t)
	VPADDD(v, t, t)
	VPORD(quiet, v, reg.K1, t)
	VPSRLD(U8(16), t, t)
	VPMOVDW(t, at(dst, 0))
	ADDQ(U8(64), src)
	ADDQ(U8(32), dst)
	SUBQ(U8(16), n)
	JNZ(LabelRef("loop"))
	f.end()
}
