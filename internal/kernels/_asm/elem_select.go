package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Selecting numbers by comparison: the lanes that pass are squeezed together in the register and stored whole (storing
// through the mask is slow on Zen 4), and the place moves on by their number. AVX2 has no instruction that squeezes: a
// table says for each of 256 masks which lane goes where.
func init() {
	for _, make := range flavours {
		f := make()
		register("elem_select", f.isa, func() {
			f.compress("AtLeast", "at least", 13)
			f.compress("Below", "less than", 1)
			f.reaching()
			if f.wide() {
				f.hide()
			}
		})
	}
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
	from, s := GP64(), f.squeezer()
	MOVQ(dst, from)
	bound, v := f.broadcastParam("bound"), f.vec()
	Label("loop")
	for half := 0; half < 64; half += f.bytes() {
		VMOVUPS(at(x, half), v)
		s.compare(predicate, bound, v)
		s.squeeze(v, v)
		VMOVUPS(v, at(dst, 0))
		LEAQ(Mem{Base: dst, Index: s.count(), Scale: 4}, dst)
	}
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
	from, s := GP64(), f.squeezer()
	MOVQ(dst, from)
	bound, index, step, v := f.broadcastParam("bound"), f.vec(), f.vec(), f.vec()
	lanes := GP32()
	f.broadcast32(first.(reg.GPVirtual).As32(), index)
	if f.wide() {
		VPADDD(laneNumbers(), index, index)
	} else {
		VPADDD(firstLanes(), index, index)
	}
	MOVL(U32(f.lanes), lanes)
	f.broadcast32(lanes, step)
	Label("loop")
	for half := 0; half < 64; half += f.bytes() {
		VMOVUPS(at(x, half), v)
		s.compare(13, bound, v)
		s.squeeze(index, v)
		VMOVUPS(v, at(dst, 0))
		VPADDD(step, index, index)
		LEAQ(Mem{Base: dst, Index: s.count(), Scale: 4}, dst)
	}
	ADDQ(U8(64), x)
	DECQ(n)
	JNZ(LabelRef("loop"))
	SUBQ(from, dst)
	SHRQ(U8(2), dst)
	Store(dst, ReturnIndex(0))
	f.end()
}

// squeezer moves the lanes that passed the last comparison to the front of a register.
type squeezer struct {
	f     *flavour
	mask  reg.GPVirtual
	table reg.GPVirtual   // AVX2: squeezeTable
	order reg.VecPhysical // AVX2
}

func (f *flavour) squeezer() *squeezer {
	s := &squeezer{f: f, mask: GP64()}
	if !f.wide() {
		s.table, s.order = GP64(), f.vec()
		LEAQ(squeezeTable(), s.table)
	}
	return s
}

// compare notes which lanes of v pass the comparison with bound; count is how many.
func (s *squeezer) compare(predicate int, bound, v reg.VecPhysical) {
	if s.f.wide() {
		VCMPPS(U8(predicate), bound, v, reg.K1)
		return
	}
	VCMPPS(U8(predicate), bound, v, s.order)
	VMOVMSKPS(s.order, s.mask.As32())
}

// squeeze writes the lanes of src that passed to the front of dst; what is behind them is undefined.
func (s *squeezer) squeeze(src, dst reg.VecPhysical) {
	if s.f.wide() {
		VPCOMPRESSD_Z(src, reg.K1, dst)
		return
	}
	VPMOVZXBD(Mem{Base: s.table, Index: s.mask, Scale: 8}, s.order)
	VPERMD(src, s.order, dst)
}

// count is how many lanes passed; the mask is used up.
func (s *squeezer) count() reg.Register {
	if s.f.wide() {
		KMOVW(reg.K1, s.mask.As32())
	}
	POPCNTL(s.mask.As32(), s.mask.As32())
	return s.mask
}

var squeezeLanes, lanes8 *Mem

// squeezeTable is, for each mask of 8 lanes, the numbers of its lanes in order, a byte each.
func squeezeTable() Mem {
	if squeezeLanes == nil {
		m := GLOBL("squeezeLanes", RODATA|NOPTR)
		for mask := range 256 {
			at := 8 * mask
			for lane := range 8 {
				if mask>>lane&1 == 1 {
					DATA(at, U8(lane))
					at++
				}
			}
			for ; at < 8*mask+8; at++ {
				DATA(at, U8(0))
			}
		}
		squeezeLanes = &m
	}
	return *squeezeLanes
}

// firstLanes are 0 to 7.
func firstLanes() Mem {
	if lanes8 == nil {
		m := GLOBL("firstLanes", RODATA|NOPTR)
		for lane := range 8 {
			DATA(4*lane, U32(lane))
		}
		lanes8 = &m
	}
	return *lanes8
}
