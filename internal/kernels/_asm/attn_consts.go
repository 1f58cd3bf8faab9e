package main

import (
	"fmt"
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

var (
	negInf        = math.Inf(-1)
	laneBitConsts = map[int]Mem{}
)

// laneBits is 8 lanes with bits first, first+1, ... set: what a 16-bit token mask is compared with.
func laneBits(first int) Mem {
	if m, ok := laneBitConsts[first]; ok {
		return m
	}
	m := GLOBL(fmt.Sprintf("laneBits%d", first), RODATA|NOPTR)
	for i := range 8 {
		DATA(4*i, U32(1<<(first+i)))
	}
	laneBitConsts[first] = m
	return m
}
