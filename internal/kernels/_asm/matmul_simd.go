package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// simd is one vector machine: the same kernel text is emitted for 16 rows in a zmm register (AVX-512 with VNNI) and
// for 8 rows in a ymm register (AVX2), where a tile of 16 rows is two passes.
type simd struct {
	isa    string
	zmm    bool
	lanes  int // float32 lanes of a register
	regs   []reg.VecPhysical
	used   int
	consts map[string]Mem
}

var zmmRegs = []reg.VecPhysical{
	reg.Z0, reg.Z1, reg.Z2, reg.Z3, reg.Z4, reg.Z5, reg.Z6, reg.Z7, reg.Z8, reg.Z9, reg.Z10, reg.Z11, reg.Z12, reg.Z13, reg.Z14, reg.Z15,
	reg.Z16, reg.Z17, reg.Z18, reg.Z19, reg.Z20, reg.Z21, reg.Z22, reg.Z23, reg.Z24, reg.Z25, reg.Z26, reg.Z27, reg.Z28, reg.Z29, reg.Z30, reg.Z31,
}

var ymmRegs = []reg.VecPhysical{
	reg.Y0, reg.Y1, reg.Y2, reg.Y3, reg.Y4, reg.Y5, reg.Y6, reg.Y7, reg.Y8, reg.Y9, reg.Y10, reg.Y11, reg.Y12, reg.Y13, reg.Y14, reg.Y15,
}

func newSIMD(isa string) *simd {
	if isa == "avx2" {
		return &simd{isa: isa, lanes: 8, regs: ymmRegs, consts: map[string]Mem{}}
	}
	return &simd{isa: isa, zmm: true, lanes: 16, regs: zmmRegs, consts: map[string]Mem{}}
}

// function starts a function with all vector registers free.
func (s *simd) function(name, signature, doc string) {
	s.used = 0
	TEXT(name, NOSPLIT, signature)
	Doc(doc)
}

func (s *simd) vec() reg.VecPhysical {
	if s.used == len(s.regs) {
		panic("out of vector registers")
	}
	s.used++
	return s.regs[s.used-1]
}

func (s *simd) vecs(n int) []reg.VecPhysical {
	v := make([]reg.VecPhysical, n)
	for i := range v {
		v[i] = s.vec()
	}
	return v
}

// passes is how many passes make a tile of 16 rows.
func (s *simd) passes() int { return 16 / s.lanes }

// bytesOf is a vector constant that repeats 16 bytes.
func (s *simd) bytesOf(name string, b [16]byte) Mem {
	if m, ok := s.consts[name]; ok {
		return m
	}
	m := GLOBL(name, RODATA|NOPTR)
	for i := 0; i < s.lanes*4; i += 4 {
		j := i % 16
		DATA(i, U32(uint32(b[j])|uint32(b[j+1])<<8|uint32(b[j+2])<<16|uint32(b[j+3])<<24))
	}
	s.consts[name] = m
	return m
}

// byteOf is a vector constant of one byte value.
func (s *simd) byteOf(b byte) Mem {
	var all [16]byte
	for i := range all {
		all[i] = b
	}
	return s.bytesOf(fmt.Sprintf("bytes%02x", b), all)
}

// dwordOf is a vector constant of one 32-bit value.
func (s *simd) dwordOf(v uint32) Mem {
	var all [16]byte
	for i := range all {
		all[i] = byte(v >> (8 * (i % 4)))
	}
	return s.bytesOf(fmt.Sprintf("dwords%08x", v), all)
}

func (s *simd) load(m Op, r reg.VecPhysical) {
	if s.zmm {
		VMOVDQU32(m, r)
	} else {
		VMOVDQU(m, r)
	}
}

func (s *simd) zero(r reg.VecPhysical) {
	if s.zmm {
		VPXORD(r, r, r)
	} else {
		VPXOR(r, r, r)
	}
}

func (s *simd) and(a Op, b, dst reg.VecPhysical) {
	if s.zmm {
		VPANDD(a, b, dst)
	} else {
		VPAND(a, b, dst)
	}
}

func (s *simd) or(a Op, b, dst reg.VecPhysical) {
	if s.zmm {
		VPORD(a, b, dst)
	} else {
		VPOR(a, b, dst)
	}
}

// orMasked sets dst |= t & mask; t may be destroyed.
func (s *simd) orMasked(mask Op, t, dst reg.VecPhysical) {
	if s.zmm {
		VPTERNLOGD(U8(0xF8), mask, t, dst)
		return
	}
	VPAND(mask, t, t)
	VPOR(t, dst, dst)
}

// halves loads float16 lanes as float32.
func (s *simd) halves(m Mem, dst reg.VecPhysical) { VCVTPH2PS(m, dst) }

// broadcastInt loads a 32-bit value into all lanes, shifted left.
func (s *simd) broadcastInt(m Mem, shift int, dst reg.VecPhysical) {
	if s.zmm {
		VPSLLD_BCST(U8(shift), m, dst)
		return
	}
	VPBROADCASTD(m, dst)
	VPSLLD(U8(shift), dst, dst)
}

// mulBroadcast sets dst = a * m, m one float32 in memory. tmp may be clobbered where there is no embedded broadcast.
func (s *simd) mulBroadcast(m Mem, a, dst, tmp reg.VecPhysical) {
	if s.zmm {
		VMULPS_BCST(m, a, dst)
		return
	}
	VBROADCASTSS(m, tmp)
	VMULPS(tmp, a, dst)
}

// fmaBroadcast sets acc += a * m.
func (s *simd) fmaBroadcast(m Mem, a, acc, tmp reg.VecPhysical) {
	if s.zmm {
		VFMADD231PS_BCST(m, a, acc)
		return
	}
	VBROADCASTSS(m, tmp)
	VFMADD231PS(tmp, a, acc)
}
