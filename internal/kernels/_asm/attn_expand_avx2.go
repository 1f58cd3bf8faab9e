package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// AVX2 reads quantised pages by expanding a tile to float32 first, 8 numbers at a time.
func init() {
	f := flavours[1]()
	register("attn_expand", f.isa, func() {
		for _, e := range quantisedElements {
			f.expandKeysNarrow(e)
			f.expandValuesNarrow(e)
		}
	})
}

// narrowScale broadcasts a float16 in memory to 8 lanes as float32.
func narrowScale(m Mem, dst reg.VecPhysical) {
	VPBROADCASTW(m, dst.AsX())
	VCVTPH2PS(dst.AsX(), dst)
}

// codes8 turns 8 bytes into two registers: int8 takes the second from 8 bytes further on, int4 from the high halves.
func (f *flavour) codes8(e element, m, second Mem, v []reg.VecPhysical, nibbles reg.VecPhysical) {
	if e.name == "I8" {
		VPMOVSXBD(m, v[0])
		VPMOVSXBD(second, v[1])
	} else {
		VPMOVZXBD(m, v[0])
		VPSRLD(U8(4), v[0], v[1])
		VPAND(nibbles, v[0], v[0])
	}
	VCVTDQ2PS(v[0], v[0])
	VCVTDQ2PS(v[1], v[1])
}

// descale turns codes into numbers.
func descale(e element, v []reg.VecPhysical, scale, minimum reg.VecPhysical) {
	for _, r := range v {
		if e.name == "I8" {
			VMULPS(scale, r, r)
		} else {
			VFMADD213PS(minimum, scale, r)
		}
	}
}

func (f *flavour) expandKeysNarrow(e element) {
	f.begin("ExpandKeys"+e.name, "func(dst, tile *byte, dim int)",
		fmt.Sprintf("ExpandKeys%s writes a quantised tile of keys as float32 [dim][16].", e.name))
	dst, tile, dim := Load(Param("dst"), GP64()), Load(Param("tile"), GP64()), Load(Param("dim"), GP64())
	minima, codes := GP64(), GP64()
	LEAQ(Mem{Base: tile, Index: dim, Scale: 2}, minima)
	LEAQ(Mem{Base: tile, Index: dim, Scale: uint8(16 / e.bits)}, codes)
	nibbles := f.lowNibbles()
	v, scale, minimum := f.vecs(2), f.vec(), f.vec()
	Label("loop")
	f.codes8(e, at(codes, 0), at(codes, 8), v, nibbles)
	narrowScale(at(tile, 0), scale)
	if e.name == "I4" {
		narrowScale(at(minima, 0), minimum)
		ADDQ(U8(2), minima)
	}
	descale(e, v, scale, minimum)
	VMOVUPS(v[0], at(dst, 0))
	VMOVUPS(v[1], at(dst, 32))
	ADDQ(U8(2), tile)
	ADDQ(U8(2*e.bits), codes)
	ADDQ(U8(64), dst)
	DECQ(dim)
	JNZ(LabelRef("loop"))
	f.end()
}

func (f *flavour) expandValuesNarrow(e element) {
	f.begin("ExpandValues"+e.name, "func(dst, tile *byte, dim int)",
		fmt.Sprintf("ExpandValues%s writes a quantised tile of values as float32 [16][dim]; dim is a multiple of 32.", e.name))
	dst, rowStart, dim := Load(Param("dst"), GP64()), Load(Param("tile"), GP64()), Load(Param("dim"), GP64())
	header, groups, t, codes, scales, done := GP64(), GP64(), GP64(), GP64(), GP64(), GP64()
	LEAQ(at(dim, 63), groups)
	SHRQ(U8(6), groups)
	MOVQ(groups, header)
	SHLQ(U8(log2(16/e.bits)), header) // 2 or 4 bytes a group
	nibbles := f.lowNibbles()
	v, scale, minimum := f.vecs(2), f.vec(), f.vec()
	MOVQ(U32(16), t)
	Label("token")
	MOVQ(rowStart, scales)
	LEAQ(Mem{Base: rowStart, Index: header, Scale: 1}, codes)
	XORQ(done, done)
	Label("dims") // 32 at a time; a group is 64
	narrowScale(at(scales, 0), scale)
	if e.name == "I4" {
		narrowScale(at(scales, 2), minimum)
	}
	for i := range 2 {
		if e.name == "I8" {
			f.codes8(e, at(codes, 16*i), at(codes, 16*i+8), v, nibbles)
		} else {
			f.codes8(e, at(codes, 8*i), Mem{}, v, nibbles)
		}
		descale(e, v, scale, minimum)
		if e.name == "I8" {
			VMOVUPS(v[0], at(dst, 64*i))
			VMOVUPS(v[1], at(dst, 64*i+32))
		} else { // the high halves are 16 dimensions further on
			VMOVUPS(v[0], at(dst, 32*i))
			VMOVUPS(v[1], at(dst, 32*i+64))
		}
	}
	ADDQ(U8(4*e.bits), codes)
	ADDQ(U32(128), dst)
	ADDQ(U8(32), done)
	TESTQ(U32(32), done)
	JNZ(LabelRef("same"))
	ADDQ(U8(16/e.bits), scales)
	Label("same")
	CMPQ(done, dim)
	JLT(LabelRef("dims"))
	MOVQ(codes, rowStart) // the codes end where the next token starts
	DECQ(t)
	JNZ(LabelRef("token"))
	f.end()
}
