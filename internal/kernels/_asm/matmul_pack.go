package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The packing of whole tiles, as internal/kernels/packed.go defines it, with gathers: dword j of a block of 16 rows is
// one vector, which is what a tile holds. About 16 loads a gather, and one gather for 64 packed bytes: several times
// the speed of the plain packer, which serves the other types, tiles with fewer rows and the other CPU paths.

// packer has the state of one packing function.
type packer struct {
	s        *simd
	src, dst reg.Register
	rows     reg.VecPhysical // byte offset of each row
	k        reg.Register
	masks    map[byte]reg.VecPhysical
}

func init() {
	register("matmul_pack", "avx512", func() {
		s := newSIMD("avx512")
		s.packer("Q4_0", 18, 288, func(p *packer) { p.legacy(256, 2, 0) })
		s.packer("Q4_1", 20, 320, func(p *packer) { p.legacy(256, 4, 0) })
		s.packer("Q5_0", 22, 352, func(p *packer) { p.legacy(320, 6, 2) })
		s.packer("Q5_1", 24, 384, func(p *packer) { p.legacy(320, 8, 4) })
		s.packer("Q8_0", 34, 544, func(p *packer) {
			v := p.s.vec()
			p.gather(0, v)
			VPMOVDW(v, Mem{Base: p.dst, Disp: 512})
			for g := range 8 {
				p.copy(2+4*g, 64*g)
			}
		}, 0)
		s.packer("Q4_K", 144, 64+8*288, (*packer).q4k, 0x0F, 0xF0, 63, 15, 3)
		s.packer("Q5_K", 176, 64+8*352, (*packer).q5k, 0x0F, 0xF0, 63, 15, 3, 1)
		s.packer("Q6_K", 210, 32+8*416, (*packer).q6k, 0x0F, 0xF0, 3)
		s.packer("Halves", 4, 64, func(p *packer) {
			v := p.s.vec()
			p.gather(0, v)
			VPMOVDW(v, Mem{Base: p.dst})
			VPSRLD(U8(16), v, v)
			VPMOVDW(v, Mem{Base: p.dst, Disp: 32})
		})
		s.packer("Words", 4, 64, func(p *packer) { p.copy(0, 0) })
	})
}

// packer emits Pack<name>: blocks of blockBytes in 16 rows become spans of spanBytes. Byte masks are kept in registers.
func (s *simd) packer(name string, blockBytes, spanBytes int, body func(*packer), masks ...byte) {
	s.function("Pack"+name, "func(dst, src *byte, rowBytes uintptr, blocks int)",
		"Pack"+name+" packs 16 whole rows, rowBytes apart, of so many "+name+" blocks into a tile.")
	p := &packer{s: s, k: K(), masks: map[byte]reg.VecPhysical{}, rows: s.vec()}
	p.dst = Load(Param("dst"), GP64())
	p.src = Load(Param("src"), GP64())
	stride := Load(Param("rowBytes"), GP64())
	left := Load(Param("blocks"), GP64())
	order := s.rowNumbers()
	VPBROADCASTD(stride.(reg.GPVirtual).As32(), p.rows)
	VPMULLD(order, p.rows, p.rows)
	for _, m := range masks {
		p.masks[m] = s.vec()
		s.load(s.byteOf(m), p.masks[m])
	}
	mark := s.used
	Label("block")
	s.used = mark
	body(p)
	ADDQ(U32(blockBytes), p.src)
	ADDQ(U32(spanBytes), p.dst)
	DECQ(left)
	JNZ(LabelRef("block"))
	VZEROUPPER()
	RET()
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

func (p *packer) store(v reg.VecPhysical, to int) { VMOVDQU32(v, Mem{Base: p.dst, Disp: to}) }

// legacy packs Q4_0 to Q5_1: float16 scale (and minimum where nibbles start 4 bytes in, or the fifth bits do).
func (p *packer) legacy(scaleAt, nibblesAt, fifthAt int) {
	v := p.s.vec()
	p.gather(0, v)
	VPMOVDW(v, Mem{Base: p.dst, Disp: scaleAt})
	if nibblesAt%4 == 0 {
		VPSRLD(U8(16), v, v)
		VPMOVDW(v, Mem{Base: p.dst, Disp: scaleAt + 32})
	}
	for i := range 4 {
		p.copy(nibblesAt+4*i, 64*i)
	}
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
		VPORD(y, x, x)
		VPANDD_BCST(s.dwordOf(mask), x, x)
	}
	s.zero(out)
	for j := range 4 {
		VPSRLD(U8(j), q, x)
		VPANDD_BCST(s.dwordOf(0x11111111), x, x)
		fold(3, 0x03030303)
		fold(6, 0x000F000F)
		fold(12, 0x000000FF)
		VPSLLD(U8(8*j), x, x)
		VPORD(x, out, out)
	}
	p.store(out, 256)
}

// nibbles packs a sub-block from the low (or high) nibbles of 8 vectors.
func (p *packer) nibbles(q []reg.VecPhysical, high bool, to int) {
	a, b := p.s.vec(), p.s.vec()
	for i := range 4 {
		if high {
			VPSRLD(U8(4), q[i], a)
			VPANDD(p.masks[0x0F], a, a)
			VPANDD(p.masks[0xF0], q[i+4], b)
		} else {
			VPANDD(p.masks[0x0F], q[i], a)
			VPSLLD(U8(4), q[i+4], b)
			VPANDD(p.masks[0xF0], b, b)
		}
		VPORD(b, a, a)
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
		VPANDD(p.masks[1<<width-1], a, a)
		VPSLLD(U8(width*i), a, a)
		VPORD(a, out, out)
	}
	p.store(out, to)
	p.s.used -= 2
}

// header stores the two float16 of the dword at byte 0 as super-scales and super-minima.
func (p *packer) header() {
	v := p.s.vec()
	p.gather(0, v)
	VPMOVDW(v, Mem{Base: p.dst})
	VPSRLD(U8(16), v, v)
	VPMOVDW(v, Mem{Base: p.dst, Disp: 32})
	p.s.used--
}

// scaleMin6 stores the 6-bit scale and minimum of sub-block sub; w are the 12 bytes of scales.
func (p *packer) scaleMin6(w []reg.VecPhysical, sub, to int) {
	a, b := p.s.vec(), p.s.vec()
	for i := range 2 { // scale, minimum
		if sub < 4 {
			VPSRLD(U8(8*sub), w[i], a)
			VPANDD(p.masks[63], a, a)
		} else {
			t := sub - 4
			VPSRLD(U8(8*t+4*i), w[2], a)
			VPANDD(p.masks[15], a, a)
			VPSRLD(U8(8*t+6), w[i], b)
			VPANDD(p.masks[3], b, b)
			VPSLLD(U8(4), b, b)
			VPORD(b, a, a)
		}
		VPMOVDB(a, Mem{Base: p.dst, Disp: to + 16*i})
	}
	p.s.used -= 2
}

func (p *packer) vectors(n, at int) []reg.VecPhysical {
	v := p.s.vecs(n)
	for i, r := range v {
		p.gather(at+4*i, r)
	}
	return v
}

func (p *packer) q4k() {
	p.header()
	w := p.vectors(3, 4)
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
	p.header()
	w := p.vectors(3, 4)
	fifth := p.vectors(8, 16)
	for c := range 4 {
		mark := p.s.used
		q := p.vectors(8, 48+32*c)
		for h := range 2 {
			record := 64 + 352*(2*c+h)
			p.nibbles(q, h == 1, record)
			p.bits(fifth, 2*c+h, 1, record+256)
			p.scaleMin6(w, 2*c+h, record+320)
		}
		p.s.used = mark
	}
}

func (p *packer) q6k() {
	v := p.s.vec()
	p.gather(206, v) // the scale is the block's last two bytes
	VPSRLD(U8(16), v, v)
	VPMOVDW(v, Mem{Base: p.dst})
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
		for t := 0; t < 4; t += 2 { // four bytes of scales: two of each record
			p.gather(192+8*n+2*t, v)
			for i := range 4 {
				VPMOVDB(v, Mem{Base: p.dst, Disp: 32 + 416*(4*n+t+i/2) + 384 + 16*(i%2)})
				VPSRLD(U8(8), v, v)
			}
		}
		p.s.used = mark
	}
}
