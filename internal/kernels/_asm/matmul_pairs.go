package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func init() {
	register("matmul_pairs", "avx512", func() { bf16Pairs(newSIMD("avx512")) })
}

// dotPairs is acc += w * x on pairs of bf16 (VDPBF16PS of AVX512_BF16).
func dotPairs(w, x, acc reg.VecPhysical) {
	evex0F38("VDPBF16PS "+x.Asm()+", "+w.Asm()+", "+acc.Asm(), 0x52, ppF3, zmmNo(acc), zmmNo(w), zmmNo(x))
}

// bf16Pairs emits the product that amx.Tiles computes, on the same panels and activations, with VDPBF16PS: 8 activation
// rows by 32 weight rows are summed in 16 registers, so that a pair of columns costs 2 loads of weights and 8
// broadcasts beside 16 VDPBF16PS of 32 multiply-adds. Four such passes make a group of 32 rows.
func bf16Pairs(s *simd) {
	s.function("Pairs", "func(args *byte)", "Pairs is amx.Tiles with VDPBF16PS; it asks for nothing ahead.")
	Pragma("noescape")
	args := Load(Param("args"), GP64())
	field := func(i int) reg.Register {
		r := GP64()
		MOVQ(at(args, i), r)
		return r
	}
	dst, stride, steps, act, from := field(argDst), field(argStride), field(argSteps), field(argAct), field(argFrom)
	a, left, rows, inner, b, b2 := GP64(), GP64(), GP64(), GP64(), GP64(), GP64()
	panelStep := field(argPanelStep)
	SUBQ(U32(1024), panelStep)
	acc, w, x := s.vecs(16), s.vecs(2), s.vecs(4)
	Label("group")
	XORQ(rows, rows) // 0, 512, 1024, 1536: the pass's first row in the A tiles
	Label("pass")
	LEAQ(Mem{Base: act, Index: rows, Scale: 1}, a)
	MOVQ(at(args, argPanel), b)
	MOVQ(at(args, argPanel2), b2)
	MOVQ(steps, left)
	TESTQ(from, from)
	JZ(LabelRef("zero"))
	for i, r := range acc {
		VMOVUPS(Mem{Base: from, Disp: 64 * i}, r)
	}
	ADDQ(U32(1024), from)
	JMP(LabelRef("step"))
	Label("zero")
	for _, r := range acc {
		s.zero(r)
	}
	Label("step")
	MOVQ(U32(4), inner)
	Label("quarter")
	for p := range 4 {
		s.load(at(b, 64*p), w[0])
		s.load(at(b2, 64*p), w[1])
		for t := range 8 {
			xt := x[t%len(x)]
			VPBROADCASTD(Mem{Base: a, Disp: 64*t + 4*p}, xt)
			for v := range w {
				dotPairs(w[v], xt, acc[2*t+v])
			}
		}
	}
	ADDQ(U8(16), a)
	ADDQ(U32(256), b)
	ADDQ(U32(256), b2)
	DECQ(inner)
	JNZ(LabelRef("quarter"))
	ADDQ(U32(2048-64), a)
	ADDQ(panelStep, b)
	ADDQ(panelStep, b2)
	DECQ(left)
	JNZ(LabelRef("step"))
	for t := range 8 {
		VMOVUPS(acc[2*t], Mem{Base: dst})
		VMOVUPS(acc[2*t+1], Mem{Base: dst, Disp: 64})
		ADDQ(stride, dst)
	}
	ADDQ(U32(512), rows)
	CMPQ(rows, U32(2048))
	JNE(LabelRef("pass"))
	ADDQ(at(args, argGroupBytes), act)
	DECQ(at(args, argGroups))
	JNZ(LabelRef("group"))
	VZEROUPPER()
	RET()
}
