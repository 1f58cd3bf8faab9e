package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
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
	})
}
