package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Integer products of 8-bit queries with tiles of key codes (kvpage: [groups][16 tokens][4 bytes]). A byte of an int8 tile
// is one dimension, 4 to a group; of an int4 tile it is two, offset by 8: dimension j in the low half, j+4 in the high one.
//
//	64 bytes of a tile cost, a query: int8 1 VPDPBUSD, or VPSIGNB, VPMADDUBSW, VPMADDWD, VPADDD twice; int4 2 VPDPBUSD, or
//	2 VPMADDUBSW, VPADDW, VPMADDWD, VPADDD twice.
func init() {
	for _, make := range flavours {
		f := make()
		register("attn_codes", f.isa, func() {
			for _, bits := range []int{8, 4} {
				for rows := 1; rows <= 4; rows++ {
					f.dotCodes(bits, rows)
				}
			}
		})
	}
}

// coder holds the registers of one dotCodes.
type coder struct {
	f            *flavour
	bits, rows   int
	acc          []reg.VecPhysical
	w, high, x   reg.VecPhysical
	mask, ones   reg.VecPhysical
	q, qBytes    reg.Register
	qBytes3, pos reg.Register
}

func (f *flavour) dotCodes(bits, rows int) {
	f.begin(fmt.Sprintf("DotCodes%dx%d", bits, rows),
		"func(dst *float32, dstBytes int, q *int8, qBytes int, bias *int32, codes *byte, tiles, groups int, unit, scales *float32, step int)",
		fmt.Sprintf("DotCodes%dx%d writes q·codes + bias of %d queries, qBytes apart, to rows of dst, dstBytes apart: as int32, or, where there are "+
			"scales, as float32 times the query's unit and the tokens' scales, step bytes a tile further on.", bits, rows, rows))
	c := coder{f: f, bits: bits, rows: rows, q: Load(Param("q"), GP64()), qBytes: Load(Param("qBytes"), GP64()), pos: GP64()}
	dst, stride := Load(Param("dst"), GP64()), Load(Param("dstBytes"), GP64())
	codes, tiles := Load(Param("codes"), GP64()), Load(Param("tiles"), GP64())
	scales, at := Load(Param("scales"), GP64()), GP64()
	stride3 := reg.Register(nil)
	if rows == 4 {
		c.qBytes3, stride3 = GP64(), GP64()
		LEAQ(Mem{Base: c.qBytes, Index: c.qBytes, Scale: 2}, c.qBytes3)
		LEAQ(Mem{Base: stride, Index: stride, Scale: 2}, stride3)
	}
	c.acc = f.vecs(rows)
	c.w, c.high, c.x = f.vec(), f.vec(), f.vec()
	c.constants()
	row := func(base, stride, stride3 reg.Register, r, disp int) Mem {
		if r == 3 {
			return Mem{Base: base, Index: stride3, Scale: 1, Disp: disp}
		}
		return row(base, stride, r, disp)
	}
	Label("tile")
	for half := 0; half < 64; half += f.bytes() {
		label := func(s string) string { return fmt.Sprintf("%s%d", s, half) }
		Load(Param("bias"), at)
		for r, a := range c.acc {
			VPBROADCASTD(Mem{Base: at, Disp: 4 * r}, a)
		}
		qd, left := GP64(), GP64()
		MOVQ(c.q, qd)
		MOVQ(codes, at)
		Load(Param("groups"), left)
		Label(label("group"))
		if half == 0 {
			PREFETCHT0(Mem{Base: at, Disp: 4096})
		}
		c.multiply(Mem{Base: at, Disp: half}, func(r, disp int) Mem { return row(qd, c.qBytes, c.qBytes3, r, disp) })
		ADDQ(U8(64), at)
		ADDQ(U8(4*8/bits), qd)
		DECQ(left)
		JNZ(LabelRef(label("group")))
		TESTQ(scales, scales)
		JZ(LabelRef(label("store")))
		Load(Param("unit"), c.pos)
		for r, a := range c.acc {
			VCVTDQ2PS(a, a)
			VBROADCASTSS(Mem{Base: c.pos, Disp: 4 * r}, c.x)
			VMULPS(c.x, a, a)
			VMULPS(Mem{Base: scales, Disp: half}, a, a)
		}
		Label(label("store"))
		for r, a := range c.acc {
			VMOVUPS(a, row(dst, stride, stride3, r, half))
		}
	}
	MOVQ(at, codes)
	ADDQ(U8(64), dst)
	Load(Param("step"), at)
	ADDQ(at, scales)
	DECQ(tiles)
	JNZ(LabelRef("tile"))
	f.end()
}

// constants loads what multiply needs: the sign bits (int8 on AVX-512), the low halves of bytes (int4), ones (AVX2).
func (c *coder) constants() {
	tmp := GP32()
	value := map[int]uint32{8: 0x80808080, 4: 0x0f0f0f0f}[c.bits]
	c.mask = c.f.vec()
	MOVL(U32(value), tmp)
	c.f.broadcast32(tmp, c.mask)
	if !c.f.wide() {
		c.ones = c.f.vec()
		MOVL(U32(0x00010001), tmp)
		c.f.broadcast32(tmp, c.ones)
	}
}

func (f *flavour) broadcast32(r reg.Register, v reg.VecPhysical) {
	if f.wide() {
		VPBROADCASTD(r, v)
		return
	}
	VMOVD(r, v.AsX())
	VPBROADCASTD(v.AsX(), v)
}

// multiply adds the products of one register of codes to every sum; q is where the group's bytes of a query lie.
func (c *coder) multiply(codes Mem, q func(r, disp int) Mem) {
	switch {
	case c.bits == 8 && c.f.wide():
		VPXORD(codes, c.mask, c.w)
		for r, a := range c.acc {
			VPDPBUSD_BCST(q(r, 0), c.w, a)
		}
	case c.bits == 8: // the query takes the codes' signs
		VMOVDQU(codes, c.w)
		VPABSB(c.w, c.high)
		for r, a := range c.acc {
			VPBROADCASTD(q(r, 0), c.x)
			VPSIGNB(c.w, c.x, c.x)
			VPMADDUBSW(c.x, c.high, c.x)
			VPMADDWD(c.ones, c.x, c.x)
			VPADDD(c.x, a, a)
		}
	case c.f.wide():
		VMOVDQU32(codes, c.w)
		VPSRLW(U8(4), c.w, c.high)
		VPANDD(c.mask, c.w, c.w)
		VPANDD(c.mask, c.high, c.high)
		for r, a := range c.acc {
			VPDPBUSD_BCST(q(r, 0), c.w, a)
			VPDPBUSD_BCST(q(r, 4), c.high, a)
		}
	default:
		VMOVDQU(codes, c.w)
		VPSRLW(U8(4), c.w, c.high)
		VPAND(c.mask, c.w, c.w)
		VPAND(c.mask, c.high, c.high)
		y := c.f.regs[15]
		for r, a := range c.acc {
			VPBROADCASTD(q(r, 0), c.x)
			VPMADDUBSW(c.x, c.w, c.x)
			VPBROADCASTD(q(r, 4), y)
			VPMADDUBSW(y, c.high, y)
			VPADDW(y, c.x, c.x)
			VPMADDWD(c.ones, c.x, c.x)
			VPADDD(c.x, a, a)
		}
	}
}
