package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func init() {
	register("matmul_pause", "avx2", func() {
		TEXT("Pause", NOSPLIT, "func(n uint32)")
		Doc("Pause runs n PAUSE instructions: a spinning core leaves its execution units to the other thread.")
		n := Load(Param("n"), GP32())
		Label("loop")
		PAUSE()
		DECL(n)
		JNZ(LabelRef("loop"))
		RET()

		TEXT("Own", NOSPLIT, "func(p *byte, strideBytes uintptr, rows int, rowBytes int)")
		Doc("Own asks for the lines of rows of rowBytes bytes, strideBytes apart, for writing: stores wait for lines of other cores one by one, this does not wait.")
		p, stride := Load(Param("p"), GP64()), Load(Param("strideBytes"), GP64())
		rows, bytes := Load(Param("rows"), GP64()), Load(Param("rowBytes"), GP64())
		left := GP64()
		Label("row")
		MOVQ(p, reg.RAX)
		MOVQ(bytes, left)
		Label("line")
		prefetchWriteAX()
		ADDQ(U8(64), reg.RAX)
		SUBQ(U8(64), left)
		JG(LabelRef("line"))
		ADDQ(stride, p)
		DECQ(rows)
		JNZ(LabelRef("row"))
		RET()

		TEXT("Fetch", NOSPLIT, "func(p *byte, n int)")
		Doc("Fetch asks for the lines of n bytes for reading, into the second-level cache.")
		from, size := Load(Param("p"), GP64()), Load(Param("n"), GP64())
		Label("next")
		PREFETCHT1(Mem{Base: from})
		ADDQ(U8(64), from)
		SUBQ(U8(64), size)
		JG(LabelRef("next"))
		RET()
	})
}
