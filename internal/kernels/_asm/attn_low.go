package main

import (
	"fmt"
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Attention over int3 and int2 pages (formats: kvpage) on AVX2. Codes lie in planes: two bits of 32 codes a register and shift, the third
// bits in one of their own. VPSHUFB makes levels of 0 to 127 of 32 codes of values at once. They lie so that 16-bit words are pairs for VPMADDWD:
// a word is low + 256·high, so the sum of words less 256 times that of the high bytes, which wraps around as it should, is that of the low ones.
//
//	32 codes cost 3 (int2) or 7 instructions, values one more, and 5 a head
func init() {
	f := flavours[1]()
	register("attn_low", f.isa, func() {
		f.roundQuery()
		f.dotHalf()
		for _, e := range lowElements {
			for heads := 1; heads <= 4; heads++ {
				f.scoreLow(e, heads)
			}
			for heads := 1; heads <= 4; heads++ {
				f.weighLow(e, heads)
			}
			f.expandKeysLow(e)
			f.expandValuesLow(e)
		}
	})
}

// lowElement is int3 or int2.
type lowElement struct {
	name   string
	bits   int
	levels []uint8
}

var lowElements = []lowElement{{"I3", 3, []uint8{0, 24, 41, 56, 71, 86, 103, 127}}, {"I2", 2, []uint8{0, 44, 83, 127}}}

// block is the bytes of 16 dimensions of a tile's keys.
func (e lowElement) block() int { return 32 * e.bits }

var lowConsts = map[string]Mem{}

// bytesOf is a register of bytes in read-only data.
func bytesOf(name string, get func(i int) uint8) Mem {
	if m, ok := lowConsts[name]; ok {
		return m
	}
	m := GLOBL(name, RODATA|NOPTR)
	for i := range 32 {
		DATA(i, U8(get(i)))
	}
	lowConsts[name] = m
	return m
}

func repeated(name string, b uint8) Mem { return bytesOf(name, func(int) uint8 { return b }) }

func twoBits() Mem  { return repeated("twoBits", 3) }
func thirdBit() Mem { return repeated("thirdBit", 4) }

// levelBytes are the levels by code in every 16 bytes.
func (e lowElement) levelBytes() Mem {
	return bytesOf("levels"+e.name, func(i int) uint8 { return e.levels[i%len(e.levels)] })
}

// levelFloats are 8 levels less a middle.
func (e lowElement) levelFloats(name string, middle float32) Mem {
	if m, ok := lowConsts[name+e.name]; ok {
		return m
	}
	m := GLOBL(name+e.name, RODATA|NOPTR)
	for i := range 8 {
		DATA(4*i, U32(math.Float32bits(float32(e.levels[i%len(e.levels)])-middle)))
	}
	lowConsts[name+e.name] = m
	return m
}

func (f *flavour) roundQuery() {
	f.begin("RoundQuery", "func(dst *int16, q *float32, scales *byte, factor float32, dim int)",
		"RoundQuery writes q·scale·factor to the nearest integer, scales float16; dim is a multiple of 16.")
	dst, q, scales, n := Load(Param("dst"), GP64()), Load(Param("q"), GP64()), Load(Param("scales"), GP64()), Load(Param("dim"), GP64())
	factor, x := f.vec(), f.vecs(2)
	addr, err := Param("factor").Resolve()
	if err != nil {
		panic(err)
	}
	VBROADCASTSS(addr.Addr, factor)
	Label("dims")
	for i, r := range x {
		VCVTPH2PS(at(scales, 16*i), r)
		VMULPS(at(q, 32*i), r, r)
		VMULPS(factor, r, r)
	}
	f.storeRounded(x, at(dst, 0))
	ADDQ(U8(32), dst)
	ADDQ(U8(32), scales)
	ADDQ(U8(64), q)
	SUBQ(U8(16), n)
	JNZ(LabelRef("dims"))
	f.end()
}

func (f *flavour) dotHalf() {
	f.begin("DotHalf", "func(q *float32, k *byte, dim int) float32", "DotHalf returns the product of q and dim float16 numbers, a multiple of 16.")
	q, k, n := Load(Param("q"), GP64()), Load(Param("k"), GP64()), Load(Param("dim"), GP64())
	sums, x := f.vecs(2), f.vec()
	f.zero(sums[0])
	f.zero(sums[1])
	Label("dims")
	for i, s := range sums {
		VCVTPH2PS(at(k, 16*i), x)
		VFMADD231PS(at(q, 32*i), x, s)
	}
	ADDQ(U8(32), k)
	ADDQ(U8(64), q)
	SUBQ(U8(16), n)
	JNZ(LabelRef("dims"))
	VADDPS(sums[1], sums[0], sums[0])
	f.lanesSum(sums[0], x)
	Store(sums[0].AsX(), ReturnIndex(0))
	f.end()
}

// lowCodes are the registers in which codes become levels.
type lowCodes struct {
	f                     *flavour
	e                     lowElement
	two, one, x, y, table reg.VecPhysical
}

func (f *flavour) newLowCodes(e lowElement) *lowCodes {
	c := &lowCodes{f: f, e: e, two: f.vec(), x: f.vec(), y: f.vec()}
	if e.bits == 3 {
		c.one = f.vec()
	}
	return c
}

// useLevels has codes stand for levels.
func (c *lowCodes) useLevels() {
	c.table = c.f.vec()
	VMOVDQU(c.e.levelBytes(), c.table)
}

// turn puts the codes, or their levels, whose two bits begin at bit 2·i of each byte, and whose third one is bit third, into x.
func (c *lowCodes) turn(i, third int) {
	from := c.two
	if i > 0 {
		VPSRLW(U8(2*i), c.two, c.x)
		from = c.x
	}
	VPAND(twoBits(), from, c.x)
	if c.e.bits == 3 {
		switch {
		case third < 2:
			VPSLLW(U8(2-third), c.one, c.y)
			VPAND(thirdBit(), c.y, c.y)
		case third > 2:
			VPSRLW(U8(third-2), c.one, c.y)
			VPAND(thirdBit(), c.y, c.y)
		default:
			VPAND(thirdBit(), c.one, c.y)
		}
		VPOR(c.y, c.x, c.x)
	}
	if c.table != nil {
		VPSHUFB(c.x, c.table, c.x)
	}
}

// products adds factors, one pair a head, times the words in x and times their high bytes to the sums.
func (c *lowCodes) products(acc [][]reg.VecPhysical, high, b reg.VecPhysical, pair func(h int) Mem) {
	VPSRLW(U8(8), c.x, high)
	for h, a := range acc {
		VPBROADCASTD(pair(h), b)
		VPMADDWD(c.x, b, c.y)
		VPADDD(c.y, a[0], a[0])
		VPMADDWD(high, b, b)
		VPADDD(b, a[1], a[1])
	}
}

// finish makes sums of low bytes, and of high ones, of sums of words and of high bytes.
func (c *lowCodes) finish(a []reg.VecPhysical) {
	VPSLLD(U8(8), a[1], c.x)
	VPSUBD(c.x, a[0], a[0])
}

func (f *flavour) scoreLow(e lowElement, heads int) {
	f.begin(fmt.Sprintf("Score%sx%d", e.name, heads), "func(s *float32, sBytes int, q *int16, factors *float32, keys [][]byte, codes, dim int, next [][]byte)",
		fmt.Sprintf("Score%sx%d writes unit·(q·codes) + offset to s, %d rows sBytes apart, for tiles of 16 tokens, at least one, whose codes are the last codes bytes. q is [%d][dim], "+
			"factors are [2][4]: each head's unit, and its offset. dim is a multiple of 16. While it computes a tile, one of next is fetched.", e.name, heads, heads, heads))
	place, sBytes := Load(Param("s"), GP64()), Load(Param("sBytes"), GP64())
	list, left := Load(Param("keys").Base(), GP64()), Load(Param("keys").Len(), GP64())
	var w lister
	w.fetches()
	data, q, n, stride, stride3, factors := GP64(), GP64(), GP64(), GP64(), GP64(), GP64()
	Load(Param("dim"), stride)
	ADDQ(stride, stride)
	LEAQ(Mem{Base: stride, Index: stride, Scale: 2}, stride3)
	c := f.newLowCodes(e)
	high, b := f.vec(), f.vec()
	var acc [][]reg.VecPhysical
	for range heads {
		acc = append(acc, f.vecs(2))
	}
	Label("tile")
	w.stepNext(list)
	MOVQ(at(list, 0), data)
	ADDQ(at(list, 8), data)
	Load(Param("codes"), n)
	SUBQ(n, data)
	for _, a := range acc {
		f.zero(a[0])
		f.zero(a[1])
	}
	Load(Param("q"), q)
	Load(Param("dim"), n)
	Label("dims")
	PREFETCHT1(at(w.fetch, 0))
	if e.bits == 3 {
		PREFETCHT1(at(w.fetch, 64))
		VMOVDQU(at(data, 64), c.one)
	}
	ADDQ(U8(e.block()), w.fetch)
	for i := range 8 {
		if i%4 == 0 {
			VMOVDQU(at(data, 8*i), c.two)
		}
		c.turn(i%4, i)
		c.products(acc, high, b, func(h int) Mem {
			if h == 3 {
				return Mem{Base: q, Index: stride3, Scale: 1, Disp: 4 * i}
			}
			return row(q, stride, h, 4*i)
		})
	}
	ADDQ(U8(e.block()), data)
	ADDQ(U8(32), q)
	SUBQ(U8(16), n)
	JNZ(LabelRef("dims"))
	PREFETCHT1(at(w.fetch, 0))
	Load(Param("factors"), factors)
	MOVQ(place, n)
	for h, a := range acc {
		c.finish(a)
		VBROADCASTSS(at(factors, 4*h), c.x)
		VBROADCASTSS(at(factors, 16+4*h), c.y)
		for i, r := range a {
			VCVTDQ2PS(r, r)
			VFMADD213PS(c.y, c.x, r)
			VMOVUPS(r, at(n, 32*i))
		}
		if h+1 < heads {
			ADDQ(sBytes, n)
		}
	}
	ADDQ(U8(64), place)
	ADDQ(U8(24), list)
	DECQ(left)
	JNZ(LabelRef("tile"))
	f.end()
}

// laneShifts shift the upper half of a register by 4 bits.
func laneShifts() Mem {
	return bytesOf("laneShifts", func(i int) uint8 {
		if i >= 16 && i%8 == 0 {
			return 4
		}
		return 0
	})
}

// weighLow: words of two tokens are interleaved, then each of four turns over all tiles takes 16 dimensions: 8 of low bytes, 8 of high ones.
func (f *flavour) weighLow(e lowElement, heads int) {
	f.begin(fmt.Sprintf("Weigh%sx%d", e.name, heads), "func(out *float32, outBytes int, p *int16, unit, offset *float32, values [][]byte, size, from int, next [][]byte, part int)",
		fmt.Sprintf("Weigh%sx%d adds unit·(p·levels) + offset to 64 dimensions of %d rows of out, outBytes apart. p is [%d][16·tiles]; tiles, 1 to 32, have 16 tokens, size bytes apart, "+
			"whose codes begin at byte from. While it computes a tile, one of next is fetched from byte part on.", e.name, heads, heads, heads))
	stride, stride3, v0, t, p := GP64(), GP64(), GP64(), GP64(), GP64()
	list, left, size, from := GP64(), GP64(), Load(Param("size"), GP64()), Load(Param("from"), GP64())
	Load(Param("values").Len(), stride)
	SHLQ(U8(5), stride)
	LEAQ(Mem{Base: stride, Index: stride, Scale: 2}, stride3)
	var w lister
	w.fetches()
	c := f.newLowCodes(e)
	c.useLevels()
	high, b := f.vec(), f.vec()
	var acc [][]reg.VecPhysical
	for range heads {
		acc = append(acc, f.vecs(2))
	}
	for turn := range 4 {
		name := func(s string) string { return fmt.Sprintf("%s%d", s, turn) }
		for _, a := range acc {
			f.zero(a[0])
			f.zero(a[1])
		}
		Load(Param("p"), p)
		Load(Param("values").Base(), list)
		Load(Param("values").Len(), left)
		Load(Param("next").Base(), t)
		MOVQ(t, w.next)
		Load(Param("next").Len(), t)
		MOVQ(t, w.more)
		Label(name("tile"))
		MOVQ(at(list, 0), v0)
		w.stepNext(list)
		ADDQ(from, v0)
		Load(Param("part"), t)
		ADDQ(t, w.fetch)
		MOVQ(U32(8), t)
		for line := range e.bits - 1 {
			PREFETCHT1(at(w.fetch, 64*(turn*(e.bits-1)+line)))
		}
		Label(name("pair"))
		VMOVDQU(at(v0, 0), c.x.AsX())
		VMOVDQU(Mem{Base: v0, Index: size, Scale: 1}, c.y.AsX())
		VPUNPCKLWD(c.y.AsX(), c.x.AsX(), c.two.AsX())
		VPUNPCKHWD(c.y.AsX(), c.x.AsX(), c.x.AsX())
		VINSERTI128(U8(1), c.x.AsX(), c.two, c.two)
		if e.bits == 3 {
			VMOVQ(at(v0, 16), c.x.AsX())
			VMOVQ(Mem{Base: v0, Index: size, Scale: 1, Disp: 16}, c.y.AsX())
			VPUNPCKLWD(c.y.AsX(), c.x.AsX(), c.x.AsX())
			VINSERTI128(U8(1), c.x.AsX(), c.x, c.x)
			VPSRLVQ(laneShifts(), c.x, c.one)
		}
		c.turn(turn, turn)
		c.products(acc, high, b, func(h int) Mem {
			if h == 3 {
				return Mem{Base: p, Index: stride3, Scale: 1}
			}
			return row(p, stride, h, 0)
		})
		LEAQ(Mem{Base: v0, Index: size, Scale: 2}, v0)
		ADDQ(U8(4), p)
		DECQ(t)
		JNZ(LabelRef(name("pair")))
		ADDQ(U8(24), list)
		DECQ(left)
		JNZ(LabelRef(name("tile")))
		out, unit, offset, outBytes := t, p, list, left
		Load(Param("out"), out)
		Load(Param("unit"), unit)
		Load(Param("offset"), offset)
		Load(Param("outBytes"), outBytes)
		for h, a := range acc {
			c.finish(a)
			VBROADCASTSS(at(unit, 4*h), c.x)
			VBROADCASTSS(at(offset, 4*h), c.y)
			for i, r := range a {
				to := at(out, 64*turn+32*i)
				VCVTDQ2PS(r, r)
				VFMADD213PS(c.y, c.x, r)
				VADDPS(to, r, r)
				VMOVUPS(r, to)
			}
			if h+1 < heads {
				ADDQ(outBytes, out)
			}
		}
	}
	f.end()
}

// wideLevels puts 8 levels of a table, or codes where that is nil, as float32 into x: of the codes at bit two of each 32 bits of c.two, and one of c.one.
func (c *lowCodes) wideLevels(two, one int, low, third, table reg.VecPhysical) {
	VPSRLD(U8(two), c.two, c.x)
	VPAND(low, c.x, c.x)
	if c.e.bits == 3 {
		if one < 2 {
			VPSLLD(U8(2-one), c.one, c.y)
		} else {
			VPSRLD(U8(one-2), c.one, c.y)
		}
		VPAND(third, c.y, c.y)
		VPOR(c.y, c.x, c.x)
	}
	if table == nil {
		VCVTDQ2PS(c.x, c.x)
		return
	}
	VPERMPS(table, c.x, c.x)
}

// newWideCodes are the registers of wideLevels.
func (f *flavour) newWideCodes(e lowElement) (c *lowCodes, low, third reg.VecPhysical) {
	c = &lowCodes{f: f, e: e, two: f.vec(), x: f.vec(), y: f.vec()}
	low = f.filled(3)
	if e.bits == 3 {
		c.one, third = f.vec(), f.filled(4)
	}
	return c, low, third
}

func (f *flavour) expandKeysLow(e lowElement) {
	f.begin("ExpandKeys"+e.name, "func(dst, scales, codes *byte, dim int)",
		fmt.Sprintf("ExpandKeys%s writes a tile of keys, scales with minima behind them and codes, as float32 [dim][16]; dim is a multiple of 16.", e.name))
	dst, scales, codes, dim, minima := Load(Param("dst"), GP64()), Load(Param("scales"), GP64()), Load(Param("codes"), GP64()), Load(Param("dim"), GP64()), GP64()
	LEAQ(Mem{Base: scales, Index: dim, Scale: 2}, minima)
	c, low, third := f.newWideCodes(e)
	scale, minimum := f.vec(), f.vec()
	Label("dims")
	if e.bits == 3 {
		VMOVDQU(at(codes, 64), c.one)
	}
	for d := range 16 {
		if d%8 == 0 {
			VMOVDQU(at(codes, 4*d), c.two)
		}
		narrowScale(at(scales, 2*d), scale)
		narrowScale(at(minima, 2*d), minimum)
		for half := range 2 {
			in := 8 * (2*(d%2) + half)
			c.wideLevels(in+d%8/2*2, in+d/2, low, third, nil)
			VFMADD213PS(minimum, scale, c.x)
			VMOVUPS(c.x, at(dst, 64*d+32*half))
		}
	}
	ADDQ(U8(32), scales)
	ADDQ(U8(32), minima)
	ADDQ(U8(e.block()), codes)
	ADDQ(U32(1024), dst)
	SUBQ(U8(16), dim)
	JNZ(LabelRef("dims"))
	f.end()
}

func (f *flavour) expandValuesLow(e lowElement) {
	f.begin("ExpandValues"+e.name, "func(dst, tile *byte, groups int)",
		fmt.Sprintf("ExpandValues%s writes values of so many groups of 64 dimensions, a scale and codes each, as float32.", e.name))
	dst, src, groups := Load(Param("dst"), GP64()), Load(Param("tile"), GP64()), Load(Param("groups"), GP64())
	c, low, third := f.newWideCodes(e)
	scale, table := f.vec(), f.vec()
	VMOVUPS(e.levelFloats("valueLevels", 63.5), table)
	Label("group")
	narrowScale(at(src, 0), scale)
	VPMOVZXWD(at(src, 2), c.two)
	if e.bits == 3 {
		VPMOVZXWD(at(src, 18), c.one.AsX())
		VINSERTI128(U8(1), c.one.AsX(), c.one, c.one)
		VPSRLVQ(laneShifts(), c.one, c.one)
	}
	for i := range 8 {
		in := 8 * (i % 2)
		c.wideLevels(in+i/2*2, in+i/2, low, third, table)
		VMULPS(scale, c.x, c.x)
		VMOVUPS(c.x, at(dst, 32*i))
	}
	ADDQ(U8(2+8*e.bits), src)
	ADDQ(U32(256), dst)
	DECQ(groups)
	JNZ(LabelRef("group"))
	f.end()
}
