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
// VPSIGNB, VPMADDUBSW, VPMADDWD and VPADDD a group. With both halves of a tile's rows in turn each line of memory is
// used whole, once; lines are asked for ahead.
func (s *simd) recordAVX2(ds []*dotter) func() {
	f, T := ds[0].f, ds[0].T
	groups := 8
	if f.parts() == 2 {
		groups = 4
	}
	signed := f.signedOn(s)
	for _, d := range ds {
		d.wide = s.vecs(T)
		d.short = d.wide
		if !signed && room[f.bits] < groups {
			d.short = s.vecs(T)
		}
	}
	w, tmp, x := [2]reg.VecPhysical{s.vec()}, s.vec(), s.vec()
	table := s.tableAVX2(f)
	nibbles := f.bits == 4 && groups == 8
	steps := groups
	if nibbles {
		w[1], steps = s.vec(), 4
	}
	if T == 1 || nibbles { // there is room
		for _, d := range ds {
			s.holdSupers(d.c)
		}
	}
	multiply := func(d *dotter, g, i int, w reg.VecPhysical) {
		if signed {
			d.multiplySigned(g, i == 0, w, tmp, x)
		} else {
			d.multiply(g, i, groups, w, x)
		}
	}
	return func() {
		if len(ds) == 2 {
			ds[0].prefetch()
		}
		for h := range 8 / groups {
			for i := range steps {
				for _, d := range ds {
					if nibbles { // a plane is loaded once for its two groups
						d.groupPair(i, w, tmp, table)
						multiply(d, i, 2*i, w[0])
						multiply(d, i+4, 2*i+1, w[1])
						continue
					}
					d.group(h*groups+i, w[0], tmp, table)
					multiply(d, h*groups+i, i, w[0])
				}
			}
			for _, d := range ds {
				s.emitScale(d.c, h, w[0], tmp, x)
				d.finish(h, groups, w[0], tmp, x)
			}
		}
	}
}

// prefetch asks for the lines of a record some way ahead.
func (d *dotter) prefetch() {
	for at := 0; at < d.f.recordBytes(); at += 64 {
		PREFETCHT0(Mem{Base: d.c.at, Disp: at + prefetchAhead})
	}
}

// tableAVX2 is a register with the type's table; nil without one.
func (s *simd) tableAVX2(f format) reg.VecPhysical {
	if f.table == nil {
		return nil
	}
	var b [16]byte
	for i, v := range f.table {
		b[i] = byte(v)
	}
	table := s.vec()
	s.load(s.bytesOf("table"+f.name, b), table)
	return table
}

// recordOne is recordAVX2 for one activation row and types with a scale a record: both halves of the tile's rows share the
// activations' broadcasts, a plane of nibbles is loaded once for its two groups, and super-scales stay in registers. 105
// operations for 288 bytes of Q4_K.
func (s *simd) recordOne(ds []*dotter) func() {
	f := ds[0].f
	for _, d := range ds {
		d.wide = s.vecs(1)
		if d.short = d.wide; !f.signedOn(s) && room[f.bits] < 8 {
			d.short = s.vecs(1)
		}
		s.holdSupers(d.c)
	}
	var w [2]reg.VecPhysical
	var x [2]reg.VecPhysical
	for i := range 2 {
		w[i], x[i] = s.vec(), s.vec()
	}
	tmp, table := s.vec(), s.tableAVX2(f)
	return func() {
		ds[0].prefetch()
		for i := range 4 {
			groups := [2]int{i, i + 4}
			if f.bits == 8 {
				groups = [2]int{2 * i, 2*i + 1}
			}
			for k, g := range groups {
				VPBROADCASTD(ds[0].q(0, g), x[k])
			}
			for _, d := range ds {
				d.groupPair(i, w, tmp, table)
				for k := range groups {
					d.multiplyOne(2*i+k, w[k], tmp, x[k])
				}
			}
		}
		s.finishOne(ds, w, x, tmp)
	}
}

// groupPair unpacks the groups of plane i of nibbles, i and i+4, as of the planes of pairs, or groups 2i and 2i+1 of whole bytes.
func (d *dotter) groupPair(i int, w [2]reg.VecPhysical, tmp, table reg.VecPhysical) {
	s := d.s
	if d.f.bits == 8 {
		for k, r := range w {
			s.load(d.c.planes(64*(2*i+k)), r)
		}
		return
	}
	if d.f.bits < 4 {
		for k, r := range w {
			d.group(i+4*k, r, tmp, table)
		}
		return
	}
	s.load(d.c.planes(64*i), w[1])
	VPAND(s.byteOf(0x0F), w[1], w[0])
	VPSRLW(U8(4), w[1], w[1])
	VPAND(s.byteOf(0x0F), w[1], w[1])
	for k, r := range w {
		if g := i + 4*k; d.f.bits == 5 { // bit g of every byte to bit 4
			s.load(d.c.planes(256), tmp)
			if g > 4 {
				VPSRLW(U8(g-4), tmp, tmp)
			} else if g < 4 {
				VPSLLW(U8(4-g), tmp, tmp)
			}
			s.orMasked(s.byteOf(0x10), tmp, r)
		}
		if table != nil {
			VPSHUFB(r, table, r)
		}
	}
}

// multiplyOne adds the i-th group, weights w (which it may change) times activations x, to the sums.
func (d *dotter) multiplyOne(i int, w, abs, x reg.VecPhysical) {
	s, short, wide := d.s, d.short[0], d.wide[0]
	if d.f.signedOn(s) {
		VPABSB(w, abs)
		VPSIGNB(w, x, w)
		VPMADDUBSW(w, abs, w)
		if i == 0 {
			VPMADDWD(s.wordOnes(), w, wide)
			return
		}
		VPMADDWD(s.wordOnes(), w, w)
		VPADDD(w, wide, wide)
		return
	}
	n := room[d.f.bits]
	if i%n == 0 {
		VPMADDUBSW(x, w, short)
	} else {
		VPMADDUBSW(x, w, w)
		VPADDW(w, short, short)
	}
	switch {
	case i%n < n-1:
	case i < n:
		VPMADDWD(s.wordOnes(), short, wide)
	default:
		VPMADDWD(s.wordOnes(), short, short)
		VPADDD(short, wide, wide)
	}
}

// finishOne is finish for one row of activations and both halves.
func (s *simd) finishOne(ds []*dotter, w, x [2]reg.VecPhysical, tmp reg.VecPhysical) {
	f := ds[0].f
	if f.bias >= 0 && !f.signedOn(s) {
		s.broadcastInt(ds[0].neg(0, 0), f.bias, x[0])
		for _, d := range ds {
			VPADDD(x[0], d.wide[0], d.wide[0])
		}
	}
	VBROADCASTSS(ds[0].dx(0), x[0])
	if f.min {
		VBROADCASTSS(ds[0].sum(0), x[1])
	}
	for _, d := range ds {
		s.emitScale(d.c, 0, w[0], w[1], tmp)
		VCVTDQ2PS(d.wide[0], d.wide[0])
		VMULPS(x[0], d.wide[0], d.wide[0])
		VFMADD231PS(w[0], d.wide[0], d.acc[0])
		if f.min {
			VFMADD231PS(x[1], w[1], d.acc[0])
		}
	}
}

// group unpacks group g into w; tmp is scratch.
func (d *dotter) group(g int, w, tmp, table reg.VecPhysical) {
	s, at := d.s, d.c.planes
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
func (d *dotter) multiply(g, i, groups int, w, x reg.VecPhysical) {
	n, short, wide := room[d.f.bits], d.short, d.wide
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
func (d *dotter) multiplySigned(g int, first bool, w, abs, x reg.VecPhysical) {
	wide := d.wide
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
func (d *dotter) finish(h, groups int, scale, minimum, x reg.VecPhysical) {
	half := 0
	if groups == 4 {
		half = 1 + h
	}
	for t, sum := range d.wide {
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
