package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// cursor walks a tile. A machine of 8 lanes sees rows 0..7 or 8..15 (half 1), which lie 32 bytes into each line of the
// planes, 16 bytes into float16 scales and 8 bytes into byte scales.
type cursor struct {
	f      format
	at     reg.Register // the record
	header reg.Register // the super-block's header
	half   int
	supers [2]reg.VecPhysical // super-scales and negated super-minima in registers; nil: read with each record
}

func (s *simd) newCursor(f format, base reg.Register, half int) *cursor {
	c := &cursor{f: f, at: base, half: half}
	if f.super() {
		c.header = GP64()
	}
	return c
}

func (c *cursor) planes(disp int) Mem { return Mem{Base: c.at, Disp: disp + 32*c.half} }
func (c *cursor) halves(disp int) Mem { return Mem{Base: c.at, Disp: disp + 16*c.half} }
func (c *cursor) bytes(disp int) Mem  { return Mem{Base: c.at, Disp: disp + 8*c.half} }
func (c *cursor) super(disp int) Mem  { return Mem{Base: c.header, Disp: disp + 16*c.half} }

func (c *cursor) advance(n int) { ADDQ(I32(n), c.at) }

// scales are the float32 scales of one record: y += d[h]*isum[h]*dx + m[h]*..., h over the record's halves.
type scales struct{ d, m []reg.VecPhysical }

func (s *simd) scaleRegs(f format) scales {
	n := f.parts()
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
		s.halves(c.halves(at), d)
		if c.f.min {
			s.halves(c.halves(at+32), m)
		}
	case "e8":
		VPMOVZXBD(c.bytes(at), d)
		VPSLLD(U8(23), d, d)
	case "f16x2":
		s.halves(c.halves(at+32*h), d)
	case "f32x2":
		VMOVUPS(c.planes(at+64*h), d)
	case "super32":
		s.superScale(c, at, 0, d, tmp)
		if c.f.min {
			s.superScale(c, at+16, 1, m, tmp)
		}
	case "super16":
		if !c.f.min {
			s.superScale(c, at+16*h, 0, d, tmp)
			return
		}
		VPMOVZXBD(c.bytes(at+16*h), d)
		VPSRLD(U8(4), d, m)
		VPSLLD(U8(28), d, d)
		VPSRLD(U8(28), d, d)
		VCVTDQ2PS(d, d)
		VMULPS(s.super(c, 0, tmp), d, d)
		VCVTDQ2PS(m, m)
		VMULPS(s.super(c, 1, tmp), m, m)
	}
}

// superScale sets dst = float(byte scale) * super-scale, or (which 1) super-minimum, negated.
func (s *simd) superScale(c *cursor, at, which int, dst, tmp reg.VecPhysical) {
	if c.f.signed {
		VPMOVSXBD(c.bytes(at), dst)
	} else {
		VPMOVZXBD(c.bytes(at), dst)
	}
	VCVTDQ2PS(dst, dst)
	VMULPS(s.super(c, which, tmp), dst, dst)
	if which == 1 && c.supers[1] == nil {
		s.negate(dst)
	}
}

// super is the register with the super-scales (0) or super-minima (1): one that holds them, or tmp, into which they are read.
func (s *simd) super(c *cursor, which int, tmp reg.VecPhysical) reg.VecPhysical {
	if r := c.supers[which]; r != nil {
		return r
	}
	s.loadSuper(c, which, tmp)
	return tmp
}

// holdSupers keeps the super-scales in registers, and the super-minima, negated in "super32".
func (s *simd) holdSupers(c *cursor) {
	for which := range 2 {
		if c.f.super() && (which == 0 || c.f.min) {
			c.supers[which] = s.vec()
		}
	}
}

func (s *simd) loadSupers(c *cursor) {
	for which, r := range c.supers {
		if r == nil {
			continue
		}
		s.loadSuper(c, which, r)
		if which == 1 && c.f.scale == "super32" {
			s.negate(r)
		}
	}
}

func (s *simd) loadSuper(c *cursor, which int, r reg.VecPhysical) {
	s.halves(c.super(32*which), r)
	if c.f.shift > 0 {
		VMULPS(s.dwordOf(uint32(127-c.f.shift)<<23), r, r)
	}
}

func (s *simd) negate(r reg.VecPhysical) {
	if s.zmm {
		VPXORD(s.dwordOf(1<<31), r, r)
	} else {
		VPXOR(s.dwordOf(1<<31), r, r)
	}
}

// eachRecord emits the loop over a tile's records, with the super-blocks' headers; body emits the work on one. More cursors
// are of other halves of the same tile.
func (s *simd) eachRecord(c *cursor, left reg.Register, label string, body func(), more ...*cursor) {
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
	MOVQ(c.at, c.header)
	for _, c := range append(more, c) {
		s.loadSupers(c)
	}
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
