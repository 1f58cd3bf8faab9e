package main

import (
	"math"
	"strconv"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func init() {
	for _, isa := range []string{"avx512", "avx2"} {
		register("matmul_unpack", isa, func() {
			s := newSIMD(isa)
			for _, f := range formats {
				s.unpack(f)
			}
		})
	}
}

// unpack emits the dequantisation of a tile's records into a float32 panel [column][16 rows], bit for bit as
// quant.Dequantize does it: every product of an integer weight with its scale is exact in float32, so that fused and
// separate operations agree. About 160 operations a record of 512 weights, and 2 KiB written.
func (s *simd) unpack(f format) {
	name := "Unpack" + f.name
	s.function(name, "func(panel *float32, tile *byte, first, records int)",
		name+" writes columns 32*first.. of records*32 columns of a "+f.name+" tile as float32 [column][16 rows].")
	for pass := range s.passes() {
		panel := Load(Param("panel"), GP64())
		base := Load(Param("tile"), GP64())
		first := Load(Param("first"), GP64())
		left := Load(Param("records"), GP64())
		s.used = 0
		w := s.vecs(8)
		t0, t1 := s.vec(), s.vec()
		sc := s.scaleRegs(f)
		values := s.weights(f, sc)
		u := s.unpacker(f, t0, t1)
		s.skipRecords(f, base, first)
		c := s.newCursor(f, base, pass)
		if pass == 1 {
			ADDQ(U8(32), panel)
		}
		s.eachRecord(c, left, strconv.Itoa(pass), func() {
			u.emit(c.planes(0), w)
			s.emitScales(c, sc, t0)
			values.prepare()
			for g, v := range w {
				for j := range 4 {
					values.column(v, g, j, t0)
					VMOVUPS(t0, Mem{Base: panel, Disp: (4*g + j) * 64})
				}
			}
			ADDQ(U32(32*64), panel)
		})
	}
	VZEROUPPER()
	RET()
}

// skipRecords moves base, a tile, to record first, which it destroys.
func (s *simd) skipRecords(f format, base, first reg.Register) {
	if f.super() { // first is a multiple of 8
		SHRQ(U8(3), first)
		IMUL3Q(I32(8*f.recordBytes()+f.headerBytes()), first, first)
	} else {
		IMUL3Q(I32(f.recordBytes()), first, first)
	}
	ADDQ(first, base)
}

// weights is how bytes become float32 weights: w = d*u + m, one fused operation. Where the bytes carry a bias, m takes it
// off again, which is exact because d*u and d*bias are; only MXFP4's scales are so large that d*bias may overflow.
type weights struct {
	s        *simd
	f        format
	d, m     []reg.VecPhysical
	subtract bool // take the bias off as an integer
}

func (s *simd) weights(f format, sc scales) *weights {
	w := &weights{s: s, f: f, d: sc.d, m: sc.m, subtract: f.scale == "e8"}
	if f.bias >= 0 && !f.signedOn(s) && !w.subtract {
		w.m = s.vecs(len(sc.d))
	}
	return w
}

// prepare follows the loading of a record's scales.
func (w *weights) prepare() {
	for h, m := range w.m {
		switch {
		case !w.f.min:
			VMULPS(w.s.dwordOf(math.Float32bits(-float32(int(1)<<w.f.bias))), w.d[h], m)
		case w.f.scale == "super16":
			w.s.negate(m)
		}
	}
}

// column sets dst to column j of group g, whose bytes are v.
func (w *weights) column(v reg.VecPhysical, g, j int, dst reg.VecPhysical) {
	h := g * w.f.parts() / 8
	switch {
	case w.f.signedOn(w.s):
		VPSLLD(U8(24-8*j), v, dst)
		VPSRAD(U8(24), dst, dst)
	case j == 3:
		VPSRLD(U8(24), v, dst)
	default:
		VPSLLD(U8(24-8*j), v, dst)
		VPSRLD(U8(24), dst, dst)
	}
	if w.subtract && !w.f.signedOn(w.s) {
		VPSUBD(w.s.dwordOf(1<<w.f.bias), dst, dst)
	}
	VCVTDQ2PS(dst, dst)
	if w.m != nil {
		VFMADD213PS(w.m[h], w.d[h], dst)
	} else {
		VMULPS(w.d[h], dst, dst)
	}
}
