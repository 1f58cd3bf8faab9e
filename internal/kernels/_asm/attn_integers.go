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
//	2 dimensions × 16 tokens, or 2 tokens × 16 dimensions, cost 4 instructions and 4 a head, beside loads
func init() {
	f := flavours[1]()
	register("attn_integers", f.isa, func() {
		f.largestScales()
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

// filled is a register with a 32-bit number in every lane.
func (f *flavour) filled(value uint32) reg.VecPhysical {
	r, tmp := f.vec(), GP32()
	MOVL(U32(value), tmp)
	f.broadcast32(tmp, r)
	return r
}

const (
	magnitude   = 0x7fffffff // what a float32 is without its sign
	nibbleWords = 0x000f000f
)

func (f *flavour) largestScales() {
	f.begin("LargestScales", "func(dst *float32, keys [][]byte, dim int)",
		"LargestScales writes to dst [dim] the largest magnitude of each dimension's scale over quantised tiles of keys, at least one; dim is a multiple of 16.")
	dst, list, n := Load(Param("dst"), GP64()), GP64(), GP64()
	left, from, tile := GP64(), GP64(), GP64()
	Load(Param("dim"), left)
	XORQ(from, from)
	sign, most, s := f.filled(magnitude), f.vec(), f.vec()
	Label("dims")
	Load(Param("keys").Base(), list)
	Load(Param("keys").Len(), n)
	f.zero(most)
	Label("tile")
	MOVQ(at(list, 0), tile)
	VCVTPH2PS(Mem{Base: tile, Index: from, Scale: 1}, s)
	VANDPS(sign, s, s)
	VPMAXUD(s, most, most) // magnitudes are ordered as integers, NaN last
	ADDQ(U8(24), list)
	DECQ(n)
	JNZ(LabelRef("tile"))
	VMOVUPS(most, at(dst, 0))
	ADDQ(U8(32), dst)
	ADDQ(U8(16), from)
	SUBQ(U8(8), left)
	JNZ(LabelRef("dims"))
	f.end()
}

// valueScales collects the float16 scales of 16 tokens a tile, and int4's minima behind them.
func (f *flavour) valueScales(bytes int) {
	name, doc := "ValueScales", "ValueScales writes the float16 numbers at byte from of each token's value, tokens size bytes apart, to scales [16·tiles]."
	if bytes == 4 {
		name, doc = "ValueScalesMinima", "ValueScalesMinima is ValueScales; the numbers behind those go to minima [16·tiles]."
	}
	f.begin(name, "func(scales, minima *float32, values [][]byte, size, from int)", doc)
	dst := []reg.Register{Load(Param("scales"), GP64()), Load(Param("minima"), GP64())}[:bytes/2]
	list, n := Load(Param("values").Base(), GP64()), Load(Param("values").Len(), GP64())
	size, from, tile := Load(Param("size"), GP64()), Load(Param("from"), GP64()), GP64()
	x := f.vecs(2)
	Label("tile")
	MOVQ(at(list, 0), tile)
	ADDQ(from, tile)
	for half := range 2 {
		for j := range 8 {
			for i := range dst {
				VPINSRW(U8(j), at(tile, 2*i), x[i].AsX(), x[i].AsX())
			}
			ADDQ(size, tile)
		}
		for i, d := range dst {
			VCVTPH2PS(x[i].AsX(), x[i])
			VMOVUPS(x[i], at(d, 32*half))
		}
	}
	for _, d := range dst {
		ADDQ(U8(64), d)
	}
	ADDQ(U8(24), list)
	DECQ(n)
	JNZ(LabelRef("tile"))
	f.end()
}

func (f *flavour) largestWeight() {
	f.begin("LargestWeight", "func(p, scales, minima *float32, tokens int) (most, sum float32)",
		"LargestWeight returns the largest magnitude of p·scale and, where minima is not nil, the sum of p·minimum; tokens is a multiple of 16.")
	p, scales, minima, n := Load(Param("p"), GP64()), Load(Param("scales"), GP64()), Load(Param("minima"), GP64()), Load(Param("tokens"), GP64())
	sign, most, sum, x := f.filled(magnitude), f.vec(), f.vec(), f.vec()
	f.zero(most)
	f.zero(sum)
	Label("tile")
	VMOVUPS(at(p, 0), x)
	TESTQ(minima, minima)
	JZ(LabelRef("product"))
	VFMADD231PS(at(minima, 0), x, sum)
	ADDQ(U8(32), minima)
	Label("product")
	VMULPS(at(scales, 0), x, x)
	VANDPS(sign, x, x)
	VPMAXUD(x, most, most) // magnitudes are ordered as integers, NaN last
	ADDQ(U8(32), p)
	ADDQ(U8(32), scales)
	SUBQ(U8(8), n)
	JNZ(LabelRef("tile"))
	f.lanesSum(sum, x)
	f.fold(most, x, func() { VPMAXUD(x, most, most) })
	Store(most.AsX(), Return("most"))
	Store(sum.AsX(), Return("sum"))
	f.end()
}

func (f *flavour) roundWeights() {
	f.begin("RoundWeights", "func(dst *int16, p, scales *float32, factor float32, tokens int)",
		"RoundWeights writes p·scale·factor to the nearest integer; tokens is a multiple of 16.")
	dst, p, scales, n := Load(Param("dst"), GP64()), Load(Param("p"), GP64()), Load(Param("scales"), GP64()), Load(Param("tokens"), GP64())
	factor, x := f.vec(), f.vecs(2)
	addr, err := Param("factor").Resolve()
	if err != nil {
		panic(err)
	}
	VBROADCASTSS(addr.Addr, factor)
	Label("tile")
	for i, r := range x {
		VMOVUPS(at(p, 32*i), r)
		VMULPS(at(scales, 32*i), r, r)
		VMULPS(factor, r, r)
	}
	f.storeRounded(x, at(dst, 0))
	ADDQ(U8(32), dst)
	ADDQ(U8(64), p)
	ADDQ(U8(64), scales)
	SUBQ(U8(16), n)
	JNZ(LabelRef("tile"))
	f.end()
}

// storeRounded writes 16 numbers as 16-bit integers.
func (f *flavour) storeRounded(x []reg.VecPhysical, to Mem) {
	VCVTPS2DQ(x[0], x[0])
	VCVTPS2DQ(x[1], x[1])
	VPACKSSDW(x[1], x[0], x[0]) // by 128-bit lanes
	VPERMQ(U8(0xd8), x[0], x[0])
	VMOVDQU(x[0], to)
}

// integerScorer holds the registers of scoreIntegers.
type integerScorer struct {
	f                                     *flavour
	e                                     element
	heads                                 int
	w                                     walker
	s, stride, stride3, qs, qs3, qd, left reg.Register
	acc                                   [][]reg.VecPhysical
	pair                                  []reg.VecPhysical
	x, y, nibbles, order                  reg.VecPhysical
	minima                                Mem // [4] float32 on the stack
}

// scoreIntegers: the tile's scales are multiplied into the queries, which are rounded (scratch); then the bytes of 2 dimensions are
// interleaved and widened, and cost a product a head and 8 tokens.
func (f *flavour) scoreIntegers(e element, heads int) {
	f.begin(fmt.Sprintf("ScoreIntegers%sx%d", e.name, heads), "func(s, q []float32, scratch *int16, unit *float32, keys [][]byte, masks []uint16, dim, ahead int)",
		fmt.Sprintf("ScoreIntegers%sx%d writes unit·(q·k) to s [%d][16·tiles] for quantised tiles of 16 tokens, at least one; q [%d][dim] times any scale stays "+
			"below 2^15, scratch has room for as many int16. masks give the number of tiles alone. dim is a multiple of 16.", e.name, heads, heads, heads))
	c := integerScorer{f: f, e: e, heads: heads, s: Load(Param("s").Base(), GP64()), stride: GP64(), stride3: GP64(), qs: GP64(), qs3: GP64(), qd: GP64(), left: GP64(), minima: AllocLocal(16)}
	stride := GP64()
	c.w = newWalker("keys", stride)
	MOVQ(stride, c.stride)
	SHLQ(U8(6), c.stride)
	LEAQ(Mem{Base: c.stride, Index: c.stride, Scale: 2}, c.stride3)
	Load(Param("dim"), c.qs)
	SHLQ(U8(1), c.qs) // bytes of a row of the scratch
	LEAQ(Mem{Base: c.qs, Index: c.qs, Scale: 2}, c.qs3)
	for range heads {
		c.acc = append(c.acc, f.vecs(2))
	}
	c.pair, c.x, c.y = f.vecs(2), f.vec(), f.vec()
	if e.name == "I4" {
		c.nibbles, c.order = f.filled(nibbleWords), f.vec()
		VMOVDQU(interleave(), c.order.AsX())
	}
	Label("tile")
	c.w.step()
	c.queries()
	for _, a := range c.acc {
		f.zero(a[0])
		f.zero(a[1])
	}
	c.multiply()
	c.store()
	ADDQ(U8(64), c.s)
	DECQ(c.w.left)
	JNZ(LabelRef("tile"))
	f.end()
}

var interleaved *Mem

// interleave takes the 8 bytes of one dimension and the 8 of the next by turns.
func interleave() Mem {
	if interleaved == nil {
		m := GLOBL("interleave", RODATA|NOPTR)
		for i := range 16 {
			DATA(i, U8(i/2+8*(i%2)))
		}
		interleaved = &m
	}
	return *interleaved
}

// row is a place in row h of the scratch.
func (c *integerScorer) row(base reg.Register, h, disp int) Mem {
	if h == 3 {
		return Mem{Base: base, Index: c.qs3, Scale: 1, Disp: disp}
	}
	return row(base, c.qs, h, disp)
}

// queries writes round(q·scale) to the scratch, q·minimum to the stack (int4), and moves the data pointer to the codes.
func (c *integerScorer) queries() {
	f := c.f
	q, minima, from := GP64(), GP64(), GP64()
	Load(Param("q").Base(), q)
	Load(Param("dim"), c.left)
	Load(Param("scratch"), c.qd)
	LEAQ(Mem{Base: c.w.data, Index: c.left, Scale: 2}, minima) // behind the scales: int4's minima, or the codes
	int4 := c.e.name == "I4"
	if int4 {
		for _, a := range c.acc {
			f.zero(a[0])
		}
	}
	Label("scale")
	PREFETCHT1(Mem{Base: c.w.data, Index: c.w.ahead, Scale: 1})
	VCVTPH2PS(at(c.w.data, 0), c.pair[0])
	VCVTPH2PS(at(c.w.data, 16), c.pair[1])
	MOVQ(q, from)
	for h := range c.heads {
		if h > 0 { // rows of q are twice as long as the scratch's
			LEAQ(Mem{Base: from, Index: c.qs, Scale: 2}, from)
		}
		if int4 {
			for i := range 2 {
				VCVTPH2PS(at(minima, 16*i), c.x)
				VFMADD231PS(at(from, 32*i), c.x, c.acc[h][0])
			}
		}
		VMULPS(at(from, 0), c.pair[0], c.x)
		VMULPS(at(from, 32), c.pair[1], c.y)
		f.storeRounded([]reg.VecPhysical{c.x, c.y}, c.row(c.qd, h, 0))
	}
	if int4 {
		ADDQ(U8(32), minima)
	}
	ADDQ(U8(32), c.w.data)
	ADDQ(U8(64), q)
	ADDQ(U8(32), c.qd)
	SUBQ(U8(16), c.left)
	JNZ(LabelRef("scale"))
	if int4 {
		for h, a := range c.acc {
			f.lanesSum(a[0], c.x)
			VMOVSS(a[0].AsX(), c.minima.Offset(4*h))
		}
	}
	MOVQ(minima, c.w.data) // now at the codes for both types
}

// multiply sums the products of all dimensions, 8 a turn. Sums of a head: tokens 0-7 and 8-15.
func (c *integerScorer) multiply() {
	Load(Param("dim"), c.left)
	Load(Param("scratch"), c.qd)
	Label("dims")
	bytes := 8 * 2 * c.e.bits
	for line := 0; line < bytes; line += 64 {
		PREFETCHT1(Mem{Base: c.w.data, Index: c.w.ahead, Scale: 1, Disp: line})
	}
	for two := range 4 {
		data := at(c.w.data, 2*two*2*c.e.bits)
		if c.e.name == "I8" {
			VMOVDQU(data, c.x.AsX())
			VPUNPCKLBW(data.Offset(16), c.x.AsX(), c.pair[0].AsX())
			VPUNPCKHBW(data.Offset(16), c.x.AsX(), c.pair[1].AsX())
			VPMOVSXBW(c.pair[0].AsX(), c.pair[0])
			VPMOVSXBW(c.pair[1].AsX(), c.pair[1])
		} else {
			VMOVDQU(data, c.x.AsX())
			VPSHUFB(c.order.AsX(), c.x.AsX(), c.x.AsX())
			VPMOVZXBW(c.x.AsX(), c.x)
			VPAND(c.nibbles, c.x, c.pair[0])
			VPSRLW(U8(4), c.x, c.pair[1])
		}
		for h, a := range c.acc {
			VPBROADCASTD(c.row(c.qd, h, 4*two), c.x)
			VPMADDWD(c.x, c.pair[0], c.y)
			VPADDD(c.y, a[0], a[0])
			VPMADDWD(c.x, c.pair[1], c.y)
			VPADDD(c.y, a[1], a[1])
		}
	}
	ADDQ(U32(bytes), c.w.data)
	ADDQ(U8(16), c.qd)
	SUBQ(U8(8), c.left)
	JNZ(LabelRef("dims"))
}

// store writes the tile's scores of every head.
func (c *integerScorer) store() {
	unit := GP64()
	Load(Param("unit"), unit)
	for h, a := range c.acc {
		dst := row(c.s, c.stride, h, 0)
		if h == 3 {
			dst = Mem{Base: c.s, Index: c.stride3, Scale: 1}
		}
		VBROADCASTSS(at(unit, 4*h), c.y)
		for i, r := range a {
			VCVTDQ2PS(r, r)
			if c.e.name == "I4" {
				VBROADCASTSS(c.minima.Offset(4*h), c.x)
				VADDPS(c.x, r, r)
			}
			VMULPS(c.y, r, r)
			VMOVUPS(r, dst.Offset(32*i))
		}
	}
}

// weighIntegers: bytes of 2 tokens are interleaved and widened, and cost a product a head and 8 dimensions. Sums stay in integers
// over all tiles.
func (f *flavour) weighIntegers(e element, heads int) {
	f.begin(fmt.Sprintf("WeighIntegers%sx%d", e.name, heads), "func(out *float32, outBytes int, p *int16, unit, offset *float32, values [][]byte, masks []uint16, size, from, ahead int)",
		fmt.Sprintf("WeighIntegers%sx%d adds unit·(p·codes) + offset to %s dimensions of %d rows of out, outBytes apart. p is [%d][16·tiles], below 2^15; tiles, "+
			"1 to 60, have 16 tokens, size bytes apart, whose codes begin at byte from. masks give the number of tiles alone.", e.name, heads, dimsOf(e), heads, heads))
	stride, stride3, v0, pt, t, p := GP64(), GP64(), GP64(), GP64(), GP64(), GP64()
	Load(Param("p"), p)
	count := GP64()
	w := newWalker("values", count)
	MOVQ(count, stride)
	size, from := Load(Param("size"), GP64()), GP64()
	SHLQ(U8(5), stride)
	LEAQ(Mem{Base: stride, Index: stride, Scale: 2}, stride3)
	var acc [][]reg.VecPhysical
	for range heads {
		acc = append(acc, f.vecs(2))
		for _, a := range acc[len(acc)-1] {
			f.zero(a)
		}
	}
	pair, x, y := f.vecs(2), f.vec(), f.vec()
	nibbles := reg.VecPhysical(nil)
	if e.name == "I4" {
		nibbles = f.filled(nibbleWords)
	}
	Label("tile")
	w.step()
	Load(Param("from"), from)
	LEAQ(Mem{Base: w.data, Index: from, Scale: 1}, v0)
	MOVQ(p, pt)
	MOVQ(U32(8), t)
	Label("pair")
	next := Mem{Base: v0, Index: size, Scale: 1}
	PREFETCHT1(Mem{Base: v0, Index: w.ahead, Scale: 1})
	if e.name == "I8" {
		VMOVDQU(at(v0, 0), x.AsX())
		VPUNPCKLBW(next, x.AsX(), pair[0].AsX())
		VPUNPCKHBW(next, x.AsX(), pair[1].AsX())
		VPMOVSXBW(pair[0].AsX(), pair[0])
		VPMOVSXBW(pair[1].AsX(), pair[1])
	} else {
		VMOVQ(at(v0, 0), x.AsX())
		VMOVQ(next, y.AsX())
		VPUNPCKLBW(y.AsX(), x.AsX(), x.AsX())
		VPMOVZXBW(x.AsX(), x)
		VPAND(nibbles, x, pair[0])
		VPSRLW(U8(4), x, pair[1])
	}
	for h, a := range acc {
		m := row(pt, stride, h, 0)
		if h == 3 {
			m = Mem{Base: pt, Index: stride3, Scale: 1}
		}
		VPBROADCASTD(m, x)
		VPMADDWD(x, pair[0], y)
		VPADDD(y, a[0], a[0])
		VPMADDWD(x, pair[1], y)
		VPADDD(y, a[1], a[1])
	}
	LEAQ(Mem{Base: v0, Index: size, Scale: 2}, v0)
	ADDQ(U8(4), pt)
	DECQ(t)
	JNZ(LabelRef("pair"))
	ADDQ(U8(32), p)
	DECQ(w.left)
	JNZ(LabelRef("tile"))
	out, unit, offset, outBytes := Load(Param("out"), GP64()), Load(Param("unit"), GP64()), Load(Param("offset"), GP64()), Load(Param("outBytes"), GP64())
	second := 32 // bytes to the dimensions of the second sum
	if e.name == "I4" {
		second = 64
	}
	for h, a := range acc {
		VBROADCASTSS(at(unit, 4*h), x)
		VBROADCASTSS(at(offset, 4*h), y)
		for i, r := range a {
			VCVTDQ2PS(r, r)
			VFMADD213PS(y, x, r)
			VADDPS(at(out, second*i), r, r)
			VMOVUPS(r, at(out, second*i))
		}
		ADDQ(outBytes, out)
	}
	f.end()
}

// dimsOf says which dimensions one call of weighIntegers takes.
func dimsOf(e element) string {
	if e.name == "I8" {
		return "16"
	}
	return "8 and, 16 further on, 8 more"
}
