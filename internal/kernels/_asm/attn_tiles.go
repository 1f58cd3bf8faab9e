package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func init() { register("attn_tiles", "amx", gemmTiles) }

// gemmTiles emits the attention's product on AMX tiles: groups of 32 rows by 64 columns, as two halves of 32 columns
// whose four 16 × 16 sums stay in tiles 0..3. A step is 32 numbers of k: two A tiles straight from the rows (16 rows of
// 64 bytes, aBytes apart) and two B tiles straight from the panel [k/2][64][2] (16 pairs of 64 bytes, 256 apart).
//
//	step: 4 tile loads (8 cycles each) beside 4 TDPBF16PS (16 cycles each)
func gemmTiles() {
	TEXT("GemmTiles", NOSPLIT, "func(config *byte, c *float32, cBytes int, a *uint16, aBytes int, b *uint16, steps, rows int, scale *float32)")
	Doc("GemmTiles computes c[r] = scale[r]·c[r] + a[r]·b for rows of 64 columns; a nil scale is all zeros, c is then not " +
		"read. a, b, c have room for rows rounded up to 32; what is written past rows is undefined.")
	rescaleRows()
	Load(Param("config"), reg.RAX)
	tileConfig(regAX)
	c, a := reg.R8, reg.R9
	cStride, aStride := reg.R10, reg.R11
	left, steps := reg.R12, reg.R13
	Load(Param("c"), c)
	Load(Param("a"), a)
	Load(Param("cBytes"), cStride)
	Load(Param("aBytes"), aStride)
	Load(Param("rows"), left)
	Label("group")
	for half := range 2 {
		name := []string{"left", "right"}[half]
		off := 128 * half
		cRows := func() { // rows 0-15 of c at CX, 16-31 at SI
			MOVQ(c, reg.RCX)
			MOVQ(cStride, reg.RSI)
			SHLQ(U8(4), reg.RSI)
			ADDQ(c, reg.RSI)
			MOVQ(cStride, reg.RAX)
		}
		Load(Param("scale"), reg.RAX)
		TESTQ(reg.RAX, reg.RAX)
		JZ(LabelRef(name + "zero"))
		cRows()
		tileLoad(0, regCX, regAX, off)
		tileLoad(1, regCX, regAX, off+64)
		tileLoad(2, regSI, regAX, off)
		tileLoad(3, regSI, regAX, off+64)
		JMP(LabelRef(name + "start"))
		Label(name + "zero")
		for t := range 4 {
			tileZero(t)
		}
		Label(name + "start")
		MOVQ(a, reg.RSI)
		MOVQ(aStride, reg.RDI)
		SHLQ(U8(4), reg.RDI)
		ADDQ(a, reg.RDI)
		MOVQ(aStride, reg.RAX)
		Load(Param("b"), reg.RBX)
		MOVQ(U32(panelBytes), reg.RDX)
		Load(Param("steps"), steps)
		Label(name)
		tileLoad(4, regSI, regAX, 0)
		tileLoad(6, regBX, regDX, off)
		tileLoad(7, regBX, regDX, off+64)
		tileLoad(5, regDI, regAX, 0)
		tileDotBF16(0, 4, 6)
		tileDotBF16(1, 4, 7)
		tileDotBF16(2, 5, 6)
		tileDotBF16(3, 5, 7)
		ADDQ(U8(64), reg.RSI)
		ADDQ(U8(64), reg.RDI)
		ADDQ(U32(16*panelBytes), reg.RBX)
		DECQ(steps)
		JNZ(LabelRef(name))
		cRows()
		tileStore(0, regCX, regAX, off)
		tileStore(1, regCX, regAX, off+64)
		tileStore(2, regSI, regAX, off)
		tileStore(3, regSI, regAX, off+64)
	}
	MOVQ(cStride, reg.RAX)
	SHLQ(U8(5), reg.RAX)
	ADDQ(reg.RAX, c)
	MOVQ(aStride, reg.RAX)
	SHLQ(U8(5), reg.RAX)
	ADDQ(reg.RAX, a)
	SUBQ(U8(32), left)
	JG(LabelRef("group"))
	tileRelease()
	RET()
}

// rescaleRows multiplies the rows of c by their scales, where there are any.
func rescaleRows() {
	scale, c, stride, rows := reg.RAX, reg.RCX, reg.RDX, reg.RBX
	Load(Param("scale"), scale)
	TESTQ(scale, scale)
	JZ(LabelRef("rescaled"))
	Load(Param("c"), c)
	Load(Param("cBytes"), stride)
	Load(Param("rows"), rows)
	Label("rescale")
	VBROADCASTSS(at(scale, 0), reg.Z0)
	for i := range 4 {
		VMULPS(at(c, 64*i), reg.Z0, reg.Z1)
		VMOVUPS(reg.Z1, at(c, 64*i))
	}
	ADDQ(U8(4), scale)
	ADDQ(stride, c)
	DECQ(rows)
	JNZ(LabelRef("rescale"))
	VZEROUPPER()
	Label("rescaled")
}
