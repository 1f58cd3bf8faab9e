package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func init() {
	for _, make := range flavours {
		f := make()
		register("attn_pack", f.isa, func() {
			for _, e := range elements {
				f.packKeys(e)
				f.packValues(e)
			}
		})
		if f.wide() {
			register("attn_pack_bf16", f.isa, func() {
				for _, e := range elements {
					f.packKeysBF16(e)
					f.packValuesBF16(e)
				}
				f.packRowsBF16()
			})
		}
	}
}

func (f *flavour) packKeys(e element) {
	f.begin("PackKeys"+e.name, "func(dst *float32, tile *byte, dim int)",
		fmt.Sprintf("PackKeys%s copies a tile of keys [dim][16] to 16 columns of a panel [dim][64].", e.name))
	dst, tile, dim := Load(Param("dst"), GP64()), Load(Param("tile"), GP64()), Load(Param("dim"), GP64())
	v := f.vecs(2)
	Label("loop")
	for i := 0; i < 16/f.lanes; i++ {
		f.widen(e, at(tile, i*f.lanes*e.size), v[i])
		VMOVUPS(v[i], at(dst, i*f.bytes()))
	}
	ADDQ(U8(16*e.size), tile)
	ADDQ(U32(panelBytes), dst)
	DECQ(dim)
	JNZ(LabelRef("loop"))
	f.end()
}

func (f *flavour) packValues(e element) {
	f.begin("PackValues"+e.name, "func(dst *float32, tile *byte, dim, panelBytes int)",
		fmt.Sprintf("PackValues%s copies a tile of values [16][dim] to 16 rows of panels [tokens][64], panelBytes apart; dim is a multiple of 16.", e.name))
	dst, tile, dim := Load(Param("dst"), GP64()), Load(Param("tile"), GP64()), Load(Param("dim"), GP64())
	panel := Load(Param("panelBytes"), GP64())
	v := f.vecs(2)
	f.columns(e, dst, tile, dim, panel, 16, func(src, to reg.Register) {
		for i := 0; i < 16/f.lanes; i++ {
			f.widen(e, at(src, i*f.lanes*e.size), v[i])
			VMOVUPS(v[i], at(to, i*f.bytes()))
		}
	})
}

// columns walks over a tile of values in columns of 16 dimensions: body is called for each of steps rows of the panel.
func (f *flavour) columns(e element, dst, tile, dim, panel reg.Register, steps int, body func(src, to reg.Register)) {
	size, src, to, t, c := GP64(), GP64(), GP64(), GP64(), GP64()
	MOVQ(dim, size)
	SHLQ(U8(log2(e.size)), size)
	if steps == 8 {
		SHLQ(U8(1), size)
	}
	XORQ(c, c)
	SUBQ(U32(panelBytes), panel)
	Label("column")
	MOVQ(tile, src)
	MOVQ(dst, to)
	MOVQ(U32(uint32(steps)), t)
	Label("token")
	body(src, to)
	ADDQ(size, src)
	ADDQ(U32(panelBytes), to)
	DECQ(t)
	JNZ(LabelRef("token"))
	ADDQ(U8(16*e.size), tile)
	ADDQ(U8(64), dst)
	INCQ(c)
	TESTQ(U32(3), c)
	JNZ(LabelRef("same"))
	ADDQ(panel, dst)
	Label("same")
	SUBQ(U8(16), dim)
	JNZ(LabelRef("column"))
	f.end()
}

// pairWords is the order that puts the words of two halves of a register side by side: 0, 16, 1, 17, ...
func pairWords() Mem {
	m := GLOBL("pairWords", RODATA|NOPTR)
	for i := range 16 {
		DATA(4*i, U32(uint32(i)|uint32(16+i)<<16))
	}
	return m
}

var pairOrder *Mem

func (f *flavour) pairIndex() reg.VecPhysical {
	if pairOrder == nil {
		m := pairWords()
		pairOrder = &m
	}
	r := f.vec()
	VMOVDQU32(*pairOrder, r)
	return r
}

// pair loads 16 numbers at two places as pairs of bf16; v are two registers, the result is in the first.
func (f *flavour) pair(e element, first, second Mem, v []reg.VecPhysical, index reg.VecPhysical) {
	if e.name == "BF16" {
		VMOVDQU(first, v[0].AsY())
		VINSERTI64X4(U8(1), second, v[0], v[0])
	} else {
		f.widen(e, first, v[0])
		f.widen(e, second, v[1])
		narrow2(v[0], v[1], v[0])
	}
	VPERMW(v[0], index, v[0])
}

func (f *flavour) packKeysBF16(e element) {
	f.begin("PackKeysBF16From"+e.name, "func(dst *uint16, tile *byte, dim int)",
		fmt.Sprintf("PackKeysBF16From%s copies a tile of keys [dim][16] to 16 columns of a panel [dim/2][64][2]; dim is even.", e.name))
	dst, tile, dim := Load(Param("dst"), GP64()), Load(Param("tile"), GP64()), Load(Param("dim"), GP64())
	index := f.pairIndex()
	v := f.vecs(2)
	Label("loop")
	f.pair(e, at(tile, 0), at(tile, 16*e.size), v, index)
	VMOVDQU32(v[0], at(dst, 0))
	ADDQ(U8(32*e.size), tile)
	ADDQ(U32(panelBytes), dst)
	SUBQ(U8(2), dim)
	JNZ(LabelRef("loop"))
	f.end()
}

func (f *flavour) packValuesBF16(e element) {
	f.begin("PackValuesBF16From"+e.name, "func(dst *uint16, tile *byte, dim, panelBytes int)",
		fmt.Sprintf("PackValuesBF16From%s copies a tile of values [16][dim] to 8 rows of panels [tokens/2][64][2], panelBytes apart; dim is a multiple of 16.", e.name))
	dst, tile, dim := Load(Param("dst"), GP64()), Load(Param("tile"), GP64()), Load(Param("dim"), GP64())
	panel := Load(Param("panelBytes"), GP64())
	index := f.pairIndex()
	v := f.vecs(2)
	rowBytes := GP64()
	MOVQ(dim, rowBytes)
	SHLQ(U8(log2(e.size)), rowBytes)
	f.columns(e, dst, tile, dim, panel, 8, func(src, to reg.Register) {
		f.pair(e, at(src, 0), Mem{Base: src, Index: rowBytes, Scale: 1}, v, index)
		VMOVDQU32(v[0], at(to, 0))
	})
}

func (f *flavour) packRowsBF16() {
	f.begin("PackRowsBF16", "func(dst *uint16, src *float32, n int, scale float32)",
		"PackRowsBF16 rounds scale·src, n numbers, to bf16; n is a multiple of 16.")
	dst, src, n := Load(Param("dst"), GP64()), Load(Param("src"), GP64()), Load(Param("n"), GP64())
	scale, v := f.vec(), f.vec()
	m, err := Param("scale").Resolve()
	if err != nil {
		panic(err)
	}
	VBROADCASTSS(m.Addr, scale)
	Label("loop")
	VMULPS(at(src, 0), scale, v)
	narrow(v, v)
	VMOVDQU(v.AsY(), at(dst, 0))
	ADDQ(U8(64), src)
	ADDQ(U8(32), dst)
	SUBQ(U8(16), n)
	JNZ(LabelRef("loop"))
	f.end()
}
