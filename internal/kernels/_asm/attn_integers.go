package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Decode attention over KIVI's int8 and int4 pages in integers: queries times a tile's scales, and weights times a token's
// scale, are rounded to 16 bits, which is finer than the codes by eight; products of pairs are summed by VPMADDWD.
//
//	2 dimensions × 16 tokens, or 2 tokens × 16 dimensions, cost 3 (int4) or 4 instructions and 5 a head
func init() {
	f := flavours[1]()
	register("attn_integers", f.isa, func() {
		for _, e := range quantisedElements {
			for heads := 1; heads <= 4; heads++ {
				f.queryFactors(e, heads)
			}
		}
		f.valueScales(2)
		f.valueScales(4)
		f.largestWeight()
		f.roundWeights()
		for _, e := range quantisedElements {
			for heads := 1; heads <= 4; heads++ {
				f.scoreIntegers(e, heads)
			}
			for heads := 1; heads <= 4; heads++ {
				f.weighIntegers(e, heads)
			}
		}
	})
}

// lister steps through a list of tiles and, where it fetches, through one of tiles that are wanted later.
type lister struct {
	data, fetch            reg.GPVirtual
	list, left, next, more Mem // on the stack: where the lists stand, and how many are left
}

// newLister takes the parameter of a list and leaves its length, which masks has too, in a register; what it fetches is next.
func newLister(param string, count reg.Register, fetches bool) *lister {
	l := &lister{data: GP64(), list: AllocLocal(8), left: AllocLocal(8)}
	tmp := Load(Param(param).Base(), GP64())
	MOVQ(tmp, l.list)
	Load(Param("masks").Len(), count)
	MOVQ(count, l.left)
	if fetches {
		l.fetches()
	}
	return l
}

func (l *lister) fetches() {
	l.fetch, l.next, l.more = GP64(), AllocLocal(8), AllocLocal(8)
	tmp := Load(Param("next").Base(), GP64())
	MOVQ(tmp, l.next)
	Load(Param("next").Len(), tmp)
	MOVQ(tmp, l.more)
}

// step loads the address of the current tile.
func (l *lister) step() {
	list := GP64()
	MOVQ(l.list, list)
	MOVQ(at(list, 0), l.data)
	if l.fetch != nil {
		l.stepNext(list)
	}
	ADDQ(U8(24), list)
	MOVQ(list, l.list)
}

// stepNext loads the address of the tile to fetch, once there is none more the current one, which list points to.
func (l *lister) stepNext(list reg.Register) {
	next := GP64()
	MOVQ(l.next, next)
	ADDQ(U8(24), l.next)
	CMPQ(l.more, U8(0))
	CMOVQLE(list, next)
	MOVQ(at(next, 0), l.fetch)
	DECQ(l.more)
}

// filled is a register with a 32-bit number in every lane.
func (f *flavour) filled(value uint32) reg.VecPhysical {
	r, tmp := f.vec(), GP32()
	MOVL(U32(value), tmp)
	f.broadcast32(tmp, r)
	return r
}

const (
	magnitude   = 0x7fffffff // what a float32 is without its sign
	integerMost = 1<<15 - 1  // as in package kernels
)

// queryFactors emits what scoreIntegers takes of each tile: it is a pass of its own so that the maxima of several tiles, each a
// chain of few instructions, are worked out side by side.
func (f *flavour) queryFactors(e element, heads int) {
	int4 := e.name == "I4"
	offset := ""
	if int4 {
		offset = ", and the sum of q·minimum in offset's place"
	}
	f.begin(fmt.Sprintf("QueryFactors%sx%d", e.name, heads), "func(factors *float32, q []float32, keys [][]byte, masks []uint16, dim int)",
		fmt.Sprintf("QueryFactors%sx%d writes for each tile, at least one, [3][4] numbers a tile: of head h what q·scale is multiplied by to stay within %d, what "+
			"sums of its products are multiplied by afterwards, NaN where a q·scale is not finite%s. q is [%d][dim], dim a multiple of 16.", e.name, heads, integerMost, offset, heads))
	dst, count := Load(Param("factors"), GP64()), GP64()
	w := newLister("keys", count, false)
	q, stride, stride3 := Load(Param("q").Base(), GP64()), GP64(), GP64()
	Load(Param("dim"), stride)
	SHLQ(U8(2), stride)
	LEAQ(Mem{Base: stride, Index: stride, Scale: 2}, stride3)
	most, sums, scale, x := f.vecs(heads), f.vecs(heads), f.vecs(2), f.vecs(2)
	if !int4 {
		sums = nil
	}
	sign := f.filled(magnitude)
	head := func(h, disp int, base reg.Register) Mem {
		if h == 3 {
			return Mem{Base: base, Index: stride3, Scale: 1, Disp: disp}
		}
		return row(base, stride, h, disp)
	}
	left, from, minima := GP64(), GP64(), GP64()
	Label("tile")
	w.step()
	for _, r := range append(most, sums...) {
		f.zero(r)
	}
	MOVQ(q, from)
	Load(Param("dim"), left)
	if int4 {
		LEAQ(Mem{Base: w.data, Index: left, Scale: 2}, minima)
	}
	Label("dims")
	for i := range 64 / f.bytes() {
		VCVTPH2PS(at(w.data, i*f.bytes()/2), scale[i])
	}
	for h := range heads {
		for i := range 64 / f.bytes() {
			VMULPS(head(h, i*f.bytes(), from), scale[i], x[i])
			VANDPS(sign, x[i], x[i])
			VPMAXUD(x[i], most[h], most[h]) // magnitudes are ordered as integers, NaN last
		}
	}
	if int4 { // in 8 lanes on every path: sums depend on their number
		VCVTPH2PS(at(minima, 0), scale[0].AsY())
		VCVTPH2PS(at(minima, 16), scale[1].AsY())
		for h := range heads {
			for i := range 2 {
				VFMADD231PS(head(h, 32*i, from), scale[i].AsY(), sums[h].AsY())
			}
		}
		ADDQ(U8(32), minima)
	}
	ADDQ(U8(32), w.data)
	ADDQ(U8(64), from)
	SUBQ(U8(16), left)
	JNZ(LabelRef("dims"))
	if f.wide() {
		for _, r := range most {
			VEXTRACTI64X4(U8(1), r, x[0].AsY())
			VPMAXUD(x[0].AsY(), r.AsY(), r.AsY())
		}
	}
	m := f.foldHeads(most, x, func(a, b, to reg.Register) { VPMAXUD(a, b, to) })
	// Zeros and denormals are as good as least: the sums are multiplied by it again.
	VBROADCASTSS(floatConst(1e-30), x[0].AsX())
	VMAXPS(m, x[0].AsX(), m) // NaN stays
	VBROADCASTSS(floatConst(integerMost), x[0].AsX())
	VDIVPS(m, x[0].AsX(), x[1].AsX())
	VMOVUPS(x[1].AsX(), at(dst, 0))
	VBROADCASTSS(floatConst(1.0/integerMost), x[0].AsX())
	VSUBPS(m, m, x[1].AsX()) // 0, or NaN
	VFMADD231PS(x[0].AsX(), m, x[1].AsX())
	VMOVUPS(x[1].AsX(), at(dst, 16))
	if int4 {
		VMOVUPS(f.foldHeads(sums, x, func(a, b, to reg.Register) { VADDPS(a, b, to) }), at(dst, 32))
	}
	ADDQ(U8(48), dst)
	DECQ(w.left)
	JNZ(LabelRef("tile"))
	f.end()
}

// foldHeads folds the lanes of one register a head to one number a head, in one register whose numbers behind are undefined.
func (f *flavour) foldHeads(r, tmp []reg.VecPhysical, op func(a, b, to reg.Register)) reg.VecPhysical {
	for _, x := range r {
		VEXTRACTI128(U8(1), x.AsY(), tmp[0].AsX())
		op(tmp[0].AsX(), x.AsX(), x.AsX())
	}
	pair := func(a, b reg.VecPhysical) {
		VPUNPCKHDQ(b.AsX(), a.AsX(), tmp[0].AsX())
		VPUNPCKLDQ(b.AsX(), a.AsX(), a.AsX())
		op(tmp[0].AsX(), a.AsX(), a.AsX())
	}
	first, second := r[0], r[0]
	pair(first, r[min(1, len(r)-1)])
	if len(r) > 2 {
		second = r[2]
		pair(second, r[len(r)-1])
	}
	VPUNPCKHQDQ(second.AsX(), first.AsX(), tmp[0].AsX())
	VPUNPCKLQDQ(second.AsX(), first.AsX(), first.AsX())
	op(tmp[0].AsX(), first.AsX(), first.AsX())
	return first.AsX().(reg.VecPhysical)
}

// storeRounded writes 16 numbers as 16-bit integers.
func (f *flavour) storeRounded(x []reg.VecPhysical, to Mem) {
	VCVTPS2DQ(x[0], x[0])
	if f.wide() {
		VPMOVSDW(x[0], to)
		return
	}
	VCVTPS2DQ(x[1], x[1])
	VPACKSSDW(x[1], x[0], x[0]) // by 128-bit lanes
	VPERMQ(U8(0xd8), x[0], x[0])
	VMOVDQU(x[0], to)
}

// integerScorer holds the registers of scoreIntegers.
type integerScorer struct {
	f                                       *flavour
	e                                       element
	heads                                   int
	w                                       *lister
	q, stride, stride3, codes, factor, left reg.Register
	acc                                     [][]reg.VecPhysical
	x, y, order                             reg.VecPhysical
	pair                                    []reg.VecPhysical
	factors, rounded                        Mem // on the stack: [heads][8] float32, [heads][16] int16
}

// scoreIntegers: 16 dimensions of the queries are multiplied by the tile's scales and rounded; then the codes of 2 dimensions are
// interleaved as 16-bit numbers, which costs a product and a sum a head and 8 tokens. A byte of int4 holds two tokens: the sum of the
// bytes less 16 times that of the high halves is that of the low ones.
func (f *flavour) scoreIntegers(e element, heads int) {
	f.begin(fmt.Sprintf("ScoreIntegers%sx%d", e.name, heads), "func(s, q []float32, factors *float32, keys [][]byte, masks []uint16, dim int, next [][]byte)",
		fmt.Sprintf("ScoreIntegers%sx%d writes q·k to s [%d][16·tiles] for quantised tiles of 16 tokens, at least one; q is [%d][dim], factors are those of "+
			"QueryFactors%sx%d. masks give the number of tiles alone. dim is a multiple of 16. While it computes a tile, the bytes of one of next are fetched.", e.name, heads, heads, heads, e.name, heads))
	c := integerScorer{f: f, e: e, heads: heads, q: GP64(), stride: GP64(), stride3: GP64(), codes: GP64(), factor: GP64(), left: GP64(),
		factors: AllocLocal(32 * heads), rounded: AllocLocal(32 * heads)}
	count := GP64()
	c.w = newLister("keys", count, true)
	s, stride, place := AllocLocal(8), AllocLocal(8), GP64()
	SHLQ(U8(6), count)
	MOVQ(count, stride)
	Load(Param("s").Base(), place)
	MOVQ(place, s)
	Load(Param("factors"), c.factor)
	for range heads {
		c.acc = append(c.acc, f.vecs(2))
	}
	c.pair, c.x, c.y = f.vecs(2), f.vec(), f.vec()
	if e.name == "I4" {
		c.order = f.vec()
		VMOVDQU(interleave(), c.order)
	}
	Label("tile")
	c.w.step()
	for h, a := range c.acc {
		f.zero(a[0])
		f.zero(a[1])
		VBROADCASTSS(at(c.factor, 4*h), c.x)
		VMOVUPS(c.x, c.factors.Offset(32*h))
	}
	c.multiply()
	MOVQ(s, place)
	MOVQ(stride, c.left)
	c.store(place)
	MOVQ(s, place)
	ADDQ(U8(64), place)
	MOVQ(place, s)
	ADDQ(U8(48), c.factor)
	DECQ(c.w.left)
	JNZ(LabelRef("tile"))
	f.end()
}

var interleaved *Mem

// interleave takes the 8 bytes of one dimension and the 8 of the next, both in each half of a register, by turns as 16-bit numbers.
func interleave() Mem {
	if interleaved == nil {
		m := GLOBL("interleave", RODATA|NOPTR)
		for i := range 16 {
			DATA(2*i, U8(i/2+8*(i%2)))
			DATA(2*i+1, U8(0x80)) // zero
		}
		interleaved = &m
	}
	return *interleaved
}

// row is a place in row h of the queries.
func (c *integerScorer) row(h, disp int) Mem {
	if h == 3 {
		return Mem{Base: c.q, Index: c.stride3, Scale: 1, Disp: disp}
	}
	return row(c.q, c.stride, h, disp)
}

// multiply sums the products of all dimensions, 16 a turn. Sums of a head: int8, tokens 0-3 and 8-11, then the others; int4, the
// bytes and the high halves.
func (c *integerScorer) multiply() {
	x := []reg.VecPhysical{c.x, c.y}
	Load(Param("q").Base(), c.q)
	Load(Param("dim"), c.left)
	LEAQ(Mem{Base: c.w.data, Index: c.left, Scale: 2}, c.codes)
	if c.e.name == "I4" { // minima
		LEAQ(Mem{Base: c.codes, Index: c.left, Scale: 2}, c.codes)
	}
	MOVQ(c.left, c.stride)
	SHLQ(U8(2), c.stride)
	LEAQ(Mem{Base: c.stride, Index: c.stride, Scale: 2}, c.stride3)
	Label("dims")
	bytes := 16 * 2 * c.e.bits
	for line := 0; line < bytes; line += 64 {
		PREFETCHT1(at(c.w.fetch, line))
	}
	ADDQ(U32(bytes), c.w.fetch)
	VCVTPH2PS(at(c.w.data, 0), c.pair[0])
	VCVTPH2PS(at(c.w.data, 16), c.pair[1])
	for h := range c.heads {
		for i, r := range x {
			VMULPS(c.row(h, 32*i), c.pair[i], r)
			VMULPS(c.factors.Offset(32*h), r, r)
			VCVTPS2DQ(r, r)
		}
		VPACKSSDW(x[1], x[0], x[0])
		VMOVDQU(x[0], c.rounded.Offset(32*h))
	}
	for two := range 8 {
		if c.e.name == "I8" {
			VPMOVSXBW(at(c.codes, 32*two), c.x)
			VPMOVSXBW(at(c.codes, 32*two+16), c.y)
			VPUNPCKLWD(c.y, c.x, c.pair[0])
			VPUNPCKHWD(c.y, c.x, c.pair[1])
		} else {
			VBROADCASTI128(at(c.codes, 16*two), c.x)
			VPSHUFB(c.order, c.x, c.pair[0])
			VPSRLW(U8(4), c.pair[0], c.pair[1])
		}
		packed := two&4>>1 | two&2<<1 | two&1 // VPACKSSDW works by halves of a register
		for h, a := range c.acc {
			VPBROADCASTD(c.rounded.Offset(32*h+4*packed), c.x)
			for i := range 2 {
				VPMADDWD(c.x, c.pair[i], c.y)
				VPADDD(c.y, a[i], a[i])
			}
		}
	}
	ADDQ(U8(32), c.w.data)
	ADDQ(U8(64), c.q)
	ADDQ(U32(bytes), c.codes)
	SUBQ(U8(16), c.left)
	JNZ(LabelRef("dims"))
	PREFETCHT1(at(c.w.fetch, c.e.scaleBytes()-1))
}

// scaleBytes is what the scales of 64 dimensions of 16 tokens' values take.
func (e element) scaleBytes() int { return 16 * 16 / e.bits }

// store writes the tile's scores of every head; heads are left bytes apart.
func (c *integerScorer) store(to reg.Register) {
	f := c.f
	for h, a := range c.acc {
		f.halves(c.e, a, c.x)
		VBROADCASTSS(at(c.factor, 16+4*h), c.y)
		for i, r := range a {
			VCVTDQ2PS(r, r)
			if c.e.name == "I4" {
				// The minima's part is no multiple of the unit.
				VBROADCASTSS(at(c.factor, 32+4*h), c.x)
				VFMADD213PS(c.x, c.y, r)
			} else {
				VMULPS(c.y, r, r)
			}
			VMOVUPS(r, at(to, 32*i))
		}
		if h+1 < c.heads {
			ADDQ(c.left, to)
		}
	}
}

// halves orders two sums of VPMADDWD: int8, of interleaved halves of registers; int4, of bytes and their high halves.
func (f *flavour) halves(e element, a []reg.VecPhysical, tmp reg.VecPhysical) {
	if e.name == "I4" {
		VPSLLD(U8(4), a[1], tmp)
		VPSUBD(tmp, a[0], a[0])
		return
	}
	f.unweave(a, tmp)
}

// unweave puts the low halves of two registers into the first one, and their high halves into the second.
func (f *flavour) unweave(a []reg.VecPhysical, tmp reg.VecPhysical) {
	VPERM2I128(U8(0x20), a[1], a[0], tmp)
	VPERM2I128(U8(0x31), a[1], a[0], a[1])
	VMOVDQA(tmp, a[0])
}
