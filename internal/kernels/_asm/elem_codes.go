package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Codes are numbers divided by a scale, cut and rounded by adding 1.5·2^23: the low byte of the sum is the code. Magnitudes are cut by
// their bits, so that NaN is cut too. AVX-512's path calls this too: division bounds it, which is no faster there a lane.
func init() {
	f := flavours[1]()
	register("elem_codes", f.isa, func() {
		magnitude, gather := ConstData("magnitude", U32(1<<31-1)), []Mem{lowBytes(0), lowBytes(4)}
		f.codes("CodesOne", "func(dst *int8, x *float32, scale float32, n int, most float32)", "CodesOne rounds x/scale.", false, magnitude, gather)
		f.codes("CodesEach", "func(dst *int8, x, scale *float32, n int, most float32)", "CodesEach rounds x by a scale each, 0 where that is not above 0.", true, magnitude, gather)
	})
}

func (f *flavour) codes(name, signature, doc string, each bool, bits Mem, gather []Mem) {
	f.begin(name, signature, doc+" Codes are cut to most; n is a multiple of 16 and not 0.")
	dst, x, n := Load(Param("dst"), GP64()), Load(Param("x"), GP64()), Load(Param("n"), GP64())
	var scales reg.Register
	var scale reg.VecPhysical
	if each {
		scales = Load(Param("scale"), GP64())
	} else {
		scale = f.broadcastParam("scale")
	}
	most, magnitude, rounder, zero := f.broadcastParam("most"), f.vec(), f.vec(), f.vec()
	VBROADCASTSS(bits, magnitude)
	VBROADCASTSS(floatConst(12582912), rounder)
	f.zero(zero)
	v, sign, tmp := f.vecs(2), f.vec(), f.vec()
	Label("loop")
	for i, v := range v {
		VMOVUPS(at(x, i*f.bytes()), v)
		if each {
			VMOVUPS(at(scales, i*f.bytes()), tmp)
			VDIVPS(tmp, v, v)
		} else {
			VDIVPS(scale, v, v)
		}
		VANDNPS(v, magnitude, sign)
		VANDPS(magnitude, v, v)
		VPMINUD(most, v, v)
		VORPS(sign, v, v)
		VADDPS(rounder, v, v)
		if each {
			VCMPPS(U8(1), tmp, zero, tmp) // 0 < scale
			VANDPS(tmp, v, v)
		}
		VPSHUFB(gather[i], v, v)
	}
	VPOR(v[1], v[0], v[0])
	VEXTRACTI128(U8(1), v[0], tmp.AsX())
	VPUNPCKLDQ(tmp.AsX(), v[0].AsX(), v[0].AsX())
	VMOVDQU(v[0].AsX(), Mem{Base: dst})
	ADDQ(U8(16), dst)
	ADDQ(U8(64), x)
	if each {
		ADDQ(U8(64), scales)
	}
	SUBQ(U8(16), n)
	JNZ(LabelRef("loop"))
	f.end()
}

// lowBytes picks the low byte of four numbers a half of a register and puts them from byte first on, zeros elsewhere.
func lowBytes(first int) Mem {
	m := GLOBL("lowBytes"+string(rune('0'+first)), RODATA|NOPTR)
	for half := range 2 {
		for i := range 16 {
			from := byte(0x80)
			if j := i - first; j >= 0 && j < 4 {
				from = byte(4 * j)
			}
			DATA(16*half+i, U8(from))
		}
	}
	return m
}
