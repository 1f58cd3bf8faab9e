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
	s.function("Pairs", "func(config *byte, dst *float32, strideBytes uintptr, panel, act *byte, steps, groups int)",
		"Pairs multiplies a bf16 panel of 32 weight rows with groups of 32 bf16 activation rows; config is not used.")
	dst := Load(Param("dst"), GP64())
	stride := Load(Param("strideBytes"), GP64())
	steps := Load(Param("steps"), GP64())
	act := Load(Param("act"), GP64())
	groups := Load(Param("groups"), GP64())
	a, b, left, rows, inner, groupBytes := GP64(), GP64(), GP64(), GP64(), GP64(), GP64()
	MOVQ(steps, groupBytes)
	SHLQ(U8(11), groupBytes)
	acc, w, x := s.vecs(16), s.vecs(2), s.vecs(4)
	Label("group")
	XORQ(rows, rows) // 0, 512, 1024, 1536: the pass's first row in the A tiles
	Label("pass")
	LEAQ(Mem{Base: act, Index: rows, Scale: 1}, a)
	Load(Param("panel"), b)
	MOVQ(steps, left)
	for _, r := range acc {
		s.zero(r)
	}
	Label("step")
	MOVQ(U32(4), inner)
	Label("quarter")
	for p := range 4 {
		for v := range w {
			s.load(Mem{Base: b, Disp: 1024*v + 64*p}, w[v])
		}
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
	DECQ(inner)
	JNZ(LabelRef("quarter"))
	ADDQ(U32(2048-64), a)
	ADDQ(U32(1024), b)
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
	ADDQ(groupBytes, act)
	DECQ(groups)
	JNZ(LabelRef("group"))
	VZEROUPPER()
	RET()
}
