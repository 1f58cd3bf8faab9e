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
	for h := range v.d {
		var m reg.VecPhysical
		if c.f.min {
			m = v.m[h]
		}
		s.emitScale(c, h, v.d[h], m, tmp)
	}
}

// emitScale is emitScales for half h of the record.
func (s *simd) emitScale(c *cursor, h int, d, m, tmp reg.VecPhysical) {
	at := c.f.planeBytes()
	switch c.f.scale {
	case "f16":
		s.halves(Mem{Base: c.halves, Disp: at}, d)
		if c.f.min {
			s.halves(Mem{Base: c.halves, Disp: at + 32}, m)
		}
	case "e8":
		VPMOVZXBD(Mem{Base: c.byts, Disp: at}, d)
		VPSLLD(U8(23), d, d)
	case "super32":
		s.superScale(c, at, 0, d, tmp)
		if c.f.min {
			s.superScale(c, at+16, 32, m, tmp)
			s.negate(m)
		}
	case "super16":
		if !c.f.min {
			s.superScale(c, at+16*h, 0, d, tmp)
			return
		}
		VPMOVZXBD(Mem{Base: c.byts, Disp: at + 16*h}, d)
		VPSRLD(U8(4), d, m)
		VPSLLD(U8(28), d, d)
		VPSRLD(U8(28), d, d)
		s.halves(Mem{Base: c.header}, tmp)
		VCVTDQ2PS(d, d)
		VMULPS(tmp, d, d)
		s.halves(Mem{Base: c.header, Disp: 32}, tmp)
		VCVTDQ2PS(m, m)
		VMULPS(tmp, m, m)
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

// eachRecord emits the loop over a tile's records, with the super-blocks' headers; body emits the work on one.
func (s *simd) eachRecord(c *cursor, left reg.Register, label string, body func()) {
	if !c.f.super() {
		Label("record" + label)
		body()
		c.advance(c.f.recordBytes())
		DECQ(left)
		JNZ(LabelRef("record" + label))
		return
	}
	inner := GP64()
	Label("super" + label)
	MOVQ(c.halves, c.header)
	c.advance(c.f.headerBytes())
	MOVQ(U32(8), inner)
	Label("record" + label)
	body()
	c.advance(c.f.recordBytes())
	DECQ(inner)
	JNZ(LabelRef("record" + label))
	SUBQ(U8(8), left)
	JNZ(LabelRef("super" + label))
}
