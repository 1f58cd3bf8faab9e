package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// An activation record holds 32 columns of T rows (internal/kernels/activations.go): T*32 int8, then T values each of
// the scale dx (float32), dx*sum (float32), -sum (int32), -sum of columns 0..15 and of 16..31 (int32).
const actBytes = 52 // a row

func actQ(T, t, g int) int   { return t*32 + g*4 }
func actDX(T, t int) int     { return T*32 + t*4 }
func actSum(T, t int) int    { return T*36 + t*4 }
func actNeg(T, t, h int) int { return T*(40+4*h) + t*4 } // h: 0 whole, 1 and 2 halves

func init() {
	for _, isa := range []string{"avx512", "avx2"} {
		register("matmul_dot", isa, func() {
			s := newSIMD(isa)
			for _, f := range formats {
				for _, T := range s.dotRows(f) {
					s.dot(f, T)
				}
			}
		})
	}
}

// dotRows is how many activation rows the kernels take: what the registers hold beside 8 vectors of weights.
func (s *simd) dotRows(f format) []int {
	switch {
	case s.zmm:
		return []int{1, 2, 4, 8, 16}
	case f.scale == "super16" && f.min:
		return []int{1}
	case f.scale == "super16":
		return []int{1, 2}
	case f.bits != 4 || f.table != nil:
		return []int{1, 2}
	}
	return []int{1, 2, 4}
}

// dot emits the product of one tile of 16 weight rows with T activation rows over all columns:
//
//	dst[t][r] = sum over records b of d[b][r]*dx[b][t]*(sum of w*q) + m[b][r]*dx[b][t]*(sum of q)
//
// with integer sums exact and the float32 sums in rising order of b, whatever T is. Work a record on AVX-512: T*8
// VPDPBUSD (512 multiply-adds each 16 rows by 4 columns: T*512 in all), T*3 or T*4 float operations, about 14 to unpack
// and 32*bits*2+64 bytes read once for the T rows.
func (s *simd) dot(f format, T int) {
	name := fmt.Sprintf("Dot%sx%d", f.name, T)
	s.function(name, "func(dst *float32, strideBytes uintptr, tile *byte, act *byte, records int)",
		fmt.Sprintf("%s multiplies a %s tile of 16 rows with %d activation rows; dst rows are strideBytes apart.", name, f.name, T))
	dst := Load(Param("dst"), GP64())
	stride := Load(Param("strideBytes"), GP64())
	for pass := range s.passes() {
		base := Load(Param("tile"), GP64())
		act := Load(Param("act"), GP64())
		left := Load(Param("records"), GP64())
		s.used = 0
		acc := s.vecs(T)
		w := s.vecs(8)
		t0, t1 := s.vec(), s.vec()
		sc := s.scaleRegs(f)
		var t2 reg.VecPhysical // a third temporary, where the registers allow
		if T <= 2 {
			t2 = s.vec()
		}
		t3 := t2
		if f.bits == 6 && !s.zmm {
			t3 = s.vec() // the second half's sum is alive beside the first's
		}
		u := s.unpacker(f, t0, t1)
		for _, a := range acc {
			s.zero(a)
		}
		c := s.newCursor(f, base)
		if pass == 1 {
			c.rows8()
			ADDQ(U8(32), dst)
		}
		super, record := fmt.Sprintf("super%d", pass), fmt.Sprintf("record%d", pass)
		var inner reg.Register
		if f.super() {
			Label(super)
			MOVQ(c.halves, c.header)
			c.advance(f.headerBytes())
			inner = GP64()
			MOVQ(U32(8), inner)
		}
		Label(record)
		if s.zmm && T <= 2 {
			s.prefetch(f, c)
		}
		u.emit(Mem{Base: c.planes}, w)
		s.emitScales(c, sc, t0)
		if s.zmm && T >= 4 && f.scale != "super16" {
			for t := 0; t < T; t += 2 {
				s.dotRows32(f, T, t, act, w, sc, acc, t0, t1)
			}
		}
		for t := range T {
			if s.zmm && T >= 4 && f.scale != "super16" {
				break
			}
			if f.scale == "super16" {
				s.dotRow16(f, T, t, act, w, sc, acc[t], t0, t1, t2, t3)
			} else {
				s.dotRow32(f, T, t, act, w, sc, acc[t], t0, t1, t2)
			}
		}
		c.advance(f.recordBytes())
		ADDQ(U32(T*actBytes), act)
		if f.super() {
			DECQ(inner)
			JNZ(LabelRef(record))
			SUBQ(U8(8), left)
			JNZ(LabelRef(super))
		} else {
			DECQ(left)
			JNZ(LabelRef(record))
		}
		s.storeRows(dst, stride, acc)
	}
	VZEROUPPER()
	RET()
}

// prefetchAhead is how far in front of the cursor lines are asked for: about the bytes in flight at full bandwidth of
// a core (16 GB/s by 100 ns), rounded up.
const prefetchAhead = 2048

func (s *simd) prefetch(f format, c *cursor) {
	for at := 0; at < f.recordBytes(); at += 64 {
		PREFETCHT0(Mem{Base: c.planes, Disp: at + prefetchAhead})
	}
}

// storeRows writes the sums of each activation row to its row of dst.
func (s *simd) storeRows(dst, stride reg.Register, acc []reg.VecPhysical) {
	at := dst
	if len(acc) > 1 {
		at = GP64()
		MOVQ(dst, at)
	}
	for i, a := range acc {
		VMOVUPS(a, Mem{Base: at})
		if i+1 < len(acc) {
			ADDQ(stride, at)
		}
	}
}

// dotRow32 adds one record for activation row t, one scale for its 32 columns.
func (s *simd) dotRow32(f format, T, t int, act reg.Register, w []reg.VecPhysical, v scales, acc, t0, t1, t2 reg.VecPhysical) {
	at := func(disp int) Mem { return Mem{Base: act, Disp: disp} }
	s.intDot(f, T, t, 0, 8, act, w, t0, t1, t2)
	VCVTDQ2PS(t0, t0)
	s.mulBroadcast(at(actDX(T, t)), t0, t0, t1)
	VFMADD231PS(v.d[0], t0, acc)
	if f.min {
		s.fmaBroadcast(at(actSum(T, t)), v.m[0], acc, t1)
	}
}

// dotRow16 adds one record whose halves have scales of their own.
func (s *simd) dotRow16(f format, T, t int, act reg.Register, w []reg.VecPhysical, v scales, acc, t0, t1, t2, t3 reg.VecPhysical) {
	at := func(disp int) Mem { return Mem{Base: act, Disp: disp} }
	s.intDot(f, T, t, 0, 4, act, w, t0, t1, t2)
	VCVTDQ2PS(t0, t0)
	VMULPS(v.d[0], t0, t0)
	s.intDot(f, T, t, 4, 4, act, w, t1, t2, t3)
	VCVTDQ2PS(t1, t1)
	VFMADD231PS(v.d[1], t1, t0)
	for h := range v.m {
		s.broadcastInt(at(actNeg(T, t, 1+h)), 0, t1)
		VCVTDQ2PS(t1, t1)
		VFMADD231PS(v.m[h], t1, t0)
	}
	s.fmaBroadcast(at(actDX(T, t)), t0, acc, t1)
}

// intDot sets sum to the integer products of columns 4*g0.. of n groups with activation row t, less the bias's share.
func (s *simd) intDot(f format, T, t, g0, n int, act reg.Register, w []reg.VecPhysical, sum, t1, t2 reg.VecPhysical) {
	at := func(disp int) Mem { return Mem{Base: act, Disp: disp} }
	half := 0
	if n == 4 {
		half = 1 + g0/4
	}
	if s.zmm {
		if f.bias >= 0 {
			s.broadcastInt(at(actNeg(T, t, half)), f.bias, sum)
		} else {
			s.zero(sum)
		}
		for g := g0; g < g0+n; g++ {
			VPDPBUSD_BCST(at(actQ(T, t, g)), w[g], sum)
		}
		return
	}
	// Products of pairs fit 16 bits with room for a few more before they are widened: 127*2*(2^bits-1) each.
	room := map[int]int{2: 8, 3: 8, 4: 8, 5: 4, 6: 2, 8: 1}[f.bits]
	if f.signedOn(s) {
		room = 1
	}
	for first := 0; first < n; first += room {
		pairs := sum // the first run sums in place
		if first > 0 {
			pairs = t1
		}
		for i := range min(room, n) {
			product := pairs
			if i > 0 {
				product = t1
				if first > 0 {
					product = t2
				}
			}
			g := g0 + first + i
			VPBROADCASTD(at(actQ(T, t, g)), product)
			if f.signedOn(s) {
				VPSIGNB(w[g], product, product)
				VPABSB(w[g], t2)
				VPMADDUBSW(product, t2, product)
			} else {
				VPMADDUBSW(product, w[g], product)
			}
			if i > 0 {
				VPADDW(product, pairs, pairs)
			}
		}
		VPMADDWD(s.wordOnes(), pairs, pairs)
		if first > 0 {
			VPADDD(pairs, sum, sum)
		}
	}
	if f.bias >= 0 && !f.signedOn(s) {
		s.broadcastInt(at(actNeg(T, t, half)), f.bias, t1)
		VPADDD(t1, sum, sum)
	}
}

func (s *simd) wordOnes() Mem { return s.dwordOf(0x00010001) }

// dotRows32 is dotRow32 for rows t and t+1 at once: two independent chains of VPDPBUSD.
func (s *simd) dotRows32(f format, T, t int, act reg.Register, w []reg.VecPhysical, v scales, acc []reg.VecPhysical, t0, t1 reg.VecPhysical) {
	at := func(disp int) Mem { return Mem{Base: act, Disp: disp} }
	sums := []reg.VecPhysical{t0, t1}
	for i, sum := range sums {
		if f.bias >= 0 {
			s.broadcastInt(at(actNeg(T, t+i, 0)), f.bias, sum)
		} else {
			s.zero(sum)
		}
	}
	for g := range w {
		for i, sum := range sums {
			VPDPBUSD_BCST(at(actQ(T, t+i, g)), w[g], sum)
		}
	}
	for i, sum := range sums {
		VCVTDQ2PS(sum, sum)
		VMULPS_BCST(at(actDX(T, t+i)), sum, sum)
		VFMADD231PS(v.d[0], sum, acc[t+i])
		if f.min {
			VFMADD231PS_BCST(at(actSum(T, t+i)), v.m[0], acc[t+i])
		}
	}
}
