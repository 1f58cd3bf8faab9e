package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Writing int3 and int2 pages, to the byte as internal/kvpage writes them (lowbits.go): eight channels of 128 keys at a time, or a value's
// group of 64 numbers in eight registers. No product is fused with a sum.
func init() {
	f := flavours[1]()
	register("attn_put_low", f.isa, func() {
		for _, e := range lowElements {
			f.putKeyGroup(e)
			f.putValueLow(e)
		}
	})
}

const (
	levelMiddle = 63.5
	lowFits     = 2
)

// deviation is that of the normal distribution that the levels belong to.
func (e lowElement) deviation() float32 {
	if e.bits == 2 {
		return float32(levelMiddle / 1.510)
	}
	return float32(levelMiddle / 2.152)
}

// leveller rounds numbers to levels.
type leveller struct {
	f       *flavour
	e       lowElement
	code, t reg.VecPhysical
}

// levelled sets code to how many borders less base, in units of the scale, the numbers in u reach.
func (l *leveller) levelled(u reg.VecPhysical, base float32) {
	l.f.zero(l.code)
	for i := 1; i < len(l.e.levels); i++ {
		border := (float32(l.e.levels[i-1])+float32(l.e.levels[i]))/2 - base
		VCMPPS(U8(0x1d), vectorConst(border), u, l.t) // greater or equal, and a number
		VPSUBD(l.t, l.code, l.code)
	}
}

// roundNumber leaves the nearest integer in a sum's low bits.
const roundNumber = 12582912

// stepped bounds the numbers in u, in units of the scale, and adds roundNumber.
func (l *leveller) stepped(u reg.VecPhysical, top float32) {
	VMOVUPS(vectorConst(top), l.t)
	VMINPS(u, l.t, u)
	l.f.zero(l.t)
	VMAXPS(u, l.t, u)
	VADDPS(vectorConst(roundNumber), u, u)
}

// usable keeps in mask where levels can be s apart.
func (l *leveller) usable(s, mask reg.VecPhysical) {
	l.f.zero(l.t)
	VCMPPS(U8(0x1e), l.t, s, mask) // greater
	VCMPPS(U8(0x12), vectorConst(3.4028234663852886e38), s, l.t)
	VANDPS(l.t, mask, mask)
}

// inverse sets to to 1 over a scale that float16 holds, 0 where that is 0.
func (l *leveller) inverse(s, to reg.VecPhysical) {
	VMOVUPS(vectorConst(1), to)
	VDIVPS(s, to, to)
	l.f.zero(l.t)
	VCMPPS(U8(0x1e), l.t, s, l.t)
	VANDPS(l.t, to, to)
}

// shiftsOf are 8 counts in read-only data.
func shiftsOf(name string, counts [8]int) Mem {
	return bytesOf(name, func(i int) uint8 {
		if i%4 > 0 {
			return 0
		}
		return uint8(counts[i/4])
	})
}

func (f *flavour) putKeyGroup(e lowElement) {
	f.begin("PutKeyGroup"+e.name, "func(group *byte, k *float32, strideBytes, dim int)",
		fmt.Sprintf("PutKeyGroup%s turns 128 rows of keys, strideBytes apart, into a group: scales, minima, then codes; dim is a multiple of 16.", e.name))
	scales, k, stride, dim := Load(Param("group"), GP64()), Load(Param("k"), GP64()), Load(Param("strideBytes"), GP64()), Load(Param("dim"), GP64())
	minima, codes, row, late, n, tile, to, tiles := GP64(), GP64(), GP64(), GP64(), GP64(), GP64(), GP64(), GP64()
	LEAQ(Mem{Base: scales, Index: dim, Scale: 2}, minima)
	LEAQ(Mem{Base: minima, Index: dim, Scale: 4, Disp: 2}, codes) // behind the lone key and its number
	IMUL3Q(U8(2*e.bits), dim, tile)
	l := &leveller{f: f, e: e, code: f.vec(), t: f.vec()}
	centre, middle, s, inverse, sums, d, u, mask := f.vec(), f.vec(), f.vec(), f.vec(), f.vecs(4), f.vec(), f.vec(), f.vec()
	top := float32(int(1)<<e.bits - 1)
	rows := func(name string, do func()) {
		MOVQ(k, row)
		MOVQ(U32(128), n)
		Label(name)
		do()
		ADDQ(stride, row)
		DECQ(n)
		JNZ(LabelRef(name))
	}
	Label("dims")
	for half := range 2 {
		name := func(s string) string { return fmt.Sprintf("%s%d", s, half) }
		low, high := sums[0], sums[1]
		VMOVUPS(at(k, 0), low)
		VMOVUPS(low, high)
		rows(name("range"), func() { // of two numbers of which one is none the second source is kept
			VMOVUPS(at(row, 0), d)
			VMINPS(low, d, low)
			VMAXPS(high, d, high)
		})
		VSUBPS(low, high, s)
		VDIVPS(vectorConst(top), s, s)
		VADDPS(low, high, centre)
		VMULPS(vectorConst(0.5), centre, centre)
		f.zero(middle)
		for fit := range lowFits {
			VMOVUPS(vectorConst(1), inverse)
			VDIVPS(s, inverse, inverse)
			for _, r := range sums {
				f.zero(r)
			}
			rows(name(fmt.Sprintf("fit%d", fit)), func() {
				VMOVUPS(at(row, 0), d)
				VSUBPS(centre, d, d)
				VADDPS(d, sums[3], sums[3])
				VSUBPS(middle, d, u)
				VMULPS(inverse, u, u)
				VADDPS(vectorConst(top/2), u, u)
				l.stepped(u, top)
				VSUBPS(vectorConst(roundNumber), u, u)
				VSUBPS(vectorConst(top/2), u, u)
				VADDPS(u, sums[0], sums[0])
				VMULPS(u, d, d)
				VADDPS(d, sums[2], sums[2])
				VMULPS(u, u, u)
				VADDPS(u, sums[1], sums[1])
			})
			// Where n·ll - l² > 0: s = (n·xl - l·sum)/that, middle = (sum - s·l)/n.
			VMULPS(vectorConst(128), sums[1], sums[1])
			VMULPS(sums[0], sums[0], u)
			VSUBPS(u, sums[1], sums[1])
			l.usable(s, mask)
			f.zero(l.t)
			VCMPPS(U8(0x1e), l.t, sums[1], l.t)
			VANDPS(l.t, mask, mask)
			VMULPS(vectorConst(128), sums[2], sums[2])
			VMULPS(sums[3], sums[0], u)
			VSUBPS(u, sums[2], sums[2])
			VDIVPS(sums[1], sums[2], sums[2])
			VBLENDVPS(mask, sums[2], s, s)
			VMULPS(sums[0], s, u)
			VSUBPS(u, sums[3], u)
			VDIVPS(vectorConst(128), u, u)
			VBLENDVPS(mask, u, middle, middle)
		}
		l.usable(s, mask)
		VANDPS(mask, s, s)
		VANDPS(mask, middle, middle)
		VADDPS(middle, centre, centre)
		VMULPS(vectorConst(top/2), s, u)
		VSUBPS(u, centre, centre)
		VMOVUPS(vectorConst(-65504), u)
		VMAXPS(u, centre, centre)
		VMOVUPS(vectorConst(65504), u)
		VMINPS(u, centre, centre)
		f.zero(l.t)
		VADDPS(l.t, centre, centre) // no negative zero
		VCVTPS2PH(U8(0), centre, d.AsX())
		VMOVDQU(d.AsX(), at(minima, 0))
		VCVTPH2PS(d.AsX(), centre)
		VMINPS(u, s, s)
		VCVTPS2PH(U8(0), s, d.AsX())
		VMOVDQU(d.AsX(), at(scales, 0))
		VCVTPH2PS(d.AsX(), s)
		l.inverse(s, inverse)
		// Codes of tokens j and j+8 of each tile, of 8 dimensions, become 4 bytes.
		MOVQ(k, row)
		MOVQ(codes, to)
		LEAQ(Mem{Base: row, Index: stride, Scale: 8}, late)
		MOVQ(U32(8), tiles)
		Label(name("tile"))
		MOVQ(U32(8), n)
		Label(name("token"))
		one, two := sums[0], sums[1]
		for i, from := range []reg.Register{row, late} {
			VMOVUPS(at(from, 0), u)
			VSUBPS(centre, u, u)
			VMULPS(inverse, u, u)
			l.stepped(u, top)
			VPSRLD(U8(2), u, l.code)
			VPAND(vectorInt(3), u, u)
			VPAND(vectorInt(1), l.code, l.code)
			if i == 0 {
				VMOVDQA(u, two)
				VMOVDQA(l.code, one)
				continue
			}
			VPSLLD(U8(8), u, u)
			VPOR(u, two, two)
			VPSLLD(U8(8), l.code, l.code)
			VPOR(l.code, one, one)
		}
		VPSLLVD(shiftsOf("pairsOfBits", [8]int{0, 16, 2, 18, 4, 20, 6, 22}), two, two)
		join(two, u)
		VMOVD(two.AsX(), at(to, 32*half))
		if e.bits == 3 {
			b := 4 * half
			VPSLLVD(shiftsOf(fmt.Sprintf("singleBits%d", half), [8]int{b, b + 16, b + 1, b + 17, b + 2, b + 18, b + 3, b + 19}), one, one)
			join(one, u)
			bits := GP32()
			VMOVD(one.AsX(), bits)
			if half > 0 {
				ORL(at(to, 64), bits)
			}
			MOVL(bits, at(to, 64))
		}
		ADDQ(stride, row)
		ADDQ(stride, late)
		ADDQ(U8(4), to)
		DECQ(n)
		JNZ(LabelRef(name("token")))
		LEAQ(Mem{Base: row, Index: stride, Scale: 8}, row)
		LEAQ(Mem{Base: late, Index: stride, Scale: 8}, late)
		ADDQ(tile, to)
		SUBQ(U8(32), to)
		DECQ(tiles)
		JNZ(LabelRef(name("tile")))
		ADDQ(U8(16), scales)
		ADDQ(U8(16), minima)
		ADDQ(U8(32), k)
	}
	ADDQ(U8(e.block()), codes)
	SUBQ(U8(16), dim)
	JNZ(LabelRef("dims"))
	f.end()
}

// join is the OR of all lanes in the first one.
func join(v, tmp reg.VecPhysical) {
	VEXTRACTI128(U8(1), v, tmp.AsX())
	VPOR(tmp.AsX(), v.AsX(), v.AsX())
	for _, order := range []uint8{0x4e, 0xb1} {
		VPSHUFD(U8(order), v.AsX(), tmp.AsX())
		VPOR(tmp.AsX(), v.AsX(), v.AsX())
	}
}

// vectorInt is an integer in every lane, in read-only data.
func vectorInt(v uint8) Mem {
	return bytesOf(fmt.Sprintf("int%d", v), func(i int) uint8 {
		if i%4 > 0 {
			return 0
		}
		return v
	})
}

func (f *flavour) putValueLow(e lowElement) {
	f.begin("PutValue"+e.name, "func(row *byte, v *float32, groups int)", fmt.Sprintf("PutValue%s turns so many groups of 64 numbers into a scale and codes each.", e.name))
	row, src, groups := Load(Param("row"), GP64()), Load(Param("v"), GP64()), Load(Param("groups"), GP64())
	l := &leveller{f: f, e: e, code: f.vec(), t: f.vec()}
	x, s, inverse, sum, product, u := f.vecs(8), f.vec(), f.vec(), f.vec(), f.vec(), f.vec()
	all := func(v reg.VecPhysical) { // the sum of the lanes in each
		VEXTRACTF128(U8(1), v, l.t.AsX())
		VADDPS(l.t.AsX(), v.AsX(), v.AsX())
		VPERMILPS(U8(0x4e), v.AsX(), l.t.AsX())
		VADDPS(l.t.AsX(), v.AsX(), v.AsX())
		VPERMILPS(U8(0xb1), v.AsX(), l.t.AsX())
		VADDPS(l.t.AsX(), v.AsX(), v.AsX())
		VBROADCASTSS(v.AsX(), v)
	}
	Label("group")
	f.zero(s)
	for i, r := range x {
		VMOVUPS(at(src, 32*i), r)
		VMULPS(r, r, u)
		VADDPS(u, s, s)
	}
	all(s)
	VDIVPS(vectorConst(64), s, s)
	VSQRTPS(s, s)
	VDIVPS(vectorConst(e.deviation()), s, s)
	for range lowFits {
		VMOVUPS(vectorConst(1), inverse)
		VDIVPS(s, inverse, inverse)
		f.zero(sum)
		f.zero(product)
		for _, r := range x {
			VMULPS(inverse, r, u)
			l.levelled(u, levelMiddle)
			VPERMPS(e.levelFloats("valueLevels", levelMiddle), l.code, u)
			VMULPS(u, r, l.t)
			VADDPS(l.t, product, product)
			VMULPS(u, u, u)
			VADDPS(u, sum, sum)
		}
		all(sum)
		all(product)
		VDIVPS(sum, product, product)
		l.usable(s, u)
		VBLENDVPS(u, product, s, s)
	}
	l.usable(s, u)
	VANDPS(u, s, s)
	VMINPS(vectorConst(65504), s, s)
	VCVTPS2PH(U8(0), s, u.AsX())
	VPEXTRW(U8(0), u.AsX(), at(row, 0))
	VCVTPH2PS(u.AsX(), s)
	l.inverse(s, inverse)
	two, one := sum, product
	f.zero(two)
	f.zero(one)
	for i, r := range x {
		VMULPS(inverse, r, r)
		l.levelled(r, levelMiddle)
		VPAND(vectorInt(3), l.code, u)
		shifted := func(v reg.VecPhysical, by int) reg.VecPhysical {
			if by > 0 {
				VPSLLD(U8(by), v, v)
			}
			return v
		}
		VPOR(shifted(u, 8*(i%2)+2*(i/2)), two, two)
		if e.bits == 3 {
			VPSRLD(U8(2), l.code, l.code)
			VPOR(shifted(l.code, 8*(i%2)+i/2), one, one)
		}
	}
	VPACKUSDW(two, two, two)
	VPERMQ(U8(0x08), two, two)
	VMOVDQU(two.AsX(), at(row, 2))
	if e.bits == 3 {
		VEXTRACTI128(U8(1), one, u.AsX())
		VPSLLD(U8(4), u.AsX(), u.AsX())
		VPOR(u.AsX(), one.AsX(), one.AsX())
		VPACKUSDW(one.AsX(), one.AsX(), one.AsX())
		VMOVQ(one.AsX(), at(row, 18))
	}
	ADDQ(U8(2+8*e.bits), row)
	ADDQ(U32(256), src)
	DECQ(groups)
	JNZ(LabelRef("group"))
	f.end()
}
