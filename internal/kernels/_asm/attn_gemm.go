package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Panels are 64 columns wide: [k][64] float32, or [k/2][64][2] bf16, 256 bytes a step in both.
const (
	panelBytes = 256
	gemmRows   = 6 // rows a register tile: 6 × 4 zmm or 6 × 2 ymm of sums
)

func init() {
	for _, make := range flavours {
		f := make()
		register("attn_gemm", f.isa, func() { f.gemm("F32", "float32", "[k][64] float32", false) })
		if f.wide() {
			register("attn_gemm_bf16", f.isa, func() { f.gemm("BF16", "uint16", "[k][64][2] bf16; a step of k is a pair", true) })
		}
	}
}

// gemmRegs are the registers of the product; rows 0-2 are reached from the first base, 3-5 from the second.
type gemmRegs struct {
	c, c3, cStride, a, a3, aStride, b, k, rows, scale reg.GPVirtual
	bf16                                              bool
}

func (f *flavour) gemm(name, typ, panel string, bf16 bool) {
	f.begin("Gemm"+name, fmt.Sprintf("func(c *float32, cBytes int, a *%s, aBytes int, b *%s, k, rows int, scale *float32)", typ, typ),
		fmt.Sprintf("Gemm%s computes c[r] = scale[r]·c[r] + a[r]·b for rows of 64 columns; b is a panel %s. A nil scale is all "+
			"zeros, c is then not read. cBytes and aBytes are between rows. Every row is summed in the order of k.", name, panel))
	g := gemmRegs{bf16: bf16, c3: GP64(), a3: GP64()}
	load := func(p string) reg.GPVirtual { return Load(Param(p), GP64()).(reg.GPVirtual) }
	g.c, g.cStride, g.a, g.aStride = load("c"), load("cBytes"), load("a"), load("aBytes")
	g.b, g.rows, g.scale = load("b"), load("rows"), load("scale")
	Label("full")
	CMPQ(g.rows, U8(gemmRows))
	JLT(LabelRef("rest"))
	f.gemmTile(g, gemmRows, "r6")
	LEAQ(Mem{Base: g.c3, Index: g.cStride, Scale: 1}, g.c)
	LEAQ(Mem{Base: g.c, Index: g.cStride, Scale: 2}, g.c)
	LEAQ(Mem{Base: g.a3, Index: g.aStride, Scale: 1}, g.a)
	LEAQ(Mem{Base: g.a, Index: g.aStride, Scale: 2}, g.a)
	TESTQ(g.scale, g.scale)
	JZ(LabelRef("next"))
	ADDQ(U8(4*gemmRows), g.scale)
	Label("next")
	SUBQ(U8(gemmRows), g.rows)
	JMP(LabelRef("full"))
	Label("rest")
	for m := 1; m < gemmRows; m++ {
		CMPQ(g.rows, U8(m))
		JEQ(LabelRef(fmt.Sprintf("rows%d", m)))
	}
	f.end()
	for m := 1; m < gemmRows; m++ {
		Label(fmt.Sprintf("rows%d", m))
		f.gemmTile(g, m, fmt.Sprintf("r%d", m))
		f.end()
	}
}

// gemmTile emits m rows; a3 and c3 are left at their rows' starts.
func (f *flavour) gemmTile(g gemmRegs, m int, label string) {
	rowOf := func(base, base3, stride reg.GPVirtual, r, disp int) Mem {
		if r >= 3 {
			return row(base3, stride, r-3, disp)
		}
		return row(base, stride, r, disp)
	}
	LEAQ(Mem{Base: g.c, Index: g.cStride, Scale: 2}, g.c3)
	ADDQ(g.cStride, g.c3)
	width := 4 // registers of columns a pass
	if !f.wide() {
		width = 2
	}
	for pass := 0; pass < 64/(width*f.lanes); pass++ {
		f.next = 0
		part := fmt.Sprintf("%s_%d", label, pass)
		off := pass * width * f.bytes()
		acc := make([][]reg.VecPhysical, m)
		for r := range acc {
			acc[r] = f.vecs(width)
		}
		b, tmp := f.vecs(width), f.vec()
		TESTQ(g.scale, g.scale)
		JZ(LabelRef(part + "zero"))
		for r := range m {
			VBROADCASTSS(at(g.scale, 4*r), tmp)
			for i := range width {
				VMULPS(rowOf(g.c, g.c3, g.cStride, r, off+i*f.bytes()), tmp, acc[r][i])
			}
		}
		JMP(LabelRef(part + "start"))
		Label(part + "zero")
		for r := range m {
			for i := range width {
				f.zero(acc[r][i])
			}
		}
		Label(part + "start")
		bp, a, k := GP64(), GP64(), GP64()
		MOVQ(g.b, bp)
		MOVQ(g.a, a)
		LEAQ(Mem{Base: a, Index: g.aStride, Scale: 2}, g.a3)
		ADDQ(g.aStride, g.a3)
		Load(Param("k"), k)
		Label(part + "k")
		for i := range width {
			VMOVUPS(at(bp, off+i*f.bytes()), b[i])
		}
		for r := range m {
			VBROADCASTSS(rowOf(a, g.a3, g.aStride, r, 0), tmp)
			for i := range width {
				if g.bf16 {
					dotBF16(b[i], tmp, acc[r][i])
				} else {
					VFMADD231PS(tmp, b[i], acc[r][i])
				}
			}
		}
		ADDQ(U8(4), a)
		ADDQ(U8(4), g.a3)
		ADDQ(U32(panelBytes), bp)
		DECQ(k)
		JNZ(LabelRef(part + "k"))
		for r := range m {
			for i := range width {
				VMOVUPS(acc[r][i], rowOf(g.c, g.c3, g.cStride, r, off+i*f.bytes()))
			}
		}
	}
	LEAQ(Mem{Base: g.a, Index: g.aStride, Scale: 2}, g.a3)
	ADDQ(g.aStride, g.a3)
}
