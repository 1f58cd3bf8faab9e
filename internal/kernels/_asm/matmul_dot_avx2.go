package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// room is how many VPMADDUBSW results, each at most 127*2*(2^bits-1), fit 16 bits before they are widened.
var room = map[int]int{2: 8, 3: 8, 4: 8, 5: 4, 6: 2}

// recordAVX2 takes the groups of 4 columns one after the other: one vector of weights is unpacked and multiplied with
// all activation rows, so that 4 rows fit the 16 registers for every type. A group costs a row VPMADDUBSW and VPADDW,
// and VPMADDWD and VPADDD each `room` groups: 8*2+2 operations for 256 multiply-adds at 4 bits. Signed bytes cost
// VPSIGNB, VPMADDUBSW, VPMADDWD and VPADDD a group.
func (d *dotter) recordAVX2() func() {
	if d.s.zmm {
		return nil
	}
	s := d.s
	wide := s.vecs(d.T)
	short := wide
	groups := 8
	if d.f.scale == "super16" {
		groups = 4
	}
	signed := d.f.signedOn(s)
	if !signed && room[d.f.bits] < groups {
		short = s.vecs(d.T)
	}
	w, tmp, x := s.vec(), s.vec(), s.vec()
	var table reg.VecPhysical
	if d.f.table != nil {
		table = s.vec()
		var b [16]byte
		for i, v := range d.f.table {
			b[i] = byte(v)
		}
		s.load(s.bytesOf("table"+d.f.name, b), table)
	}
	return func() {
		for h := range 8 / groups {
			for i := range groups {
				d.group(h*groups+i, w, tmp, table)
				if signed {
					d.multiplySigned(h*groups+i, i == 0, w, tmp, x, wide)
				} else {
					d.multiply(h*groups+i, i, groups, w, x, short, wide)
				}
			}
			s.emitScale(d.c, h, w, tmp, x)
			d.finish(h, groups, w, tmp, x, wide)
		}
	}
}

// group unpacks group g into w; tmp is scratch.
func (d *dotter) group(g int, w, tmp, table reg.VecPhysical) {
	s, at := d.s, func(disp int) Mem { return Mem{Base: d.c.planes, Disp: disp} }
	extra := func(plane, from, to int, mask byte) {
		s.load(at(plane), tmp)
		switch {
		case from > to:
			VPSRLW(U8(from-to), tmp, tmp)
		case from < to:
			VPSLLW(U8(to-from), tmp, tmp)
		}
		s.orMasked(s.byteOf(mask), tmp, w)
	}
	shifted := func(plane, shift int, mask byte) {
		s.load(at(plane), w)
		if shift > 0 {
			VPSRLW(U8(shift), w, w)
		}
		VPAND(s.byteOf(mask), w, w)
	}
	switch d.f.bits {
	case 8:
		s.load(at(64*g), w)
	case 2, 3:
		shifted(64*(g/4), 2*(g%4), 0x03)
	default:
		shifted(64*(g%4), g/4*4, 0x0F)
	}
	switch d.f.bits {
	case 3:
		extra(128, g, 2, 0x04)
	case 5:
		extra(256, g, 4, 0x10)
	case 6:
		extra(256+64*(g/4), 2*(g%4), 4, 0x30)
	}
	if d.f.table != nil {
		VPSHUFB(w, table, w)
	}
}

// multiply adds group g, the i-th of so many, to every row's sums: pairs in short, widened into wide when full.
func (d *dotter) multiply(g, i, groups int, w, x reg.VecPhysical, short, wide []reg.VecPhysical) {
	n := room[d.f.bits]
	for t := range d.T {
		VPBROADCASTD(d.q(t, g), x)
		if i%n == 0 {
			VPMADDUBSW(x, w, short[t])
			continue
		}
		VPMADDUBSW(x, w, x)
		VPADDW(x, short[t], short[t])
	}
	if i%n < n-1 && i < groups-1 {
		return
	}
	for t := range d.T {
		if i < n {
			VPMADDWD(d.s.wordOnes(), short[t], wide[t])
			continue
		}
		VPMADDWD(d.s.wordOnes(), short[t], short[t])
		VPADDD(short[t], wide[t], wide[t])
	}
}

// multiplySigned adds a group of signed bytes: |w| times the activation with w's sign.
func (d *dotter) multiplySigned(g int, first bool, w, abs, x reg.VecPhysical, wide []reg.VecPhysical) {
	VPABSB(w, abs)
	for t := range d.T {
		VPBROADCASTD(d.q(t, g), x)
		VPSIGNB(w, x, x)
		VPMADDUBSW(x, abs, x)
		if first {
			VPMADDWD(d.s.wordOnes(), x, wide[t])
			continue
		}
		VPMADDWD(d.s.wordOnes(), x, x)
		VPADDD(x, wide[t], wide[t])
	}
}

// finish scales the integer sums of a record, or of its half h, and adds them to the results; scale and minimum are
// loaded.
func (d *dotter) finish(h, groups int, scale, minimum, x reg.VecPhysical, wide []reg.VecPhysical) {
	half := 0
	if groups == 4 {
		half = 1 + h
	}
	for t, sum := range wide {
		if d.f.bias >= 0 && !d.f.signedOn(d.s) {
			d.s.broadcastInt(d.neg(t, half), d.f.bias, x)
			VPADDD(x, sum, sum)
		}
		VCVTDQ2PS(sum, sum)
		VBROADCASTSS(d.dx(t), x)
		VMULPS(x, sum, sum)
		VFMADD231PS(scale, sum, d.acc[t])
		if !d.f.min {
			continue
		}
		if groups == 8 {
			VBROADCASTSS(d.sum(t), sum)
		} else {
			VPBROADCASTD(d.neg(t, half), sum)
			VCVTDQ2PS(sum, sum)
			VMULPS(x, sum, sum)
		}
		VFMADD231PS(sum, minimum, d.acc[t])
	}
}

func (s *simd) wordOnes() Mem { return s.dwordOf(0x00010001) }
