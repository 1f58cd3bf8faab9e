package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func init() {
	for _, isa := range []string{"avx512", "avx2"} {
		register("matmul_panel", isa, func() {
			s := newSIMD(isa)
			for _, elem := range []string{"F32", "F16", "BF16"} {
				for _, T := range []int{1, 2, 4, 8} {
					if s.zmm || T <= 4 {
						s.panel(elem, T)
					}
				}
			}
		})
	}
}

// panel emits the float product of a panel [column][16 rows] with T rows of float32 activations:
//
//	out[t][r] += sum over k of panel[k][r] * x[t][k]
//
// each sum in rising order of k by fused multiply-add, whatever T is. A column costs T multiply-adds of 16 lanes and
// one load (and conversion) of the panel: with T = 8 the multiply-adds are the limit, with T = 1 memory is.
func (s *simd) panel(elem string, T int) {
	name := fmt.Sprintf("Panel%sx%d", elem, T)
	s.function(name, "func(out *float32, panel *byte, x *float32, xStrideBytes uintptr, k int)",
		fmt.Sprintf("%s adds the products of a %s panel [k][16] with %d rows of x, xStrideBytes apart, to out [%d][16].", name, elem, T, T))
	out := Load(Param("out"), GP64())
	panel := Load(Param("panel"), GP64())
	x := Load(Param("x"), GP64())
	stride := Load(Param("xStrideBytes"), GP64())
	k := Load(Param("k"), GP64())
	rows := s.rowPointers(x, stride, T)
	vs := 16 / s.lanes // registers for 16 rows
	acc := s.vecs(T * vs)
	w := s.vecs(vs)
	b := s.vec()
	for _, a := range acc {
		s.zero(a)
	}
	multiply := func(column int) {
		for t := range T {
			x := rows[t]
			x.Disp += 4 * column
			if s.zmm {
				VFMADD231PS_BCST(x, w[0], acc[t])
				continue
			}
			VBROADCASTSS(x, b)
			for v := range vs {
				VFMADD231PS(b, w[v], acc[t*vs+v])
			}
		}
	}
	advance := func(columns, elemBytes int) {
		ADDQ(U32(16*elemBytes*columns), panel)
		ADDQ(U8(4*columns), x)
		if T > 4 {
			ADDQ(U8(4*columns), rows[4].Base)
		}
	}
	if elem == "BF16" {
		s.panelPairs(panel, k, w, T, multiply, advance)
	} else {
		s.panelColumns(elem, panel, k, w, T, multiply, advance)
	}
	for i, a := range acc {
		m := Mem{Base: out, Disp: i * s.lanes * 4}
		VADDPS(m, a, a)
		VMOVUPS(a, m)
	}
	VZEROUPPER()
	RET()
}

// panelColumns emits the loop over columns of 16 numbers.
func (s *simd) panelColumns(elem string, panel, k reg.Register, w []reg.VecPhysical, T int, multiply func(column int), advance func(columns, elemBytes int)) {
	Label("column")
	elemBytes := 2
	if elem == "F32" {
		elemBytes = 4
	}
	for v, r := range w {
		m := Mem{Base: panel, Disp: v * s.lanes * elemBytes}
		if elem == "F32" {
			VMOVUPS(m, r)
		} else {
			VCVTPH2PS(m, r)
		}
	}
	if T == 1 && elem != "F32" || T == 1 && s.zmm {
		PREFETCHT0(Mem{Base: panel, Disp: prefetchAhead})
	}
	multiply(0)
	advance(1, elemBytes)
	DECQ(k)
	JNZ(LabelRef("column"))
}

// panelPairs emits the loop over pairs of columns, 16 dwords with a row's two bf16 each, and of an odd number the last.
func (s *simd) panelPairs(panel, k reg.Register, w []reg.VecPhysical, T int, multiply func(column int), advance func(columns, elemBytes int)) {
	both := s.vecs(len(w))
	load := func() {
		for v, r := range both {
			s.load(at(panel, v*s.lanes*4), r)
			VPSLLD(U8(16), r, w[v])
		}
		multiply(0)
	}
	SUBQ(U8(2), k)
	JL(LabelRef("odd"))
	Label("pair")
	load()
	PREFETCHT0(Mem{Base: panel, Disp: prefetchAhead})
	for v, r := range both {
		s.and(s.dwordOf(0xFFFF0000), r, w[v])
	}
	multiply(1)
	advance(2, 2)
	SUBQ(U8(2), k)
	JGE(LabelRef("pair"))
	Label("odd")
	CMPQ(k, I8(-2))
	JE(LabelRef("done"))
	load()
	Label("done")
}

// rowPointers are the addresses of T rows: base, +stride, +2*stride, +3*stride, and the same from row 4.
func (s *simd) rowPointers(x, stride reg.Register, T int) []Mem {
	var three reg.Register
	if T > 2 {
		three = GP64()
		LEAQ(Mem{Base: stride, Index: stride, Scale: 2}, three)
	}
	var list []Mem
	base := x
	for t := 0; t < T; t++ {
		if t == 4 {
			base = GP64()
			LEAQ(Mem{Base: x, Index: stride, Scale: 4}, base)
		}
		switch t % 4 {
		case 0:
			list = append(list, Mem{Base: base})
		case 1:
			list = append(list, Mem{Base: base, Index: stride, Scale: 1})
		case 2:
			list = append(list, Mem{Base: base, Index: stride, Scale: 2})
		case 3:
			list = append(list, Mem{Base: base, Index: three, Scale: 1})
		}
	}
	return list
}
