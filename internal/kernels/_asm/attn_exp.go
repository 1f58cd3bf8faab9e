package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// exponential emits e^x or 2^x on a register. Both give exactly 1 for 0, 0 for -Inf, NaN for NaN.
//
// The exact one is e^x within 2 ulp: x = n·ln2 + r with ln2 in two parts, |r| <= ln2/2, a polynomial of degree 6 whose
// error is 3e-9. The fast one is 2^x for x <= 0: the fraction's polynomial of degree 4 has a relative error of 2.8e-6,
// far below the 2^-9 that its result is rounded to afterwards.
type exponential struct {
	f            *flavour
	exact        bool
	hidden       bool // many arguments are -Inf: their results are 0 without an underflow, which takes some CPUs 150 cycles
	log2e        Op
	low, high    reg.VecPhysical
	ln2          []Op
	coefficients []Op // highest first; the lowest, 1, is the last
}

// notLessOrEqual is the predicate of VCMPPS that holds for NaN too.
const notLessOrEqual = 6

// ln2 with 12 trailing zero bits, so that n·ln2High is exact, and the rest.
const (
	ln2High = 0.693359375
	ln2Low  = -2.12194440e-4
	log2OfE = 1.44269504088896341
	expLow  = -105 // arguments of the exact one are moved to between these
	expHigh = 89
)

// expCoefficients are the exact one's, highest first.
var expCoefficients = []float32{0.001381460187117703, 0.008368715219300773, 0.0416683878878481, 0.16666520645341695, 0.4999999344870054, 1, 1}

func (f *flavour) newExponential(exact bool) *exponential {
	x := &exponential{f: f, exact: exact}
	if !exact {
		x.low = f.constant(-150)
		for _, c := range []float32{0.009582852865626742, 0.05590642492462231, 0.24024098616755005, 0.6931241933586805, 1} {
			x.coefficients = append(x.coefficients, f.operand(c))
		}
		return x
	}
	x.low, x.high = f.constant(expLow), f.constant(expHigh)
	x.log2e = f.operand(log2OfE)
	x.ln2 = []Op{f.operand(ln2High), f.operand(ln2Low)}
	for _, c := range expCoefficients {
		x.coefficients = append(x.coefficients, f.operand(c))
	}
	return x
}

// temps is how many registers apply clobbers.
func (x *exponential) temps() int {
	switch {
	case x.f.wide():
		return 2
	case x.hidden:
		return 4
	}
	return 3
}

// apply replaces v by its exponential.
func (x *exponential) apply(v reg.VecPhysical, t []reg.VecPhysical) {
	f, n, p := x.f, t[0], t[1]
	if x.hidden && f.wide() {
		VCMPPS(U8(notLessOrEqual), x.low, v, reg.K3)
	} else if x.hidden {
		VCMPPS(U8(notLessOrEqual), x.low, v, t[3])
	}
	VMAXPS(v, x.low, v) // of two where one is NaN, the second source (the first written here) comes out: NaN stays
	if x.exact {
		VMINPS(v, x.high, v)
		VMULPS(x.log2e, v, n)
		f.round(n, n)
		VFNMADD231PS(x.ln2[0], n, v)
		VFNMADD231PS(x.ln2[1], n, v)
	} else {
		f.round(v, n)
		VSUBPS(n, v, v)
	}
	if f.wide() {
		VMOVAPS(x.coefficients[0].(reg.Register), p)
	} else {
		VMOVUPS(x.coefficients[0], p)
	}
	for _, c := range x.coefficients[1:] {
		VFMADD213PS(c, v, p)
	}
	switch {
	case f.wide() && x.hidden:
		VSCALEFPS_Z(n, p, reg.K3, v)
	case f.wide():
		f.scale(n, p, v, nil, nil)
	default:
		if x.hidden {
			VANDPS(t[3], p, p)
		}
		f.scale(n, p, v, n, t[2])
	}
}

// exponentials writes e^v to p as apply does on AVX2, for several registers by turns; n is clobbered, v too. Below expLow it is 0
// without an underflow.
func exponentials(v, n, p []reg.VecPhysical) {
	each := func(do func(v, n, p reg.VecPhysical)) {
		for i := range v {
			do(v[i], n[i], p[i])
		}
	}
	each(func(v, n, p reg.VecPhysical) { VMOVUPS(vectorConst(expLow), n); VMAXPS(v, n, v) })
	each(func(v, n, p reg.VecPhysical) { VMOVUPS(vectorConst(expHigh), n); VMINPS(v, n, v) })
	each(func(v, n, p reg.VecPhysical) { VMULPS(vectorConst(log2OfE), v, n) })
	each(func(v, n, p reg.VecPhysical) { VROUNDPS(U8(8), n, n) })
	each(func(v, n, p reg.VecPhysical) { VFNMADD231PS(vectorConst(ln2High), n, v) })
	each(func(v, n, p reg.VecPhysical) { VFNMADD231PS(vectorConst(ln2Low), n, v) })
	each(func(v, n, p reg.VecPhysical) { VMOVUPS(vectorConst(expCoefficients[0]), p) })
	for _, c := range expCoefficients[1:] {
		each(func(v, n, p reg.VecPhysical) { VFMADD213PS(vectorConst(c), v, p) })
	}
	each(func(v, n, p reg.VecPhysical) { VCMPPS(U8(notLessOrEqual), vectorConst(-151), n, v) }) // expLow·log2(e) is rounded to -151
	each(func(v, n, p reg.VecPhysical) { VANDPS(v, p, p) })
	each(func(v, n, p reg.VecPhysical) { VCVTPS2DQ(n, n) })
	each(func(v, n, p reg.VecPhysical) { VPSRAD(U8(1), n, v) })
	each(func(v, n, p reg.VecPhysical) { VPSUBD(v, n, n) })
	each(func(v, n, p reg.VecPhysical) { VPSLLD(U8(23), n, n) })
	each(func(v, n, p reg.VecPhysical) { VPADDD(vectorConst(1), n, n) })
	each(func(v, n, p reg.VecPhysical) { VPSLLD(U8(23), v, v) })
	each(func(v, n, p reg.VecPhysical) { VPADDD(vectorConst(1), v, v) })
	each(func(v, n, p reg.VecPhysical) { VMULPS(n, p, p) })
	each(func(v, n, p reg.VecPhysical) { VMULPS(v, p, p) })
}

// lanesMax leaves the largest lane of v in all lanes.
func (f *flavour) lanesMax(v, tmp reg.VecPhysical) {
	f.fold(v, tmp, func() { VMAXPS(tmp, v, v) })
}

// lanesSum leaves the sum of all lanes of v in all lanes.
func (f *flavour) lanesSum(v, tmp reg.VecPhysical) {
	f.fold(v, tmp, func() { VADDPS(tmp, v, v) })
}

func (f *flavour) fold(v, tmp reg.VecPhysical, join func()) {
	if f.wide() {
		VSHUFF64X2(U8(0x4e), v, v, tmp)
		join()
		VSHUFF64X2(U8(0xb1), v, v, tmp)
	} else {
		VPERM2F128(U8(1), v, v, tmp)
	}
	join()
	VPERMILPS(U8(0x4e), v, tmp)
	join()
	VPERMILPS(U8(0xb1), v, tmp)
	join()
}
