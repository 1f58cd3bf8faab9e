package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The packing of whole tiles, as internal/kernels/packed.go defines it: dword j of a block of 16 rows is one vector, which
// is what a tile holds. AVX-512 gathers it, about 16 loads for 64 packed bytes. AVX2, whose gathers cost more than loads, takes 16
// bytes of each of 8 rows at a time and turns them in registers, rows 8 to 15 after rows 0 to 7. The plain packer serves
// the other types, tiles with fewer rows and the other CPU paths.

// packer has the state of one packing function.
type packer struct {
	s        *simd
	src, dst reg.Register
	masks    map[byte]Op
	// AVX-512
	rows reg.VecPhysical // byte offset of each row
	k    reg.Register
	// AVX2
	half     int             // 1: rows 8 to 15
	quads    [4]reg.Register // rows 0, 4, 8, 12
	by1, by3 reg.Register    // rowBytes, times 3
}

func init() {
	for _, isa := range []string{"avx512", "avx2"} {
		register("matmul_pack", isa, func() { newSIMD(isa).packers() })
	}
}

func (s *simd) packers() {
	s.packer("Q4_0", 18, 288, func(p *packer) { p.legacy(256, 2, 0) })
	s.packer("Q4_1", 20, 320, func(p *packer) { p.legacy(256, 4, 0) })
	s.packer("Q5_0", 22, 352, func(p *packer) { p.legacy(320, 6, 2) })
	s.packer("Q5_1", 24, 384, func(p *packer) { p.legacy(320, 8, 4) })
	s.packer("Q8_0", 34, 544, func(p *packer) {
		v := p.s.vec()
		p.gather(0, v)
		p.words(v, 512)
		p.copies(8, 2, 0)
	}, 0)
	s.packer("Q4_K", 144, 64+8*288, (*packer).q4k, 0x0F, 0xF0, 63, 15, 3)
	s.packer("Q5_K", 176, 64+8*352, (*packer).q5k, 0x0F, 0xF0, 63, 15, 3, 1)
	s.packer("Q6_K", 210, 32+8*416, (*packer).q6k, 0x0F, 0xF0, 3)
	s.packer("Halves", 4, 64, func(p *packer) {
		v := p.s.vec()
		p.gather(0, v)
		p.pairs(v, 0)
	})
	s.packer("Words", 4, 64, func(p *packer) { p.copy(0, 0) })
}

// packer emits Pack<name>: blocks of blockBytes in 16 rows become spans of spanBytes. AVX-512 keeps byte masks in registers.
func (s *simd) packer(name string, blockBytes, spanBytes int, body func(*packer), masks ...byte) {
	s.function("Pack"+name, "func(dst, src *byte, rowBytes uintptr, blocks int)",
		"Pack"+name+" packs 16 whole rows, rowBytes apart, of so many "+name+" blocks into a tile.")
	p := &packer{s: s, masks: map[byte]Op{}}
	if s.zmm {
		p.k, p.rows = K(), s.vec()
	}
	p.dst = Load(Param("dst"), GP64())
	p.src = Load(Param("src"), GP64())
	stride := Load(Param("rowBytes"), GP64())
	left := Load(Param("blocks"), GP64())
	if s.zmm {
		p.rowOffsets(stride)
	} else {
		p.rowBases(stride)
	}
	for _, m := range masks {
		p.masks[m] = s.byteOf(m)
		if s.zmm {
			v := s.vec()
			s.load(s.byteOf(m), v)
			p.masks[m] = v
		}
	}
	mark := s.used
	Label("block")
	for p.half = range s.passes() {
		s.used = mark
		body(p)
	}
	p.advance(blockBytes)
	ADDQ(U32(spanBytes), p.dst)
	DECQ(left)
	JNZ(LabelRef("block"))
	VZEROUPPER()
	RET()
}

// rowOffsets fills the vector of the rows' offsets.
func (p *packer) rowOffsets(stride reg.Register) {
	order := p.s.rowNumbers()
	VPBROADCASTD(stride.(reg.GPVirtual).As32(), p.rows)
	VPMULLD(order, p.rows, p.rows)
}

// rowBases fills the registers that rows are addressed by.
func (p *packer) rowBases(stride reg.Register) {
	p.by1, p.by3 = stride, GP64()
	LEAQ(Mem{Base: stride, Index: stride, Scale: 2}, p.by3)
	p.quads[0] = p.src
	for i := range 3 {
		p.quads[i+1] = GP64()
		LEAQ(Mem{Base: p.quads[i], Index: stride, Scale: 4}, p.quads[i+1])
	}
}

// advance steps to the next block.
func (p *packer) advance(blockBytes int) {
	if p.s.zmm {
		ADDQ(U32(blockBytes), p.src)
		return
	}
	for _, q := range p.quads {
		ADDQ(U32(blockBytes), q)
	}
}

// at addresses a byte of the block in row r of the pass.
func (p *packer) at(r, disp int) Mem {
	m := Mem{Base: p.quads[2*p.half+r/4], Disp: disp}
	switch r % 4 {
	case 1:
		m.Index, m.Scale = p.by1, 1
	case 2:
		m.Index, m.Scale = p.by1, 2
	case 3:
		m.Index, m.Scale = p.by3, 1
	}
	return m
}

func (s *simd) rowNumbers() Mem {
	m, ok := s.consts["rows"]
	if !ok {
		m = GLOBL("rows", RODATA|NOPTR)
		for r := range 16 {
			DATA(4*r, U32(uint32(r)))
		}
		s.consts["rows"] = m
	}
	return m
}

// gather loads the dword at byte `at` of the block in each row.
func (p *packer) gather(at int, v reg.VecPhysical) {
	if !p.s.zmm {
		t := p.s.vec()
		for i, x := range []reg.VecPhysical{v, t} {
			VMOVD(p.at(4*i, at), x.AsX())
			for r := 1; r < 4; r++ {
				VPINSRD(U8(r), p.at(4*i+r, at), x.AsX(), x.AsX())
			}
		}
		VINSERTI128(U8(1), t.AsX(), v, v)
		p.s.used--
		return
	}
	KXNORW(p.k, p.k, p.k)
	VPGATHERDD(Mem{Base: p.src, Index: p.rows, Scale: 1, Disp: at}, p.k, v)
}

// copy moves a dword of each row to the tile as it is.
func (p *packer) copy(from, to int) {
	mark := p.s.used
	v := p.s.vec()
	p.gather(from, v)
	p.store(v, to)
	p.s.used = mark
}

// copies moves n neighbouring dwords, 4 or 8.
func (p *packer) copies(n, from, to int) {
	if p.s.zmm {
		for i := range n {
			p.copy(from+4*i, to+64*i)
		}
		return
	}
	mark := p.s.used
	for i, v := range p.vectors(n, from) {
		p.store(v, to+64*i)
	}
	p.s.used = mark
}

// store writes a dword of each row.
func (p *packer) store(v reg.VecPhysical, to int) {
	if p.s.zmm {
		VMOVDQU32(v, Mem{Base: p.dst, Disp: to})
		return
	}
	VMOVDQU(v, Mem{Base: p.dst, Disp: to + 32*p.half})
}

// words stores the low 16 bits of each row's dword.
func (p *packer) words(v reg.VecPhysical, to int) {
	if p.s.zmm {
		VPMOVDW(v, Mem{Base: p.dst, Disp: to})
		return
	}
	t := p.s.vec()
	VPSHUFB(p.s.bytesOf("words", [16]byte{0, 1, 4, 5, 8, 9, 12, 13, 128, 128, 128, 128, 128, 128, 128, 128}), v, t)
	VPERMQ(U8(0b1000), t, t)
	VMOVDQU(t.AsX(), Mem{Base: p.dst, Disp: to + 16*p.half})
	p.s.used--
}

// pairs stores the low and the high 16 bits of each row's dword; v is destroyed.
func (p *packer) pairs(v reg.VecPhysical, to int) {
	p.words(v, to)
	VPSRLD(U8(16), v, v)
	p.words(v, to+32)
}

// lowBytes stores the low 8 bits of each row's dword.
func (p *packer) lowBytes(v reg.VecPhysical, to int) {
	if p.s.zmm {
		VPMOVDB(v, Mem{Base: p.dst, Disp: to})
		return
	}
	t := p.s.vecs(2)
	VPSHUFB(p.s.bytesOf("lowbytes", [16]byte{0, 4, 8, 12, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128, 128}), v, t[0])
	VEXTRACTI128(U8(1), t[0], t[1].AsX())
	VPUNPCKLDQ(t[1].AsX(), t[0].AsX(), t[0].AsX())
	VMOVQ(t[0].AsX(), Mem{Base: p.dst, Disp: to + 8*p.half})
	p.s.used -= 2
}

// legacy packs Q4_0 to Q5_1: float16 scale (and minimum where nibbles start 4 bytes in, or the fifth bits do).
func (p *packer) legacy(scaleAt, nibblesAt, fifthAt int) {
	v := p.s.vec()
	p.gather(0, v)
	if nibblesAt%4 == 0 {
		p.pairs(v, scaleAt)
	} else {
		p.words(v, scaleAt)
	}
	p.copies(4, nibblesAt, 0)
	if fifthAt > 0 {
		p.fifth(fifthAt)
	}
}

// fifth moves bit 4g+j of the dword at byte `at` to bit g of byte j (fifthBits in packed.go).
func (p *packer) fifth(at int) {
	s := p.s
	q, x, y, out := s.vec(), s.vec(), s.vec(), s.vec()
	p.gather(at, q)
	fold := func(shift int, mask uint32) {
		VPSRLD(U8(shift), x, y)
		s.or(y, x, x)
		p.maskDwords(mask, x)
	}
	s.zero(out)
	for j := range 4 {
		VPSRLD(U8(j), q, x)
		p.maskDwords(0x11111111, x)
		fold(3, 0x03030303)
		fold(6, 0x000F000F)
		fold(12, 0x000000FF)
		VPSLLD(U8(8*j), x, x)
		s.or(x, out, out)
	}
	p.store(out, 256)
}

func (p *packer) maskDwords(mask uint32, v reg.VecPhysical) {
	if p.s.zmm {
		VPANDD_BCST(p.s.dwordOf(mask), v, v)
		return
	}
	VPAND(p.s.dwordOf(mask), v, v)
}

// nibbles packs a sub-block from the low (or high) nibbles of 8 vectors.
func (p *packer) nibbles(q []reg.VecPhysical, high bool, to int) {
	a, b := p.s.vec(), p.s.vec()
	for i := range 4 {
		if high {
			VPSRLD(U8(4), q[i], a)
			p.s.and(p.masks[0x0F], a, a)
			p.s.and(p.masks[0xF0], q[i+4], b)
		} else {
			p.s.and(p.masks[0x0F], q[i], a)
			VPSLLD(U8(4), q[i+4], b)
			p.s.and(p.masks[0xF0], b, b)
		}
		p.s.or(b, a, a)
		p.store(a, to+64*i)
	}
	p.s.used -= 2
}

// bits packs bits [at, at+width) of the bytes of q into a plane: vector i at bit width*i.
func (p *packer) bits(q []reg.VecPhysical, at, width, to int) {
	a, out := p.s.vec(), p.s.vec()
	p.s.zero(out)
	for i, v := range q {
		VPSRLD(U8(at), v, a)
		p.s.and(p.masks[1<<width-1], a, a)
		VPSLLD(U8(width*i), a, a)
		p.s.or(a, out, out)
	}
	p.store(out, to)
	p.s.used -= 2
}

// header stores the two float16 of the dword at byte 0 as super-scales and super-minima.
func (p *packer) header() {
	v := p.s.vec()
	p.gather(0, v)
	p.pairs(v, 0)
	p.s.used--
}

// scaleMin6 stores the 6-bit scale and minimum of sub-block sub; w are the 12 bytes of scales.
func (p *packer) scaleMin6(w []reg.VecPhysical, sub, to int) {
	a, b := p.s.vec(), p.s.vec()
	for i := range 2 { // scale, minimum
		if sub < 4 {
			VPSRLD(U8(8*sub), w[i], a)
			p.s.and(p.masks[63], a, a)
		} else {
			t := sub - 4
			VPSRLD(U8(8*t+4*i), w[2], a)
			p.s.and(p.masks[15], a, a)
			VPSRLD(U8(8*t+6), w[i], b)
			p.s.and(p.masks[3], b, b)
			VPSLLD(U8(4), b, b)
			p.s.or(b, a, a)
		}
		p.lowBytes(a, to+16*i)
	}
	p.s.used -= 2
}

// vectors loads n neighbouring dwords of each row; AVX2 needs n%4 == 0.
func (p *packer) vectors(n, at int) []reg.VecPhysical {
	if !p.s.zmm {
		var v []reg.VecPhysical
		for i := 0; i < n; i += 4 {
			v = append(v, p.turned(at+4*i)...)
		}
		return v
	}
	v := p.s.vecs(n)
	for i, r := range v {
		p.gather(at+4*i, r)
	}
	return v
}

// turned loads 16 bytes of each of 8 rows, vector r with row r low and row r+4 high, and turns them: vector i is dword i.
func (p *packer) turned(at int) []reg.VecPhysical {
	v := p.s.vecs(5)
	a, b, c, t, d := v[0], v[1], v[2], v[3], v[4]
	for r, x := range []reg.VecPhysical{a, b, c, d} {
		VMOVDQU(p.at(r, at), x.AsX())
		VINSERTI128(U8(1), p.at(r+4, at), x, x)
	}
	VPUNPCKLDQ(b, a, t) // in each half: a0 b0 a1 b1
	VPUNPCKHDQ(b, a, b) // a2 b2 a3 b3
	VPUNPCKLDQ(d, c, a) // c0 d0 c1 d1
	VPUNPCKHDQ(d, c, d) // c2 d2 c3 d3
	VPUNPCKLQDQ(a, t, c)
	VPUNPCKHQDQ(a, t, t)
	VPUNPCKLQDQ(d, b, a)
	VPUNPCKHQDQ(d, b, b)
	p.s.used--
	return []reg.VecPhysical{c, t, a, b}
}

// scaleWords stores a K block's super-scales and super-minima and is its 12 bytes of scales.
func (p *packer) scaleWords() []reg.VecPhysical {
	if p.s.zmm {
		p.header()
		return p.vectors(3, 4)
	}
	w := p.vectors(4, 0)
	p.pairs(w[0], 0)
	return w[1:]
}

func (p *packer) q4k() {
	w := p.scaleWords()
	for c := range 4 {
		mark := p.s.used
		q := p.vectors(8, 16+32*c)
		for h := range 2 {
			record := 64 + 288*(2*c+h)
			p.nibbles(q, h == 1, record)
			p.scaleMin6(w, 2*c+h, record+256)
		}
		p.s.used = mark
	}
}

func (p *packer) q5k() {
	w := p.scaleWords()
	var fifth []reg.VecPhysical
	if p.s.zmm {
		fifth = p.vectors(8, 16)
	} else { // too few registers to keep them: all planes first
		mark := p.s.used
		q := p.vectors(8, 16)
		for i := range 8 {
			p.bits(q, i, 1, 64+352*i+256)
		}
		p.s.used = mark
	}
	for c := range 4 {
		mark := p.s.used
		q := p.vectors(8, 48+32*c)
		for h := range 2 {
			record := 64 + 352*(2*c+h)
			p.nibbles(q, h == 1, record)
			if p.s.zmm {
				p.bits(fifth, 2*c+h, 1, record+256)
			}
			p.scaleMin6(w, 2*c+h, record+320)
		}
		p.s.used = mark
	}
}

func (p *packer) q6k() {
	v := p.s.vec()
	p.gather(206, v) // the scale is the block's last two bytes
	VPSRLD(U8(16), v, v)
	p.words(v, 0)
	if !p.s.zmm {
		p.s.used--
		p.q6kNarrow()
		return
	}
	for n := range 2 {
		mark := p.s.used
		high := p.vectors(8, 128+32*n)
		low := p.vectors(16, 64*n)
		for t := range 4 {
			record := 32 + 416*(4*n+t)
			p.nibbles(low[t%2*8:][:8], t >= 2, record)
			p.bits(high[:4], 2*t, 2, record+256)
			p.bits(high[4:], 2*t, 2, record+320)
		}
		for t := 0; t < 4; t += 2 {
			p.gather(192+8*n+2*t, v)
			p.scales6(v, 4*n+t)
		}
		p.s.used = mark
	}
}

// scales6 stores four bytes of scales, two of each of two records; v is destroyed.
func (p *packer) scales6(v reg.VecPhysical, sub int) {
	for i := range 4 {
		p.lowBytes(v, 32+416*(sub+i/2)+384+16*(i%2))
		VPSRLD(U8(8), v, v)
	}
}

// q6kNarrow is q6k's records, part after part, in 16 registers.
func (p *packer) q6kNarrow() {
	mark := p.s.used
	for i, v := range p.vectors(4, 192) {
		p.scales6(v, 2*i)
	}
	p.s.used = mark
	for n := range 2 {
		high := p.vectors(8, 128+32*n)
		for t := range 4 {
			record := 32 + 416*(4*n+t)
			p.bits(high[:4], 2*t, 2, record+256)
			p.bits(high[4:], 2*t, 2, record+320)
		}
		p.s.used = mark
		for t := range 2 {
			low := p.vectors(8, 64*n+32*t)
			p.nibbles(low, false, 32+416*(4*n+t))
			p.nibbles(low, true, 32+416*(4*n+t+2))
			p.s.used = mark
		}
	}
}
