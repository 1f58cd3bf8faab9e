package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// AVX-512's kernels of attn_integers.go: VPDPWSSD multiplies pairs of 16-bit numbers and sums them, 16 tokens or dimensions an
// instruction. Integers are exact and the float32 operations the same, so results are those of AVX2, bit for bit.
//
//	2 dimensions × 16 tokens cost 2 (int8) or 3 instructions and 1 a head
//	2 tokens × 64 dimensions cost 8 (int8) or 6 instructions and 5 a head
func init() {
	f := flavours[0]()
	register("attn_integers", f.isa, func() {
		for _, e := range quantisedElements {
			for heads := 1; heads <= 4; heads++ {
				f.queryFactors(e, heads)
			}
		}
		f.roundWeights()
		for _, e := range quantisedElements {
			for heads := 1; heads <= 4; heads++ {
				f.scoreIntegersWide(e, heads)
			}
			for heads := 1; heads <= 4; heads++ {
				f.weighIntegersWide(e, heads)
			}
		}
	})
}

// words64 is a register's 32 16-bit numbers in read-only data.
func words64(name string, word func(i int) uint16) Mem {
	m := GLOBL(name, RODATA|NOPTR)
	for i := range 32 {
		DATA(2*i, U16(word(i)))
	}
	return m
}

// wideConsts are made once a file.
var wideConsts = map[string]Mem{}

func wideConst(name string, word func(i int) uint16) Mem {
	if _, ok := wideConsts[name]; !ok {
		wideConsts[name] = words64(name, word)
	}
	return wideConsts[name]
}

// Two dimensions' 16 numbers, one after the other, by turns.
func weaveWords() Mem {
	return wideConst("weave", func(i int) uint16 { return uint16(i%2*16 + i/2) })
}

// Of 16 bytes in every 128 bits, 8 of one dimension and 8 of the next, by turns as 16-bit numbers: bytes 0-3 and 4-7, twice.
func weaveBytes() Mem {
	return wideConst("weaveBytes", func(i int) uint16 { return 0x8000 | uint16(i/8%2*4+i%8/2+i%2*8) })
}

// 0 for the first 16 numbers, 4 for the others.
func highShifts() Mem {
	return wideConst("highShifts", func(i int) uint16 { return uint16(i / 16 * 4) })
}

// scoreIntegersWide is scoreIntegers; of int4 the upper half of a sum is that of the high halves, and the lower half that of the bytes.
func (f *flavour) scoreIntegersWide(e element, heads int) {
	f.begin(fmt.Sprintf("ScoreIntegers%sx%d", e.name, heads), "func(s, q []float32, factors *float32, keys [][]byte, masks []uint16, dim int, next [][]byte)",
		fmt.Sprintf("ScoreIntegers%sx%d writes q·k to s [%d][16·tiles] for quantised tiles of 16 tokens, at least one; q is [%d][dim], factors are those of "+
			"QueryFactors%sx%d. masks give the number of tiles alone. dim is a multiple of 16. While it computes a tile, the bytes of one of next are fetched.", e.name, heads, heads, heads, e.name, heads))
	c := integerScorer{f: f, e: e, heads: heads, q: GP64(), stride: GP64(), stride3: GP64(), codes: GP64(), factor: GP64(), left: GP64(), rounded: AllocLocal(32 * heads)}
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
	c.pair, c.x, c.y, c.order = f.vecs(2), f.vec(), f.vec(), f.vec()
	shifts := c.y
	if e.name == "I4" {
		VMOVDQU64(weaveBytes(), c.order)
		shifts = f.vec()
		VMOVDQU64(highShifts(), shifts)
	} else {
		VMOVDQU64(weaveWords(), c.order)
	}
	Label("tile")
	c.w.step()
	for _, a := range c.acc {
		f.zero(a[0])
		f.zero(a[1])
	}
	c.multiplyWide(shifts)
	MOVQ(s, place)
	MOVQ(stride, c.left)
	c.storeWide(place)
	MOVQ(s, place)
	ADDQ(U8(64), place)
	MOVQ(place, s)
	ADDQ(U8(48), c.factor)
	DECQ(c.w.left)
	JNZ(LabelRef("tile"))
	f.end()
}

// multiplyWide sums the products of all dimensions, 16 a turn, even and odd pairs of dimensions apart.
func (c *integerScorer) multiplyWide(shifts reg.VecPhysical) {
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
	for h := range c.heads {
		VMULPS(c.row(h, 0), c.pair[0], c.x)
		VMULPS_BCST(at(c.factor, 4*h), c.x, c.x)
		VCVTPS2DQ(c.x, c.x)
		VPMOVSDW(c.x, c.rounded.Offset(32*h))
	}
	for two := range 8 {
		pair := c.pair[two%2]
		if c.e.name == "I8" {
			VPMOVSXBW(at(c.codes, 32*two), pair)
			VPERMW(pair, c.order, pair)
		} else {
			VBROADCASTI32X4(at(c.codes, 16*two), pair)
			VPSHUFB(c.order, pair, pair)
			VPSRLVW(shifts, pair, pair)
		}
		for h, a := range c.acc {
			VPDPWSSD_BCST(c.rounded.Offset(32*h+4*two), pair, a[two%2])
		}
	}
	ADDQ(U8(32), c.w.data)
	ADDQ(U8(64), c.q)
	ADDQ(U32(bytes), c.codes)
	SUBQ(U8(16), c.left)
	JNZ(LabelRef("dims"))
	PREFETCHT1(at(c.w.fetch, c.e.scaleBytes()-1))
}

// storeWide writes the tile's scores of every head; heads are left bytes apart.
func (c *integerScorer) storeWide(to reg.Register) {
	for h, a := range c.acc {
		r := a[0]
		VPADDD(a[1], r, r)
		if c.e.name == "I4" {
			VEXTRACTI64X4(U8(1), r, c.x.AsY())
			VPSLLD(U8(4), c.x.AsY(), c.x.AsY()) // the upper half becomes zero
			VPSUBD(c.x, r, r)
		}
		VCVTDQ2PS(r, r)
		if c.e.name == "I4" {
			VBROADCASTSS(at(c.factor, 16+4*h), c.y)
			VBROADCASTSS(at(c.factor, 32+4*h), c.x)
			VFMADD213PS(c.x, c.y, r)
		} else {
			VMULPS_BCST(at(c.factor, 16+4*h), r, r)
		}
		VMOVUPS(r, at(to, 0))
		if h+1 < c.heads {
			ADDQ(c.left, to)
		}
	}
}

// laneTurns are the places of 64-bit numbers in two registers whose lanes of 128 bits are taken by turns, from lane first on.
func laneTurns(first int) Mem {
	return wideConst(fmt.Sprintf("laneTurns%d", first), func(i int) uint16 {
		if i%4 > 0 { // upper parts of a 64-bit number
			return 0
		}
		n := i / 4
		return uint16(2*first + n/4*2 + n%2 + n/2%2*8)
	})
}

// weighIntegersWide is weighIntegers with the sums of 64 dimensions of all heads in registers.
func (f *flavour) weighIntegersWide(e element, heads int) {
	const dims = 64
	f.begin(fmt.Sprintf("WeighIntegers%sx%d", e.name, heads), "func(out *float32, outBytes int, p *int16, unit, offset *float32, values [][]byte, size, from int, next [][]byte, part int)",
		fmt.Sprintf("WeighIntegers%sx%d adds unit·(p·codes) + offset to %d dimensions of %d rows of out, outBytes apart. p is [%d][16·tiles], below 2^15; tiles, "+
			"1 to 32, have 16 tokens, size bytes apart, whose codes begin at byte from. While it computes a tile, %d lines of one of next are fetched, from byte part on.", e.name, heads, dims, heads, heads, fetchedLines(e, dims)))
	stride, stride3, v0, t, p := GP64(), GP64(), GP64(), GP64(), GP64()
	Load(Param("p"), p)
	list, left, size, from := Load(Param("values").Base(), GP64()), Load(Param("values").Len(), GP64()), Load(Param("size"), GP64()), Load(Param("from"), GP64())
	MOVQ(left, stride)
	SHLQ(U8(5), stride)
	LEAQ(Mem{Base: stride, Index: stride, Scale: 2}, stride3)
	var w lister
	w.fetches()
	var acc [][]reg.VecPhysical
	for range heads {
		acc = append(acc, f.vecs(4))
		for _, a := range acc[len(acc)-1] {
			f.zero(a)
		}
	}
	pair, x, y := f.vecs(4), f.vec(), f.vec()
	Label("tile")
	MOVQ(at(list, 0), v0)
	ADDQ(from, v0)
	w.stepNext(list)
	Load(Param("part"), t)
	ADDQ(t, w.fetch)
	lines := fetchedLines(e, dims)
	for line := lines &^ 3; line < lines; line++ {
		PREFETCHT1(at(w.fetch, 64*line))
	}
	MOVQ(U32(4), t)
	Label("pairs")
	for line := range lines / 4 {
		PREFETCHT1(at(w.fetch, 64*line))
	}
	ADDQ(U32(64*(lines/4)), w.fetch)
	for turn := range 2 {
		f.valuePairs(e, pair, x, y, v0, size)
		for h, a := range acc {
			m := row(p, stride, h, 4*turn)
			if h == 3 {
				m = Mem{Base: p, Index: stride3, Scale: 1, Disp: 4 * turn}
			}
			VPBROADCASTD(m, x)
			for i, v := range pair {
				VPDPWSSD(v, x, a[i])
			}
		}
		LEAQ(Mem{Base: v0, Index: size, Scale: 2}, v0)
	}
	ADDQ(U8(8), p)
	DECQ(t)
	JNZ(LabelRef("pairs"))
	ADDQ(U8(24), list)
	DECQ(left)
	JNZ(LabelRef("tile"))
	f.storeWeighed(e, acc, pair, x, y)
	f.end()
}

// valuePairs interleaves the codes of 64 dimensions of two tokens, the second size bytes behind the first, as 16-bit numbers. int4: the
// bytes of 32 dimensions, then their high halves.
func (f *flavour) valuePairs(e element, pair []reg.VecPhysical, x, y reg.VecPhysical, v0, size reg.Register) {
	next := func(disp int) Mem { return Mem{Base: v0, Index: size, Scale: 1, Disp: disp} }
	if e.name == "I8" {
		for half := range 2 {
			VPMOVSXBW(at(v0, 32*half), x)
			VPMOVSXBW(next(32*half), y)
			VPUNPCKLWD(y, x, pair[2*half])
			VPUNPCKHWD(y, x, pair[2*half+1])
		}
		return
	}
	VPMOVZXBW(at(v0, 0), x)
	VPMOVZXBW(next(0), y)
	VPUNPCKLWD(y, x, pair[0])
	VPUNPCKHWD(y, x, pair[1])
	VPSRLW(U8(4), pair[0], pair[2])
	VPSRLW(U8(4), pair[1], pair[3])
}

// storeWeighed adds the sums of 64 dimensions to every head's row of out.
func (f *flavour) storeWeighed(e element, acc [][]reg.VecPhysical, pair []reg.VecPhysical, x, y reg.VecPhysical) {
	out, unit, offset, outBytes := Load(Param("out"), GP64()), Load(Param("unit"), GP64()), Load(Param("offset"), GP64()), Load(Param("outBytes"), GP64())
	low, high := pair[0], pair[1]
	VMOVDQU64(laneTurns(0), low)
	VMOVDQU64(laneTurns(2), high)
	for h, a := range acc {
		if e.name == "I4" {
			for i := range 2 {
				VPSLLD(U8(4), a[i+2], x)
				VPSUBD(x, a[i], a[i])
			}
		}
		for i := 0; i < 4; i += 2 { // dimensions 0-3, 8-11, … and 4-7, 12-15, …
			VMOVDQA64(a[i], x)
			VPERMT2Q(a[i+1], high, x)
			VPERMT2Q(a[i+1], low, a[i])
			VMOVDQA64(x, a[i+1])
		}
		places := []int{0, 1, 2, 3}
		if e.name == "I4" { // the sums of low halves are of dimensions 0-15 and 32-47
			places = []int{0, 2, 1, 3}
		}
		VBROADCASTSS(at(unit, 4*h), x)
		VBROADCASTSS(at(offset, 4*h), y)
		for i, r := range a {
			to := at(out, 64*places[i])
			VCVTDQ2PS(r, r)
			VFMADD213PS(y, x, r)
			VADDPS(to, r, r)
			VMOVUPS(r, to)
		}
		ADDQ(outBytes, out)
	}
}
