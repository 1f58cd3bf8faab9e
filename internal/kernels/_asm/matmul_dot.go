package main

import (
	"fmt"
	"strconv"

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
				for T := 1; T <= 16 && (s.zmm || T <= 4); T *= 2 {
					s.dot(f, T)
				}
			}
		})
	}
}

// dot emits the product of one tile of 16 weight rows with T activation rows over all columns:
//
//	dst[t][r] = sum over records b of d[b][r]*dx[b][t]*(sum of w*q) + m[b][r]*dx[b][t]*(sum of q)
//
// with integer sums exact and the float32 sums in rising order of b, whatever T is.
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
		d := &dotter{s: s, f: f, T: T, act: act, acc: s.vecs(T)}
		for _, a := range d.acc {
			s.zero(a)
		}
		d.c = s.newCursor(f, base)
		if pass == 1 {
			d.c.rows8()
			ADDQ(U8(32), dst)
		}
		record := d.recordAVX2()
		if s.zmm {
			record = d.recordAVX512()
		}
		s.eachRecord(d.c, left, strconv.Itoa(pass), func() {
			record()
			ADDQ(U32(T*actBytes), act)
		})
		s.storeRows(dst, stride, d.acc)
	}
	VZEROUPPER()
	RET()
}

// dotter is the state of one pass.
type dotter struct {
	s   *simd
	f   format
	T   int
	act reg.Register
	c   *cursor
	acc []reg.VecPhysical
}

func (d *dotter) q(t, g int) Mem   { return Mem{Base: d.act, Disp: actQ(d.T, t, g)} }
func (d *dotter) dx(t int) Mem     { return Mem{Base: d.act, Disp: actDX(d.T, t)} }
func (d *dotter) sum(t int) Mem    { return Mem{Base: d.act, Disp: actSum(d.T, t)} }
func (d *dotter) neg(t, h int) Mem { return Mem{Base: d.act, Disp: actNeg(d.T, t, h)} }

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
