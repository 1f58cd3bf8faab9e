package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Writing pages: 16 rows of keys are turned into a tile, rows of values are narrowed.
func init() {
	for _, make := range flavours {
		f := make()
		register("attn_put", f.isa, func() {
			for _, e := range elements {
				f.putKeys(e)
				f.putKey(e)
				f.putValue(e)
			}
		})
	}
}

// laneNumbers is 0, 1, ... 15.
func laneNumbers() Mem {
	if lanes16 == nil {
		m := GLOBL("laneNumbers", RODATA|NOPTR)
		for i := range 16 {
			DATA(4*i, U32(uint32(i)))
		}
		lanes16 = &m
	}
	return *lanes16
}

var lanes16 *Mem

// narrower holds the constants of rounding to bf16 with integers.
type narrower struct {
	f                *flavour
	e                element
	half, one, quiet reg.VecPhysical
	t, u             reg.VecPhysical
}

func (f *flavour) newNarrower(e element) *narrower {
	n := &narrower{f: f, e: e}
	if e.name != "BF16" {
		return n
	}
	n.half, n.one, n.quiet, n.t = f.vec(), f.vec(), f.vec(), f.vec()
	if !f.wide() {
		n.u = f.vec()
	}
	tmp := GP32()
	for i, c := range []uint32{0x7fff, 1, 0x400000} {
		MOVL(U32(c), tmp)
		f.broadcast32(tmp, []reg.VecPhysical{n.half, n.one, n.quiet}[i])
	}
	return n
}

// store rounds v to the type, to nearest with ties to even, and writes its numbers.
func (n *narrower) store(v reg.VecPhysical, m Mem) {
	switch n.e.name {
	case "F32":
		VMOVUPS(v, m)
	case "F16":
		VCVTPS2PH(U8(0), v, m)
	case "BF16":
		if !n.f.wide() {
			n.storeBF16(v, m)
			return
		}
		VCMPPS(U8(3), v, v, reg.K2)
		VPSRLD(U8(16), v, n.t)
		VPANDD(n.one, n.t, n.t)
		VPADDD(n.half, n.t, n.t)
		VPADDD(v, n.t, n.t)
		VPORD(n.quiet, v, reg.K2, n.t)
		VPSRLD(U8(16), n.t, n.t)
		VPMOVDW(n.t, m)
	}
}

// storeBF16 is store without masks and without a narrowing move.
func (n *narrower) storeBF16(v reg.VecPhysical, m Mem) {
	VPSRLD(U8(16), v, n.t)
	VPAND(n.one, n.t, n.t)
	VPADDD(n.half, n.t, n.t)
	VPADDD(v, n.t, n.t)
	VCMPPS(U8(3), v, v, n.u)
	VPOR(n.quiet, v, v)
	VBLENDVPS(n.u, v, n.t, n.t)
	VPSRLD(U8(16), n.t, n.t)
	VPACKUSDW(n.t, n.t, n.t)
	VPERMQ(U8(0x08), n.t, n.t)
	VMOVDQU(n.t.AsX(), m)
}

func (f *flavour) putKeys(e element) {
	f.begin("PutKeys"+e.name, "func(tile *byte, k *float32, strideBytes, dim int)",
		fmt.Sprintf("PutKeys%s turns 16 rows of keys, strideBytes apart, into a tile [dim][16].", e.name))
	tile, k, stride, dim := Load(Param("tile"), GP64()), Load(Param("k"), GP64()), Load(Param("strideBytes"), GP64()), Load(Param("dim"), GP64())
	parts := 16 / f.lanes
	index, v := f.vecs(parts), f.vec()
	n := f.newNarrower(e)
	for i, x := range index {
		f.broadcast32(stride.(reg.GPVirtual).As32(), x)
		VPMULLD(laneNumbers().Offset(i*f.bytes()), x, x)
	}
	var mask reg.VecPhysical
	if !f.wide() {
		mask = f.vec()
	}
	Label("loop")
	for i, x := range index {
		if f.wide() {
			KXNORW(reg.K1, reg.K1, reg.K1)
			VGATHERDPS(Mem{Base: k, Index: x, Scale: 1}, reg.K1, v)
		} else {
			VPCMPEQD(mask, mask, mask)
			VGATHERDPS(mask, Mem{Base: k, Index: x, Scale: 1}, v)
		}
		n.store(v, at(tile, i*f.lanes*e.size))
	}
	ADDQ(U8(4), k)
	ADDQ(U8(16*e.size), tile)
	DECQ(dim)
	JNZ(LabelRef("loop"))
	f.end()
}

// putKey writes one column of a tile, a number to each of dim/16·size lines and more. Those lines are mostly in another
// core's cache, so all are asked for before the first is written: stores wait for each other, prefetches do not.
func (f *flavour) putKey(e element) {
	f.begin("PutKey"+e.name, "func(cell *byte, k *float32, dim int)",
		fmt.Sprintf("PutKey%s writes one key of dim numbers, a multiple of 16, to a tile [dim][16] from its cell in the first row on.", e.name))
	cell, k, dim := Load(Param("cell"), GP64()), Load(Param("k"), GP64()), Load(Param("dim"), GP64())
	row, v := AllocLocal(64), f.vec()
	n := f.newNarrower(e)
	left, step := GP64(), 16*e.size
	MOVQ(cell, reg.RAX)
	MOVQ(dim, left)
	Label("ask")
	prefetchWriteAX()
	ADDQ(U8(64), reg.RAX)
	SUBQ(U8(64/step), left)
	JG(LabelRef("ask"))
	Label("loop")
	for i := range 16 / f.lanes {
		VMOVUPS(at(k, i*f.bytes()), v)
		n.store(v, row.Offset(i*f.lanes*e.size))
	}
	for i := range 16 {
		number := GP32()
		if from := row.Offset(i * e.size); e.size == 4 {
			MOVL(from, number)
			MOVL(number, at(cell, i*step))
		} else {
			MOVWLZX(from, number)
			MOVW(number.As16(), at(cell, i*step))
		}
	}
	ADDQ(U8(64), k)
	ADDQ(U32(16*step), cell)
	SUBQ(U8(16), dim)
	JNZ(LabelRef("loop"))
	f.end()
}

func (f *flavour) putValue(e element) {
	f.begin("PutValue"+e.name, "func(row *byte, v *float32, dim int)",
		fmt.Sprintf("PutValue%s rounds one value, dim numbers, a multiple of 16.", e.name))
	row, src, dim := Load(Param("row"), GP64()), Load(Param("v"), GP64()), Load(Param("dim"), GP64())
	v := f.vec()
	n := f.newNarrower(e)
	Label("loop")
	for i := range 16 / f.lanes {
		VMOVUPS(at(src, i*f.bytes()), v)
		n.store(v, at(row, i*f.lanes*e.size))
	}
	ADDQ(U8(64), src)
	ADDQ(U8(16*e.size), row)
	SUBQ(U8(16), dim)
	JNZ(LabelRef("loop"))
	f.end()
}
