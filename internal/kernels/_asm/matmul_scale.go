package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// cursor walks a tile: three pointers into the same records, because a pass over 8 of the 16 rows starts 32 bytes into
// planes, 16 bytes into float16 scales and 8 bytes into byte scales. On AVX-512 the three are one register.
type cursor struct {
	f                    format
	planes, halves, byts reg.Register
	header               reg.Register // halves pointer at the super-block's header
}

// newCursor starts at pass p of the tile at base.
func (s *simd) newCursor(f format, base reg.Register) *cursor {
	if s.zmm {
		return &cursor{f: f, planes: base, halves: base, byts: base, header: GP64()}
	}
	c := &cursor{f: f, planes: base, halves: GP64(), byts: GP64(), header: GP64()}
	MOVQ(base, c.halves)
	MOVQ(base, c.byts)
	return c
}

// rows8 moves a cursor at a tile's start to rows 8..15.
func (c *cursor) rows8() {
	ADDQ(U8(32), c.planes)
	ADDQ(U8(16), c.halves)
	ADDQ(U8(8), c.byts)
}

func (c *cursor) advance(n int) {
	ADDQ(I32(n), c.planes)
	if c.halves != c.planes {
		ADDQ(I32(n), c.halves)
		ADDQ(I32(n), c.byts)
	}
}

// scales are the float32 scales of one record: y += d[h]*isum[h]*dx + m[h]*..., h over the record's halves.
type scales struct{ d, m []reg.VecPhysical }

func (s *simd) scaleRegs(f format) scales {
	n := 1
	if f.scale == "super16" {
		n = 2
	}
	v := scales{d: s.vecs(n)}
	if f.min {
		v.m = s.vecs(n)
	}
	return v
}

// emitScales loads the scales of the record at the cursor; tmp is scratch. Mins of super-blocks come out negated in
// "super32" and plain in "super16", as the callers add them.
func (s *simd) emitScales(c *cursor, v scales, tmp reg.VecPhysical) {
	at := c.f.planeBytes()
	switch c.f.scale {
	case "f16":
		s.halves(Mem{Base: c.halves, Disp: at}, v.d[0])
		if c.f.min {
			s.halves(Mem{Base: c.halves, Disp: at + 32}, v.m[0])
		}
	case "e8":
		VPMOVZXBD(Mem{Base: c.byts, Disp: at}, v.d[0])
		VPSLLD(U8(23), v.d[0], v.d[0])
	case "super32":
		s.superScale(c, at, 0, v.d[0], tmp)
		if c.f.min {
			s.superScale(c, at+16, 32, v.m[0], tmp)
			s.negate(v.m[0])
		}
	case "super16":
		for h := range 2 {
			if !c.f.min {
				s.superScale(c, at+16*h, 0, v.d[h], tmp)
				continue
			}
			VPMOVZXBD(Mem{Base: c.byts, Disp: at + 16*h}, v.d[h])
			VPSRLD(U8(4), v.d[h], v.m[h])
			VPSLLD(U8(28), v.d[h], v.d[h])
			VPSRLD(U8(28), v.d[h], v.d[h])
			s.halves(Mem{Base: c.header}, tmp)
			VCVTDQ2PS(v.d[h], v.d[h])
			VMULPS(tmp, v.d[h], v.d[h])
			s.halves(Mem{Base: c.header, Disp: 32}, tmp)
			VCVTDQ2PS(v.m[h], v.m[h])
			VMULPS(tmp, v.m[h], v.m[h])
		}
	}
}

// superScale sets dst = float(byte scale) * super-scale.
func (s *simd) superScale(c *cursor, at, headerAt int, dst, tmp reg.VecPhysical) {
	if c.f.signed {
		VPMOVSXBD(Mem{Base: c.byts, Disp: at}, dst)
	} else {
		VPMOVZXBD(Mem{Base: c.byts, Disp: at}, dst)
	}
	s.halves(Mem{Base: c.header, Disp: headerAt}, tmp)
	VCVTDQ2PS(dst, dst)
	VMULPS(tmp, dst, dst)
}

func (s *simd) negate(r reg.VecPhysical) {
	if s.zmm {
		VPXORD(s.dwordOf(1<<31), r, r)
	} else {
		VPXOR(s.dwordOf(1<<31), r, r)
	}
}
