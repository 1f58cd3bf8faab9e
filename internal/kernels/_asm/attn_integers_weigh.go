package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// valueScales collects the float16 scales of 16 tokens a tile, and int4's minima behind them.
func (f *flavour) valueScales(bytes int) {
	name, doc := "ValueScales", "ValueScales writes the float16 numbers at byte from of each token's value, tokens size bytes apart, to scales [16·tiles]."
	if bytes == 4 {
		name, doc = "ValueScalesMinima", "ValueScalesMinima is ValueScales; the numbers behind those go to minima [16·tiles]."
	}
	f.begin(name, "func(scales, minima *float32, values [][]byte, masks []uint16, size, from int)", doc)
	dst := []reg.Register{Load(Param("scales"), GP64()), Load(Param("minima"), GP64())}[:bytes/2]
	count := GP64()
	w := newLister("values", count, false)
	size, from := Load(Param("size"), GP64()), GP64()
	x, apart := f.vecs(3), f.vec()
	if bytes == 4 {
		VMOVDQU(apartWords(), apart.AsX())
	}
	Label("tile")
	w.step()
	Load(Param("from"), from)
	ADDQ(from, w.data)
	for half := range 2 {
		if bytes == 2 {
			for j := range 8 {
				VPINSRW(U8(j), at(w.data, 0), x[0].AsX(), x[0].AsX())
				ADDQ(size, w.data)
			}
		} else {
			for i := range 2 {
				VMOVD(at(w.data, 0), x[i].AsX())
				ADDQ(size, w.data)
				for j := 1; j < 4; j++ {
					VPINSRD(U8(j), at(w.data, 0), x[i].AsX(), x[i].AsX())
					ADDQ(size, w.data)
				}
				VPSHUFB(apart.AsX(), x[i].AsX(), x[i].AsX()) // four scales, four minima
			}
			VPUNPCKHQDQ(x[1].AsX(), x[0].AsX(), x[2].AsX())
			VPUNPCKLQDQ(x[1].AsX(), x[0].AsX(), x[0].AsX())
			VCVTPH2PS(x[2].AsX(), x[2])
			VMOVUPS(x[2], at(dst[1], 32*half))
		}
		VCVTPH2PS(x[0].AsX(), x[0])
		VMOVUPS(x[0], at(dst[0], 32*half))
	}
	for _, d := range dst {
		ADDQ(U8(64), d)
	}
	DECQ(w.left)
	JNZ(LabelRef("tile"))
	f.end()
}

var apartWord *Mem

// apartWords takes the even 16-bit numbers of a register of 128 bits, then the odd ones.
func apartWords() Mem {
	if apartWord == nil {
		m := GLOBL("apart", RODATA|NOPTR)
		for i := range 8 {
			for b := range 2 {
				DATA(2*i+b, U8(4*(i%4)+2*(i/4)+b))
			}
		}
		apartWord = &m
	}
	return *apartWord
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
	factor, x := f.vec(), f.vecs(64/f.bytes())
	addr, err := Param("factor").Resolve()
	if err != nil {
		panic(err)
	}
	VBROADCASTSS(addr.Addr, factor)
	Label("tile")
	for i, r := range x {
		VMOVUPS(at(p, i*f.bytes()), r)
		VMULPS(at(scales, i*f.bytes()), r, r)
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

// weighIntegers: the codes of 2 tokens are interleaved as 16-bit numbers, which costs a product and a sum a head and 8 dimensions.
// Sums stay in integers over all tiles. Three heads' sums of 32 dimensions fit the registers; four heads take 16 a call.
func (f *flavour) weighIntegers(e element, heads int) {
	dims := weighedDims(heads)
	f.begin(fmt.Sprintf("WeighIntegers%sx%d", e.name, heads), "func(out *float32, outBytes int, p *int16, unit, offset *float32, values [][]byte, size, from int, next [][]byte, part int)",
		fmt.Sprintf("WeighIntegers%sx%d adds unit·(p·codes) + offset to %s dimensions of %d rows of out, outBytes apart. p is [%d][16·tiles], below 2^15; tiles, "+
			"1 to 32, have 16 tokens, size bytes apart, whose codes begin at byte from. While it computes a tile, %d lines of one of next are fetched, from byte part on.", e.name, heads, dimsOf(e, dims), heads, heads, fetchedLines(e, dims)))
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
		acc = append(acc, f.vecs(dims/8))
		for _, a := range acc[len(acc)-1] {
			f.zero(a)
		}
	}
	pair, x, y := f.vecs(2), f.vec(), f.vec()
	products := func(first, turn int) { // of the sums from the first on
		for h, a := range acc {
			m := row(p, stride, h, 4*turn)
			if h == 3 {
				m = Mem{Base: p, Index: stride3, Scale: 1, Disp: 4 * turn}
			}
			VPBROADCASTD(m, x)
			for i := range 2 {
				VPMADDWD(x, pair[i], y)
				VPADDD(y, a[first+i], a[first+i])
			}
		}
	}
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
	if lines >= 4 {
		ADDQ(U32(64*(lines/4)), w.fetch)
	}
	for turn := range 2 {
		next := func(disp int) Mem { return Mem{Base: v0, Index: size, Scale: 1, Disp: disp} }
		switch {
		case e.name == "I8":
			for d := 0; d < dims; d += 16 {
				VPMOVSXBW(at(v0, d), x)
				VPMOVSXBW(next(d), y)
				VPUNPCKLWD(y, x, pair[0])
				VPUNPCKHWD(y, x, pair[1])
				products(d/8, turn)
			}
		case dims == 16: // 8 bytes
			VMOVQ(at(v0, 0), x.AsX())
			VMOVQ(next(0), y.AsX())
			VPUNPCKLBW(y.AsX(), x.AsX(), x.AsX())
			VPMOVZXBW(x.AsX(), pair[0])
			VPSRLW(U8(4), pair[0], pair[1])
			products(0, turn)
		default:
			VPMOVZXBW(at(v0, 0), x)
			VPMOVZXBW(next(0), y)
			VPUNPCKLWD(y, x, pair[0])
			VPUNPCKHWD(y, x, pair[1])
			products(0, turn)
			VPSRLW(U8(4), pair[0], pair[0])
			VPSRLW(U8(4), pair[1], pair[1])
			products(2, turn)
		}
		LEAQ(Mem{Base: v0, Index: size, Scale: 2}, v0)
	}
	ADDQ(U8(8), p)
	DECQ(t)
	JNZ(LabelRef("pairs"))
	ADDQ(U8(24), list)
	DECQ(left)
	JNZ(LabelRef("tile"))
	out, unit, offset, outBytes := Load(Param("out"), GP64()), Load(Param("unit"), GP64()), Load(Param("offset"), GP64()), Load(Param("outBytes"), GP64())
	for h, a := range acc {
		switch {
		case e.name == "I8":
			for i := 0; i < len(a); i += 2 {
				f.unweave(a[i:i+2], x)
			}
		case dims == 16:
			f.halves(e, a, x)
		default:
			f.unweave(a[:2], x)
			f.unweave(a[2:], x)
			f.halves(e, []reg.VecPhysical{a[0], a[2]}, x)
			f.halves(e, []reg.VecPhysical{a[1], a[3]}, x)
		}
		VBROADCASTSS(at(unit, 4*h), x)
		VBROADCASTSS(at(offset, 4*h), y)
		for i, r := range a {
			to := at(out, 32*i)
			if e.name == "I4" && dims == 16 {
				to = at(out, 64*i)
			}
			VCVTDQ2PS(r, r)
			VFMADD213PS(y, x, r)
			VADDPS(to, r, r)
			VMOVUPS(r, to)
		}
		ADDQ(outBytes, out)
	}
	f.end()
}

// weighedDims is how many dimensions one call of weighIntegers takes.
func weighedDims(heads int) int {
	if heads == 4 {
		return 16
	}
	return 32
}

// fetchedLines is how many lines one call of weighIntegers fetches a tile: those of a tile of as many dimensions' keys.
func fetchedLines(e element, dims int) int {
	if e.name == "I4" {
		return dims * 6 / 32
	}
	return dims * 9 / 32
}

// dimsOf says which dimensions one call of weighIntegers takes.
func dimsOf(e element, dims int) string {
	if e.name == "I4" && dims == 16 {
		return "8 and, 16 further on, 8 more"
	}
	return fmt.Sprint(dims)
}
