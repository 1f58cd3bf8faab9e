package main

import (
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/reg"
)

// prefetchAhead is how far in front of the cursor lines are asked for: about the bytes in flight at full bandwidth of
// a core (30 GB/s by 100 ns), rounded up to a page: 2 KiB reach 27 GB/s on Zen 4 where 4 KiB reach 29.
const prefetchAhead = 4096

// recordAVX512 unpacks a record into 8 registers and multiplies them with every activation row in turn: T*8 VPDPBUSD
// (512 multiply-adds each 16 rows by 4 columns: T*512 in all), T*3 or T*4 float operations, about 14 to unpack, and
// 32*bits*2+64 bytes read once for the T rows. With T = 16 VPDPBUSD are two thirds of the work; with T = 1 a record
// takes about 25 cycles, a third of what memory needs for its 320 bytes (Q4_1).
func (d *dotter) recordAVX512() func() {
	s := d.s
	w := s.vecs(8)
	t0, t1 := s.vec(), s.vec()
	sc := s.scaleRegs(d.f)
	u := s.unpacker(d.f, t0, t1)
	return func() {
		if d.T <= 8 {
			for at := 0; at < d.f.recordBytes(); at += 64 {
				PREFETCHT0(d.c.planes(at + prefetchAhead))
			}
		}
		u.emit(d.c.planes(0), w)
		s.emitScales(d.c, sc, t0)
		switch {
		case d.f.parts() == 2:
			for t := range d.T {
				d.row16(t, w, sc, t0, t1)
			}
		default: // two rows at once are two independent chains of VPDPBUSD
			for t := 0; t < d.T; t += 2 {
				d.rows32(t, w, sc, []reg.VecPhysical{t0, t1}[:min(2, d.T)])
			}
		}
	}
}

// rows32 adds one record for the activation rows from t, one a sum, one scale for its 32 columns.
func (d *dotter) rows32(t int, w []reg.VecPhysical, v scales, sums []reg.VecPhysical) {
	for i, sum := range sums {
		d.start(t+i, 0, sum)
	}
	for g := range w {
		for i, sum := range sums {
			VPDPBUSD_BCST(d.q(t+i, g), w[g], sum)
		}
	}
	for i, sum := range sums {
		VCVTDQ2PS(sum, sum)
		VMULPS_BCST(d.dx(t+i), sum, sum)
		VFMADD231PS(v.d[0], sum, d.acc[t+i])
		if d.f.min {
			VFMADD231PS_BCST(d.sum(t+i), v.m[0], d.acc[t+i])
		}
	}
}

// row16 adds one record whose halves have scales of their own.
func (d *dotter) row16(t int, w []reg.VecPhysical, v scales, t0, t1 reg.VecPhysical) {
	for h, sum := range []reg.VecPhysical{t0, t1} {
		d.start(t, 1+h, sum)
		for g := 4 * h; g < 4*h+4; g++ {
			VPDPBUSD_BCST(d.q(t, g), w[g], sum)
		}
		VCVTDQ2PS(sum, sum)
	}
	VMULPS(v.d[0], t0, t0)
	VFMADD231PS(v.d[1], t1, t0)
	for h, m := range v.m {
		VCVTDQ2PS_BCST(d.neg(t, 1+h), t1)
		VFMADD231PS(m, t1, t0)
	}
	VFMADD231PS_BCST(d.dx(t), t0, d.acc[t])
}

// start sets an integer sum to the bias's share, taken off beforehand.
func (d *dotter) start(t, h int, sum reg.VecPhysical) {
	if d.f.bias >= 0 {
		d.s.broadcastInt(d.neg(t, h), d.f.bias, sum)
	} else {
		d.s.zero(sum)
	}
}
