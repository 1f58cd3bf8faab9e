package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func init() {
	register("matmul_quantize16", "avx512", func() { quantize16(newSIMD("avx512")) })
}

// quantize16 emits Quantize for a whole group of 16 rows, bit for bit the same: maxima, scales and sums of the 16 rows
// are the lanes of one register, so that reductions and divisions are shared and the records' fields are stored at
// once. About 18 operations a row and record, where a row alone takes 45 and waits for each of them.
func quantize16(s *simd) {
	s.function("Quantize16", "func(act *byte, x *float32, strideBytes uintptr, records int)",
		"Quantize16 writes the activation records of 16 rows of 32*records floats, strideBytes apart.")
	act := Load(Param("act"), GP64())
	x := Load(Param("x"), GP64())
	stride := Load(Param("strideBytes"), GP64())
	left := Load(Param("records"), GP64())
	three := GP64()
	LEAQ(Mem{Base: stride, Index: stride, Scale: 2}, three)
	base := []reg.Register{x, GP64(), GP64(), GP64()}
	for i := 1; i < 4; i++ {
		LEAQ(Mem{Base: base[i-1], Index: stride, Scale: 4}, base[i])
	}
	row := func(t, disp int) Mem {
		m := Mem{Base: base[t/4], Disp: disp}
		switch t % 4 {
		case 1:
			m.Index, m.Scale = stride, 1
		case 2:
			m.Index, m.Scale = stride, 2
		case 3:
			m.Index, m.Scale = three, 1
		}
		return m
	}
	field := func(i int) Mem { return Mem{Base: act, Disp: 16*32 + 64*i} }
	q := &quantizer{s: s}
	q.constants()
	keep := K()
	Label("record")
	mark := s.used
	scale, inverse := s.vec(), s.vec()
	most := q.lanes(VPMAXUD, func(t int, v reg.VecPhysical) {
		u := s.vec()
		VPANDD(row(t, 0), q.abs, v)
		VPANDD(row(t, 64), q.abs, u)
		VPMAXUD(u, v, v)
		s.used--
	}, 16)
	VMULPS(q.inv127, most, scale)
	VCMPPS(U8(5), q.tiny, most, keep) // not below 2^-101 (NaN stays): 127/max, else 0
	VDIVPS_Z(most, q.f127, keep, inverse)
	VMOVUPS(scale, field(0))
	VMOVUPS(inverse, field(1)) // until the sum takes its place
	s.used = mark + 2
	for t := range 16 {
		a, b, i := s.vec(), s.vec(), s.vec()
		VBROADCASTSS(field(1).Offset(4*t), i)
		VMULPS(row(t, 0), i, a)
		VMULPS(row(t, 64), i, b)
		VCVTPS2DQ(a, a)
		VCVTPS2DQ(b, b)
		VPMOVSDB(a, Mem{Base: act, Disp: 32 * t})
		VPMOVSDB(b, Mem{Base: act, Disp: 32*t + 16})
		if t%4 == 3 {
			s.used = mark + 2
		}
	}
	q.sums(act, field, scale)
	s.used = mark
	for _, b := range base {
		SUBQ(I8(-128), b)
	}
	ADDQ(U32(16*actBytes), act)
	DECQ(left)
	JNZ(LabelRef("record"))
	VZEROUPPER()
	RET()
}

// quantizer holds quantize16's constants.
type quantizer struct {
	s                                                    *simd
	abs, inv127, tiny, f127, ones, zero, lowIdx, highIdx reg.VecPhysical
}

func (q *quantizer) constants() {
	s := q.s
	load := func(m Mem) reg.VecPhysical {
		r := s.vec()
		s.load(m, r)
		return r
	}
	q.abs = load(s.dwordOf(0x7FFFFFFF))
	q.inv127, q.tiny, q.f127 = load(s.dwordOf(0x3C010204)), load(s.dwordOf(0x0D000000)), load(s.dwordOf(0x42FE0000))
	q.ones, q.zero = load(s.byteOf(1)), s.vec()
	s.zero(q.zero)
	// Sums of 16 rows arrive in two vectors: rows 0, 2, 4, 6 low, the same high, rows 1, 3, 5, 7 low, the same high; then
	// rows 8 to 15 so. The indices put the low ones, and the high ones, in order.
	for h, r := range []*reg.VecPhysical{&q.lowIdx, &q.highIdx} {
		m := GLOBL([]string{"lowHalves", "highHalves"}[h], RODATA|NOPTR)
		for t := range 16 {
			DATA(4*t, U32(uint32(t/8*16+t%2*8+h*4+t%8/2)))
		}
		*r = load(m)
	}
}

// pair reduces two vectors to one whose dwords alternate between them, each reduced with its neighbour two further; with
// quads the same for pairs of dwords.
func (q *quantizer) pair(op func(...Op), quads bool, a, b reg.VecPhysical) {
	t := q.s.vec()
	if quads {
		VPUNPCKHQDQ(b, a, t)
		VPUNPCKLQDQ(b, a, a)
	} else {
		VPUNPCKHDQ(b, a, t)
		VPUNPCKLDQ(b, a, a)
	}
	op(t, a, a)
	q.s.used--
}

// four reduces make(t..t+3) to one vector: 128-bit lane l has the reductions of lane l of the four, in order.
func (q *quantizer) four(op func(...Op), fill func(t int, v reg.VecPhysical), t int) reg.VecPhysical {
	mark := q.s.used
	v := q.s.vecs(4)
	for i, r := range v {
		fill(t+i, r)
	}
	q.pair(op, false, v[0], v[1])
	q.pair(op, false, v[2], v[3])
	q.pair(op, true, v[0], v[2])
	q.s.used = mark + 1
	return v[0]
}

// lanes reduces each of 16 vectors to one lane of the result.
func (q *quantizer) lanes(op func(...Op), fill func(t int, v reg.VecPhysical), n int) reg.VecPhysical {
	var v []reg.VecPhysical
	for t := 0; t < n; t += 4 {
		v = append(v, q.four(op, fill, t))
	}
	across := func(a, b reg.VecPhysical) {
		t := q.s.vec()
		VSHUFI32X4(U8(0xDD), b, a, t)
		VSHUFI32X4(U8(0x88), b, a, a)
		op(t, a, a)
		q.s.used--
	}
	across(v[0], v[1])
	across(v[2], v[3])
	across(v[0], v[2])
	return v[0]
}

// sums stores the remaining fields from the bytes just written.
func (q *quantizer) sums(act reg.Register, field func(int) Mem, scale reg.VecPhysical) {
	s := q.s
	twoRows := func(i int, v reg.VecPhysical) { // rows 2i and 2i+1: four lanes of halves
		s.zero(v)
		VPDPBUSD(Mem{Base: act, Disp: 64 * i}, q.ones, v)
	}
	a := q.four(VPADDD, twoRows, 0)
	b := q.four(VPADDD, twoRows, 4)
	low, high := s.vec(), s.vec()
	VMOVDQA32(q.lowIdx, low)
	VPERMI2D(b, a, low)
	VMOVDQA32(q.highIdx, high)
	VPERMI2D(b, a, high)
	VPADDD(high, low, a)
	VCVTDQ2PS(a, b)
	VMULPS(scale, b, b)
	VMOVUPS(b, field(1))
	for i, r := range []reg.VecPhysical{a, low, high} {
		VPSUBD(r, q.zero, r)
		VMOVDQU32(r, field(2+i))
	}
}
