package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// format describes the packed tiles of one weight type (see internal/kernels/packed.go, which packs them): 16 rows by
// 32 columns a record, bits*64 bytes of bit planes and then the record's scales, with a header in front of every 8
// records where scales are per super-block.
type format struct {
	name   string
	bits   int    // 2, 3, 4, 5, 6 or 8
	scale  string // "f16", "e8", "super32" (one scale a record); "super16", "f16x2", "f32x2" (one scale each 16 columns)
	min    bool
	bias   int // log2 of what is added to a weight to make it unsigned; -1: none
	table  *[16]int8
	signed bool // scales of super-blocks are signed bytes
	shift  int  // super-scales are divided by so many powers of two (types without minima)
}

var iq4nl = [16]int8{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}
var mxfp4 = [16]int8{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}

// The levels of the coded types (internal/kernels/quant/codes.go), by code.
var levels1 = [16]int8{-7, 1, 9, 0, -9, -1, 7, 0}
var levels2 = [16]int8{8, 25, 43, 0, -8, -25, -43, 0}
var levels3 = [16]int8{4, 12, 20, 28, 36, 44, 52, 62, -4, -12, -20, -28, -36, -44, -52, -62}
var odds = [16]int8{1, 3, 5, 7, 9, 11, 13, 15, -1, -3, -5, -7, -9, -11, -13, -15}

var formats = []format{
	{name: "Q4_0", bits: 4, scale: "f16", bias: 3},
	{name: "Q4_1", bits: 4, scale: "f16", min: true, bias: -1},
	{name: "Q5_0", bits: 5, scale: "f16", bias: 4},
	{name: "Q5_1", bits: 5, scale: "f16", min: true, bias: -1},
	{name: "Q8_0", bits: 8, scale: "f16", bias: 7},
	{name: "Q2_K", bits: 2, scale: "super16", min: true, bias: -1},
	{name: "Q3_K", bits: 3, scale: "super16", signed: true, bias: 2},
	{name: "Q4_K", bits: 4, scale: "super32", min: true, bias: -1},
	{name: "Q5_K", bits: 5, scale: "super32", min: true, bias: -1},
	{name: "Q6_K", bits: 6, scale: "super16", signed: true, bias: 5},
	{name: "IQ4_NL", bits: 4, scale: "f16", table: &iq4nl, bias: 7},
	{name: "IQ4_XS", bits: 4, scale: "super32", signed: true, table: &iq4nl, bias: 7},
	{name: "MXFP4", bits: 4, scale: "e8", table: &mxfp4, bias: 7},
	{name: "NVFP4", bits: 4, scale: "f16x2", table: &mxfp4, bias: 7},
	{name: "NVFP4_F32", bits: 4, scale: "f32x2", table: &mxfp4, bias: 7},
	{name: "IQ1_M", bits: 3, scale: "super16", signed: true, shift: 3, table: &levels1, bias: 7},
	{name: "IQ2_XXS", bits: 3, scale: "super32", signed: true, shift: 3, table: &levels2, bias: 7},
	{name: "IQ2_S", bits: 3, scale: "super16", signed: true, shift: 3, table: &levels2, bias: 7},
	{name: "IQ3_XXS", bits: 4, scale: "super32", signed: true, shift: 2, table: &levels3, bias: 7},
	{name: "IQ3_S", bits: 4, scale: "super32", signed: true, table: &odds, bias: 7},
	{name: "TQ2_0", bits: 2, scale: "super32", signed: true, bias: 0},
}

func (f format) super() bool { return f.scale == "super32" || f.scale == "super16" }

// headerBytes stands in front of 8 records: 16 float16 super-scales, and 16 super-mins.
func (f format) headerBytes() int {
	switch {
	case !f.super():
		return 0
	case f.min:
		return 64
	}
	return 32
}

func (f format) planeBytes() int { return f.bits * 64 }

func (f format) recordBytes() int {
	n := f.planeBytes()
	switch f.scale {
	case "e8":
		return n + 16
	case "super32":
		if f.min {
			return n + 32
		}
		return n + 16
	case "super16":
		return n + 32
	case "f16x2":
		return n + 64
	case "f32x2":
		return n + 128
	}
	if f.min {
		return n + 64
	}
	return n + 32
}

// signedOn says whether the kernels of the machine multiply signed weights: AVX2's VPMADDUBSW would overflow on weights
// of 8 unsigned bits, so there the sign moves to the activation (VPSIGNB).
func (f format) signedOn(s *simd) bool { return !s.zmm && f.bias == 7 }

// unpacker holds the constants that turn a record's planes into 8 vectors of bytes, vector g with columns 4g..4g+3 of
// every row in one dword a row.
type unpacker struct {
	f          format
	s          *simd
	low, extra Op // masks, tables
	table      Op
	t0, t1     reg.VecPhysical
}

// unpacker prepares the constants: in registers on AVX-512, in memory on AVX2. t0 and t1 are scratch.
func (s *simd) unpacker(f format, t0, t1 reg.VecPhysical) *unpacker {
	u := &unpacker{f: f, s: s, t0: t0, t1: t1}
	hold := func(m Mem) Op {
		if !s.zmm {
			return m
		}
		r := s.vec()
		s.load(m, r)
		return r
	}
	switch f.bits {
	case 2:
		u.low = hold(s.byteOf(0x03))
	case 3:
		u.low, u.extra = hold(s.byteOf(0x03)), hold(s.byteOf(0x04))
	case 4:
		u.low = hold(s.byteOf(0x0F))
	case 5:
		u.low, u.extra = hold(s.byteOf(0x0F)), hold(s.byteOf(0x10))
	case 6:
		u.low, u.extra = hold(s.byteOf(0x0F)), hold(s.byteOf(0x30))
	case 8:
		u.extra = hold(s.byteOf(0x80))
	}
	if f.table != nil {
		var b [16]byte
		for i, v := range f.table {
			b[i] = byte(v)
			if !f.signedOn(s) {
				b[i] = byte(int(v) + 128)
			}
		}
		m := s.bytesOf("table"+f.name, b)
		u.table = m
		r := s.vec()
		s.load(m, r)
		u.table = r
	}
	return u
}

// shiftTo moves bit `from` of every byte to bit `to`; other bits become rubbish.
func (u *unpacker) shiftTo(src reg.VecPhysical, from, to int, dst reg.VecPhysical) reg.VecPhysical {
	switch {
	case from > to:
		VPSRLW(U8(from-to), src, dst)
	case from < to:
		VPSLLW(U8(to-from), src, dst)
	case u.s.zmm:
		return src
	default:
		VMOVDQA(src, dst)
	}
	return dst
}

// emit unpacks the record at planes into w[0..7].
func (u *unpacker) emit(planes Mem, w []reg.VecPhysical) {
	s := u.s
	switch u.f.bits {
	case 8:
		for g := range 8 {
			if s.zmm {
				VPXORD(planes.Offset(64*g), u.extra, w[g])
			} else {
				s.load(planes.Offset(64*g), w[g])
			}
		}
		return
	case 2, 3:
		u.emitPairs(planes, w)
	default:
		u.emitNibbles(planes, w)
	}
	if u.f.table != nil {
		for g := range 8 {
			VPSHUFB(w[g], u.table.(reg.VecPhysical), w[g])
		}
	}
}

// emitNibbles unpacks four planes of nibbles, and the planes of upper bits.
func (u *unpacker) emitNibbles(planes Mem, w []reg.VecPhysical) {
	s := u.s
	for i := range 4 {
		s.load(planes.Offset(64*i), w[4+i])
		s.and(u.low, w[4+i], w[i])
		VPSRLW(U8(4), w[4+i], w[4+i])
		s.and(u.low, w[4+i], w[4+i])
	}
	switch u.f.bits {
	case 5:
		s.load(planes.Offset(256), u.t0)
		for g := range 8 {
			s.orMasked(u.extra, u.shiftTo(u.t0, g, 4, u.t1), w[g])
		}
	case 6:
		for p := range 2 {
			s.load(planes.Offset(256+64*p), u.t0)
			for g := range 4 {
				s.orMasked(u.extra, u.shiftTo(u.t0, 2*g, 4, u.t1), w[4*p+g])
			}
		}
	}
}

// emitPairs unpacks two planes of 2 bits, and a plane of third bits.
func (u *unpacker) emitPairs(planes Mem, w []reg.VecPhysical) {
	s := u.s
	for p := range 2 {
		s.load(planes.Offset(64*p), w[4*p+3])
		for g := range 3 {
			src := w[4*p+3]
			if g > 0 {
				VPSRLW(U8(2*g), src, w[4*p+g])
				src = w[4*p+g]
			}
			s.and(u.low, src, w[4*p+g])
		}
		VPSRLW(U8(6), w[4*p+3], w[4*p+3])
		s.and(u.low, w[4*p+3], w[4*p+3])
	}
	if u.f.bits == 3 {
		s.load(planes.Offset(128), u.t0)
		for g := range 8 {
			s.orMasked(u.extra, u.shiftTo(u.t0, g, 2, u.t1), w[g])
		}
	}
}
