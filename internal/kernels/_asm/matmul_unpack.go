package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

func init() {
	for _, isa := range []string{"avx512", "avx2"} {
		register("matmul_unpack", isa, func() {
			s := newSIMD(isa)
			for _, f := range formats {
				s.unpack(f)
			}
		})
	}
}

// unpack emits the dequantisation of a tile's records into a float32 panel [column][16 rows], bit for bit as
// quant.Dequantize does it: every product of an integer weight with its scale is exact in float32, so that fused and
// separate operations agree. About 160 operations a record of 512 weights, and 2 KiB written.
func (s *simd) unpack(f format) {
	name := "Unpack" + f.name
	s.function(name, "func(panel *float32, tile *byte, first, records int)",
		name+" writes columns 32*first.. of records*32 columns of a "+f.name+" tile as float32 [column][16 rows].")
	for pass := range s.passes() {
		panel := Load(Param("panel"), GP64())
		base := Load(Param("tile"), GP64())
		first := Load(Param("first"), GP64())
		left := Load(Param("records"), GP64())
		s.used = 0
		w := s.vecs(8)
		t0, t1 := s.vec(), s.vec()
		sc := s.scaleRegs(f)
		u := s.unpacker(f, t0, t1)
		if f.super() { // first is a multiple of 8
			SHRQ(U8(3), first)
			IMUL3Q(I32(8*f.recordBytes()+f.headerBytes()), first, first)
		} else {
			IMUL3Q(I32(f.recordBytes()), first, first)
		}
		ADDQ(first, base)
		c := s.newCursor(f, base)
		if pass == 1 {
			c.rows8()
			ADDQ(U8(32), panel)
		}
		super, record := fmt.Sprintf("super%d", pass), fmt.Sprintf("record%d", pass)
		inner := GP64()
		if f.super() {
			Label(super)
			MOVQ(c.halves, c.header)
			c.advance(f.headerBytes())
			MOVQ(U32(8), inner)
		}
		Label(record)
		u.emit(Mem{Base: c.planes}, w)
		s.emitScales(c, sc, t0)
		for h := range sc.m {
			if f.scale == "super16" {
				s.negate(sc.m[h])
			}
		}
		for g, v := range w {
			h := 0
			if f.scale == "super16" {
				h = g / 4
			}
			for j := range 4 {
				s.widenByte(f, v, j, t0)
				VCVTDQ2PS(t0, t0)
				if f.min {
					VFMADD213PS(sc.m[h], sc.d[h], t0)
				} else {
					VMULPS(sc.d[h], t0, t0)
				}
				VMOVUPS(t0, Mem{Base: panel, Disp: (4*g + j) * 64})
			}
		}
		c.advance(f.recordBytes())
		ADDQ(U32(32*64), panel)
		if f.super() {
			DECQ(inner)
			JNZ(LabelRef(record))
			SUBQ(U8(8), left)
			JNZ(LabelRef(super))
		} else {
			DECQ(left)
			JNZ(LabelRef(record))
		}
	}
	VZEROUPPER()
	RET()
}

// widenByte sets dst to byte j of every dword of v as a signed weight.
func (s *simd) widenByte(f format, v Op, j int, dst Op) {
	if f.signedOn(s) {
		VPSLLD(U8(24-8*j), v, dst)
		VPSRAD(U8(24), dst, dst)
		return
	}
	VPSLLD(U8(24-8*j), v, dst)
	VPSRLD(U8(24), dst, dst)
	if f.bias >= 0 {
		VPSUBD(s.dwordOf(1<<f.bias), dst, dst)
	}
}
