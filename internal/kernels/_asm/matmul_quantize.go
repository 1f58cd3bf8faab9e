package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func init() {
	register("matmul_quantize", "avx512", func() { quantize(newSIMD("avx512")) })
	register("matmul_quantize", "avx2", func() { quantize(newSIMD("avx2")) })
}

// quantize emits the conversion of one row of activations: 32 columns at a time to int8 with the scale max|x|/127,
// nearest even, as the activation records of matmul_dot.go. The maximum is taken over the bits as integers, so that a
// NaN beats Inf beats every number, and the scale, hence every result of the row, is then not finite. About 45
// operations a record.
func quantize(s *simd) {
	s.function("Quantize", "func(act *byte, rows int, row int, x *float32, records int)",
		"Quantize writes activation row `row` of the `rows` that share the records at act, from 32*records floats.")
	act := Load(Param("act"), GP64())
	rows := Load(Param("rows"), GP64())
	row := Load(Param("row"), GP64())
	x := Load(Param("x"), GP64())
	left := Load(Param("records"), GP64())
	q, f := GP64(), GP64() // the record's 32 bytes, and its first 4-byte field
	MOVQ(row, q)
	SHLQ(U8(5), q)
	ADDQ(act, q)
	MOVQ(rows, f)
	SHLQ(U8(5), f)
	ADDQ(act, f)
	LEAQ(Mem{Base: f, Index: row, Scale: 4}, f)
	step, field, field3 := GP64(), GP64(), GP64()
	IMUL3Q(U8(actBytes), rows, step)
	MOVQ(rows, field)
	SHLQ(U8(2), field)
	LEAQ(Mem{Base: field, Index: field, Scale: 2}, field3)

	v := []reg.VecPhysical{reg.Y0, reg.Y1, reg.Y2, reg.Y3}
	abs, max, xmax, t, id, sums := reg.Y4, reg.Y5, reg.X5, reg.Y6, reg.Y7, reg.Y8
	xt, xid, d, ones := reg.X6, reg.X7, reg.X9, reg.Y10
	VPCMPEQD(abs, abs, abs)
	VPSRLD(U8(1), abs, abs)
	VPCMPEQW(ones, ones, ones)
	VPABSW(ones, ones)
	Label("record")
	for i, r := range v {
		VMOVUPS(Mem{Base: x, Disp: 32 * i}, r)
	}
	VPAND(abs, v[0], max)
	for _, r := range v[1:] {
		VPAND(abs, r, t)
		VPMAXUD(t, max, max)
	}
	VEXTRACTI128(U8(1), max, xt)
	VPMAXUD(xt, xmax, xmax)
	VPSHUFD(U8(0x4E), xmax, xt)
	VPMAXUD(xt, xmax, xmax)
	VPSHUFD(U8(0xB1), xmax, xt)
	VPMAXUD(xt, xmax, xmax)
	VMULSS(s.float1("inv127", 0x3C010204), xmax, d) // times 1/127
	VMOVSS(s.float1("f127", 0x42FE0000), xid)
	VDIVSS(xmax, xid, xid)
	VCMPSS(U8(5), s.float1("tiny", 0x0D000000), xmax, xt) // not below 2^-101 (NaN stays): keep 127/max, else 0
	VPAND(xt, xid, xid)
	VPBROADCASTD(xid, id)
	for _, r := range v {
		VMULPS(id, r, r)
		VCVTPS2DQ(r, r)
	}
	// Sums of each half: v0+v1 and v2+v3.
	VPADDD(v[1], v[0], sums)
	VPADDD(v[3], v[2], t)
	VPHADDD(t, sums, sums)
	VPHADDD(sums, sums, sums) // lanes: low half's a, high half's b, again; and the upper 128 bits
	VEXTRACTI128(U8(1), sums, xt)
	VPADDD(xt, reg.X8, reg.X8)
	// Bytes in order: pack works on 128-bit lanes, the permutation puts dwords right.
	VPACKSSDW(v[1], v[0], v[0])
	VPACKSSDW(v[3], v[2], v[2])
	VPACKSSWB(v[2], v[0], v[0])
	VMOVDQU(s.permutation(), t)
	VPERMD(v[0], t, v[0])
	VMOVDQU(v[0], Mem{Base: q})
	VMOVSS(d, Mem{Base: f})
	VPXOR(xt, xt, xt)
	VPSUBD(reg.X8, xt, xt) // -sum of low half, -sum of high half
	VMOVD(xt, Mem{Base: f, Index: field3, Scale: 1})
	VPEXTRD(U8(1), xt, Mem{Base: f, Index: field, Scale: 4})
	VPSHUFD(U8(0xB1), xt, xmax)
	VPADDD(xmax, xt, xt)
	VMOVD(xt, Mem{Base: f, Index: field, Scale: 2})
	VPXOR(xmax, xmax, xmax)
	VPSUBD(xt, xmax, xt)
	VCVTDQ2PS(xt, xt)
	VMULSS(d, xt, xt)
	VMOVSS(xt, Mem{Base: f, Index: field, Scale: 1})
	ADDQ(U32(128), x)
	ADDQ(step, q)
	ADDQ(step, f)
	DECQ(left)
	JNZ(LabelRef("record"))
	VZEROUPPER()
	RET()
}

// float1 is a scalar float32 constant.
func (s *simd) float1(name string, bits uint32) Mem {
	if m, ok := s.consts[name]; ok {
		return m
	}
	m := GLOBL(name, RODATA|NOPTR)
	DATA(0, U32(bits))
	s.consts[name] = m
	return m
}

func (s *simd) permutation() Mem {
	m := GLOBL("order", RODATA|NOPTR)
	for i, v := range []uint32{0, 4, 1, 5, 2, 6, 3, 7} {
		DATA(4*i, U32(v))
	}
	return m
}
