package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

func init() {
	for _, make := range flavours {
		f := make()
		register("elem_half", f.isa, func() {
			f.widenHalf("F16ToF32", "float16", elements[1])
			f.widenHalf("BF16ToF32", "bfloat16", elements[2])
		})
	}
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
