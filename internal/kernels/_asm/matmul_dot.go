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
	if s.zmm || T > 2 {
		for pass := range s.passes() {
			s.dotPass(f, T, dst, stride, strconv.Itoa(pass), pass)
			if pass+1 < s.passes() {
				ADDQ(U8(32), dst)
			}
		}
	} else { // few rows: memory is read once, in rising order
		s.dotPass(f, T, dst, stride, "0", 0, 1)
	}
	VZEROUPPER()
	RET()
}

// dotPass emits the loop over a tile's records for the weight rows of the halves given; two need dst 32 bytes apart.
func (s *simd) dotPass(f format, T int, dst, stride reg.Register, label string, halves ...int) {
	base := Load(Param("tile"), GP64())
	act := Load(Param("act"), GP64())
	left := Load(Param("records"), GP64())
	s.used = 0
	ds := make([]*dotter, len(halves))
	for i, half := range halves {
		d := &dotter{s: s, f: f, T: T, act: act, acc: s.vecs(T)}
		for _, a := range d.acc {
			s.zero(a)
		}
		if d.c = s.newCursor(f, base, half); i > 0 {
			d.c.header = ds[0].c.header
		}
		ds[i] = d
	}
	var record func()
	switch {
	case s.zmm:
		record = ds[0].recordAVX512()
	case T == 1 && f.parts() == 1:
		record = s.recordOne(ds)
	default:
		record = s.recordAVX2(ds)
	}
	var more []*cursor
	for _, d := range ds[1:] {
		more = append(more, d.c)
	}
	s.eachRecord(ds[0].c, left, label, func() {
		record()
		ADDQ(U32(T*actBytes), act)
	}, more...)
	for i, d := range ds {
		if i > 0 {
			ADDQ(U8(32), dst)
		}
		s.storeRows(dst, stride, d.acc)
	}
}

// dotter is the state of one pass over 16 weight rows, or 8 on AVX2.
type dotter struct {
	s   *simd
	f   format
	T   int
	act reg.Register
	c   *cursor
	acc []reg.VecPhysical
	// integer sums of a row: 16 bits until there is no more room, and 32 bits; AVX2 only
	short, wide []reg.VecPhysical
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
