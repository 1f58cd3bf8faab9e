package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Selecting numbers by comparison: the lanes that pass are squeezed together in the register and stored whole (storing
// through the mask is slow on Zen 4), and the place moves on by their number.
func init() {
	f := flavours[0]()
	register("elem_select", f.isa, func() {
		f.compress("AtLeast", "at least", 13)
		f.compress("Below", "less than", 1)
		f.reaching()
		f.hide()
	})
}

// hide blends and stores whole registers: storing through a mask is no faster.
func (f *flavour) hide() {
	f.begin("Hide", "func(x *float32, masks *uint16, tiles int)", "Hide writes -Inf to the numbers of x, in tiles of 16, whose bits are not set.")
	x, masks, n := Load(Param("x"), GP64()), Load(Param("masks"), GP64()), Load(Param("tiles"), GP64())
	infinity, low, v := GP32(), f.vec(), f.vec()
	MOVL(U32(0xff800000), infinity)
	VPBROADCASTD(infinity, low)
	Label("loop")
	KMOVW(Mem{Base: masks}, reg.K1)
	VMOVAPS(low, v)
	VMOVUPS(at(x, 0), reg.K1, v)
	VMOVUPS(v, at(x, 0))
	ADDQ(U8(64), x)
	ADDQ(U8(2), masks)
	DECQ(n)
	JNZ(LabelRef("loop"))
	f.end()
}

func (f *flavour) compress(name, words string, predicate int) {
	f.begin(name, "func(dst, x *float32, blocks int, bound float32) int",
		fmt.Sprintf("%s copies the numbers that are %s bound, of blocks of 16, to dst, which may be x and has room for 16 more, and returns how many.", name, words))
	dst, x, n := Load(Param("dst"), GP64()), Load(Param("x"), GP64()), Load(Param("blocks"), GP64())
	from, mask := GP64(), GP64()
	MOVQ(dst, from)
	bound, v := f.broadcastParam("bound"), f.vec()
	Label("loop")
	VMOVUPS(at(x, 0), v)
	VCMPPS(U8(predicate), bound, v, reg.K1)
	VCOMPRESSPS_Z(v, reg.K1, v)
	VMOVUPS(v, at(dst, 0))
	KMOVW(reg.K1, mask.As32())
	POPCNTL(mask.As32(), mask.As32())
	LEAQ(Mem{Base: dst, Index: mask, Scale: 4}, dst)
	ADDQ(U8(64), x)
	DECQ(n)
	JNZ(LabelRef("loop"))
	SUBQ(from, dst)
	SHRQ(U8(2), dst)
	Store(dst, ReturnIndex(0))
	f.end()
}

func (f *flavour) reaching() {
	f.begin("Reaching", "func(dst *int32, x *float32, blocks int, bound float32, first int) int",
		"Reaching writes the numbers, counted from first on, of the floats that are at least bound, of blocks of 16, to dst, which has room for 16 more, and returns how many.")
	dst, x, n := Load(Param("dst"), GP64()), Load(Param("x"), GP64()), Load(Param("blocks"), GP64())
	first := Load(Param("first"), GP64())
	from, mask := GP64(), GP64()
	MOVQ(dst, from)
	bound, index, step, v := f.broadcastParam("bound"), f.vec(), f.vec(), f.vec()
	VPBROADCASTD(first.(reg.GPVirtual).As32(), index)
	VPADDD(laneNumbers(), index, index)
	sixteen := GP32()
	MOVL(U32(16), sixteen)
	VPBROADCASTD(sixteen, step)
	Label("loop")
	VMOVUPS(at(x, 0), v)
	VCMPPS(U8(13), bound, v, reg.K1)
	VPCOMPRESSD_Z(index, reg.K1, v)
	VMOVDQU32(v, at(dst, 0))
	KMOVW(reg.K1, mask.As32())
	POPCNTL(mask.As32(), mask.As32())
	LEAQ(Mem{Base: dst, Index: mask, Scale: 4}, dst)
	VPADDD(step, index, index)
	ADDQ(U8(64), x)
	DECQ(n)
	JNZ(LabelRef("loop"))
	SUBQ(from, dst)
	SHRQ(U8(2), dst)
	Store(dst, ReturnIndex(0))
	f.end()
}
