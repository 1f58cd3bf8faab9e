package main

import (
	"strconv"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// F8_E4M3 tiles (internal/kernels/packed.go): records of 32 columns of 16 codes, then 16 float32 scales. A code's bits, with its sign
// moved to the top, are a float16 of another exponent bias: 2^8 too small, which the scale takes in.
const (
	e4m3Scales = 512
	e4m3Record = 576
)

func init() {
	for _, isa := range []string{"avx512", "avx2"} {
		register("matmul_e4m3", isa, func() { newSIMD(isa).unpackE4M3() })
	}
	register("matmul_e4m3", "amx", func() { newSIMD("amx").unpackE4M3Pairs() })
	registerARM("matmul_e4m3", "neon", (*armFile).unpackE4M3)
}

// e4m3 loads the codes at m as float32, without their scale.
func (s *simd) e4m3(m Mem, mask, dst reg.VecPhysical) {
	if s.zmm {
		VPMOVSXBW(m, dst.AsY())
		VPSLLW(U8(7), dst.AsY(), dst.AsY())
		VPANDD(mask.AsY(), dst.AsY(), dst.AsY())
		VCVTPH2PS(dst.AsY(), dst)
		return
	}
	VPMOVSXBW(m, dst.AsX())
	VPSLLW(U8(7), dst.AsX(), dst.AsX())
	VPAND(mask.AsX(), dst.AsX(), dst.AsX())
	VCVTPH2PS(dst.AsX(), dst)
}

// unpackE4M3 emits the dequantisation into a float32 panel, about 160 operations a record of 512 weights.
func (s *simd) unpackE4M3() {
	s.function("UnpackF8_E4M3", "func(panel *float32, tile *byte, first, records int)",
		"UnpackF8_E4M3 writes columns 32*first.. of records*32 columns of a F8_E4M3 tile as float32 [column][16 rows].")
	for pass := range s.passes() {
		panel := Load(Param("panel"), GP64())
		tile := Load(Param("tile"), GP64())
		first := Load(Param("first"), GP64())
		left := Load(Param("records"), GP64())
		s.used = 0
		mask, scale := s.vec(), s.vec()
		v := s.vecs(4)
		s.load(s.dwordOf(0xBFFFBFFF), mask)
		IMUL3Q(I32(e4m3Record), first, first)
		ADDQ(first, tile)
		Label("record" + strconv.Itoa(pass))
		PREFETCHT0(Mem{Base: tile, Disp: prefetchAhead})
		PREFETCHT0(Mem{Base: tile, Disp: prefetchAhead + 256})
		VMOVUPS(Mem{Base: tile, Disp: e4m3Scales + 32*pass}, scale)
		for k := range 32 {
			r := v[k%4]
			s.e4m3(Mem{Base: tile, Disp: 16*k + 8*pass}, mask, r)
			VMULPS(scale, r, r)
			VMOVUPS(r, Mem{Base: panel, Disp: 64*k + 32*pass})
		}
		ADDQ(U32(e4m3Record), tile)
		ADDQ(U32(32*64), panel)
		DECQ(left)
		JNZ(LabelRef("record" + strconv.Itoa(pass)))
	}
	VZEROUPPER()
	RET()
}

// unpackE4M3Pairs emits the same as bf16 B tiles (matmul_tiles.go), rounded once.
func (s *simd) unpackE4M3Pairs() {
	s.function("UnpackF8_E4M3", "func(panel *byte, tile *byte, records int)",
		"UnpackF8_E4M3 writes the records of a F8_E4M3 tile as bf16 B tiles, 2048 bytes apart.")
	panel := Load(Param("panel"), GP64())
	tile := Load(Param("tile"), GP64())
	left := Load(Param("records"), GP64())
	mask, scale, a, b := s.vec(), s.vec(), s.vec(), s.vec()
	order := s.interleave()
	s.load(s.dwordOf(0xBFFFBFFF), mask)
	Label("record")
	VMOVUPS(Mem{Base: tile, Disp: e4m3Scales}, scale)
	for p := range 16 {
		for i, r := range []reg.VecPhysical{a, b} {
			s.e4m3(Mem{Base: tile, Disp: 16 * (2*p + i)}, mask, r)
			VMULPS(scale, r, r)
		}
		pairsToBF16(a, b, a)
		VPERMW(a, order, a)
		VMOVDQU32(a, Mem{Base: panel, Disp: p * 64})
	}
	ADDQ(U32(e4m3Record), tile)
	ADDQ(U32(2048), panel)
	DECQ(left)
	JNZ(LabelRef("record"))
	VZEROUPPER()
	RET()
}

// unpackE4M3 is the same on NEON.
func (f *armFile) unpackE4M3() {
	a := f.function("UnpackF8_E4M3", "func(panel *float32, tile *byte, first, records int)",
		"UnpackF8_E4M3 writes columns 32*first.. of records*32 columns of a F8_E4M3 tile as float32 [column][16 rows].")
	panel, tile, first, left := a.arg("panel"), a.arg("tile"), a.arg("first"), a.arg("records")
	a.i("mov x17, #%d", e4m3Record)
	a.i("madd %s, %s, x17, %s", tile, first, tile)
	mask, codes, scale, v := a.v(), a.v(), a.vs(4), a.vs(4)
	a.i("mvni v%d.8h, #0x40, lsl #8", mask)
	a.label("record")
	a.load(scale, tile, e4m3Scales)
	for k := range 32 {
		a.i("ldr q%d, [%s, #%d]", codes, tile, 16*k)
		a.i("sshll v%d.8h, v%d.8b, #7", v[0], codes)
		a.i("sshll2 v%d.8h, v%d.16b, #7", v[2], codes)
		for _, r := range []int{v[0], v[2]} {
			a.i("and v%d.16b, v%d.16b, v%d.16b", r, r, mask)
			a.i("fcvtl2 v%d.4s, v%d.8h", r+1, r)
			a.i("fcvtl v%d.4s, v%d.4h", r, r)
		}
		for i, r := range v {
			a.i("fmul v%d.4s, v%d.4s, v%d.4s", r, r, scale[i])
		}
		a.store(v, panel, 0)
		a.i("add %s, %s, #64", panel, panel)
	}
	a.i("add %s, %s, #%d", tile, tile, e4m3Record)
	a.i("subs %s, %s, #1", left, left)
	a.i("b.ne @record")
}
