package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Kernels that read KIVI's int8 and int4 pages (formats: kvpage). The other paths expand a tile in plain Go.
func init() {
	f := flavours[0]()
	register("attn_quantised", f.isa, func() {
		for _, e := range quantisedElements {
			for heads := 1; heads <= 4; heads++ {
				f.scoreQuantised(e, heads)
			}
			for heads := 1; heads <= 4; heads++ {
				f.weigh(e, heads)
			}
			f.expandKeys(e)
			f.expandValues(e)
		}
	})
}

// halfScale broadcasts a float16 in memory to all lanes as float32.
func halfScale(m Mem, dst reg.VecPhysical) {
	VPBROADCASTW(m, dst.AsY())
	VCVTPH2PS(dst.AsY(), dst)
}

var nibbleMask *Mem

// lowNibbles is a register of 15 in every lane.
func (f *flavour) lowNibbles() reg.VecPhysical {
	if nibbleMask == nil {
		m := ConstData("nibble", U32(15))
		nibbleMask = &m
	}
	r := f.vec()
	VPBROADCASTD(*nibbleMask, r)
	return r
}

// scoreQuantised: the tile's scales are multiplied into the queries once (scratch behind them), int4's minima into what
// the sums start from; then a code costs one conversion for all heads.
func (f *flavour) scoreQuantised(e element, heads int) {
	f.begin(fmt.Sprintf("Score%sx%d", e.name, heads), "func(s, q []float32, keys [][]byte, masks []uint16, dim int, next [][]byte)",
		fmt.Sprintf("Score%sx%d writes q·k to s [%d][16·tiles] for quantised tiles of 16 tokens. q is [%d][dim], followed by as "+
			"much scratch. Tokens whose mask bit is 0 score -Inf. dim is a multiple of 16.", e.name, heads, heads, heads))
	s, q := Load(Param("s").Base(), GP64()), Load(Param("q").Base(), GP64())
	masks := Load(Param("masks").Base(), GP64())
	stride, stride3, qd, d, qs, qs3 := GP64(), GP64(), GP64(), GP64(), GP64(), GP64()
	w := newWalker("keys", stride)
	SHLQ(U8(6), stride)
	LEAQ(Mem{Base: stride, Index: stride, Scale: 2}, stride3)
	Load(Param("dim"), qs)
	SHLQ(U8(2), qs)
	LEAQ(Mem{Base: qs, Index: qs, Scale: 2}, qs3)
	low := f.constant(float32(negInf))
	var nibbles reg.VecPhysical
	if e.name == "I4" {
		nibbles = f.lowNibbles()
	}
	var acc [][]reg.VecPhysical
	for range heads {
		acc = append(acc, f.vecs(2))
	}
	k, tmp := f.vecs(4), f.vec()
	query := func(base reg.Register, h, disp int) Mem {
		if h == 3 {
			return Mem{Base: base, Index: qs3, Scale: 1, Disp: disp}
		}
		return row(base, qs, h, disp)
	}

	CMPQ(w.left, U8(0))
	JEQ(LabelRef("done"))
	Label("tile")
	w.step()
	for _, a := range acc {
		f.zero(a[0])
		f.zero(a[1])
	}
	f.scaleQueries(e, heads, w, q, qd, d, qs, query, acc, k, tmp)
	Load(Param("dim"), d)
	Label("dims")
	PREFETCHT1(Mem{Base: w.data, Index: w.ahead, Scale: 1})
	f.widenCodes(e, w.data, k, nibbles)
	for u := range 4 {
		for h := range heads {
			VFMADD231PS_BCST(query(qd, h, 4*u), k[u], acc[h][u%2])
		}
	}
	ADDQ(U8(4*2*e.bits), w.data)
	ADDQ(U8(16), qd)
	SUBQ(U8(4), d)
	JNZ(LabelRef("dims"))
	f.storeScores(s, stride, stride3, masks, acc, low, k, tmp)
	ADDQ(U8(64), s)
	ADDQ(U8(2), masks)
	DECQ(w.left)
	JNZ(LabelRef("tile"))
	Label("done")
	f.end()
}

// scaleQueries writes q·scale to the scratch, adds q·minimum to the first sums (int4), moves the data pointer to the
// codes, and leaves qd at the scratch.
func (f *flavour) scaleQueries(e element, heads int, w walker, q, qd, d, qs reg.Register, query func(reg.Register, int, int) Mem, acc [][]reg.VecPhysical, k []reg.VecPhysical, tmp reg.VecPhysical) {
	scratch, minima := GP64(), GP64()
	Load(Param("dim"), d)
	MOVQ(q, qd)
	MOVQ(qs, scratch)
	IMUL3Q(U8(heads), scratch, scratch)
	ADDQ(q, scratch)
	LEAQ(Mem{Base: w.data, Index: d, Scale: 2}, minima) // behind the scales: int4's minima, or the codes
	Label("scale")
	VCVTPH2PS(at(w.data, 0), k[0])
	if e.name == "I4" {
		VCVTPH2PS(at(minima, 0), k[1])
		ADDQ(U8(32), minima)
	}
	for h := range heads {
		VMOVUPS(query(qd, h, 0), tmp)
		if e.name == "I4" {
			VFMADD231PS(k[1], tmp, acc[h][0])
		}
		VMULPS(k[0], tmp, tmp)
		VMOVUPS(tmp, query(scratch, h, 0))
	}
	ADDQ(U8(32), w.data)
	ADDQ(U8(64), qd)
	ADDQ(U8(64), scratch)
	SUBQ(U8(16), d)
	JNZ(LabelRef("scale"))
	if e.name == "I4" {
		for _, a := range acc {
			f.lanesSum(a[0], tmp)
		}
	}
	MOVQ(minima, w.data) // now at the codes for both types
	MOVQ(scratch, qd)
	SUBQ(qs, qd)
}

// widenCodes turns the codes of 4 dimensions of a tile into float32: k[u] holds dimension u.
func (f *flavour) widenCodes(e element, data reg.Register, k []reg.VecPhysical, nibbles reg.VecPhysical) {
	if e.name == "I8" {
		for u := range 4 {
			VPMOVSXBD(at(data, 16*u), k[u])
			VCVTDQ2PS(k[u], k[u])
		}
		return
	}
	// 16 bytes hold two dimensions: tokens 0-7 in the low halves, 8-15 in the high ones.
	for u := 0; u < 4; u += 2 {
		VPMOVZXBD(at(data, 8*u), k[u])
		VPSRLD(U8(4), k[u], k[u+1])
		VPANDD(nibbles, k[u], k[u])
		t := f.regs[31]
		VSHUFI64X2(U8(0x44), k[u+1], k[u], t)
		VSHUFI64X2(U8(0xee), k[u+1], k[u], k[u+1])
		VCVTDQ2PS(t, k[u])
		VCVTDQ2PS(k[u+1], k[u+1])
	}
}

// quantisedRowSize turns the dimension in size into the bytes of a row: 2 or 4 bytes a group of 64, then the codes.
func (w *weigher) quantisedRowSize(size reg.Register) {
	groups := GP64()
	LEAQ(at(size, 63), groups)
	SHRQ(U8(6), groups)
	if w.e.name == "I8" {
		LEAQ(Mem{Base: size, Index: groups, Scale: 2}, size)
		return
	}
	SHRQ(U8(1), size)
	LEAQ(Mem{Base: size, Index: groups, Scale: 4}, size)
}

// startQuantised sets the offsets of the first chunk's codes and scales in a row.
func (w *weigher) startQuantised() {
	Load(Param("dim"), w.code)
	if w.e.name == "I8" {
		SUBQ(w.size, w.code) // codes start at size - dim
		NEGQ(w.code)
	} else {
		SHRQ(U8(1), w.code)
		SUBQ(w.size, w.code) // at size - dim/2
		NEGQ(w.code)
	}
	XORQ(w.scales, w.scales)
}

// widenQuantised loads a chunk of a token's value, all of one group.
func (f *flavour) widenQuantised(w weigher, v0 reg.Register, v []reg.VecPhysical) {
	scale, minimum := f.regs[31], f.regs[30]
	halfScale(Mem{Base: v0, Index: w.scales, Scale: 1}, scale)
	if w.e.name == "I8" {
		for i := range v {
			VPMOVSXBD(Mem{Base: v0, Index: w.code, Scale: 1, Disp: 16 * i}, v[i])
			VCVTDQ2PS(v[i], v[i])
			VMULPS(scale, v[i], v[i])
		}
		return
	}
	halfScale(Mem{Base: v0, Index: w.scales, Scale: 1, Disp: 2}, minimum)
	nibbles := f.regs[29]
	if nibbleMask == nil {
		m := ConstData("nibble", U32(15))
		nibbleMask = &m
	}
	VPBROADCASTD(*nibbleMask, nibbles)
	for i := 0; i < len(v); i += 2 {
		VPMOVZXBD(Mem{Base: v0, Index: w.code, Scale: 1, Disp: 8 * i}, v[i])
		VPSRLD(U8(4), v[i], v[i+1])
		VPANDD(nibbles, v[i], v[i])
		for _, r := range v[i : i+2] {
			VCVTDQ2PS(r, r)
			VFMADD213PS(minimum, scale, r)
		}
	}
}

func (f *flavour) expandKeys(e element) {
	f.begin("ExpandKeys"+e.name, "func(dst, tile *byte, dim int)",
		fmt.Sprintf("ExpandKeys%s writes a quantised tile of keys as float32 [dim][16]; dim is a multiple of 4.", e.name))
	dst, tile, dim := Load(Param("dst"), GP64()), Load(Param("tile"), GP64()), Load(Param("dim"), GP64())
	codes, minima := GP64(), GP64()
	LEAQ(Mem{Base: tile, Index: dim, Scale: 2}, minima)
	codes = minima
	var nibbles reg.VecPhysical
	if e.name == "I4" {
		codes = GP64()
		LEAQ(Mem{Base: tile, Index: dim, Scale: 4}, codes)
		nibbles = f.lowNibbles()
	}
	k, scale, minimum := f.vecs(4), f.vec(), f.vec()
	Label("loop")
	f.widenCodes(e, codes, k, nibbles)
	for u := range 4 {
		halfScale(at(tile, 2*u), scale)
		if e.name == "I4" {
			halfScale(at(minima, 2*u), minimum)
			VFMADD213PS(minimum, scale, k[u])
		} else {
			VMULPS(scale, k[u], k[u])
		}
		VMOVUPS(k[u], at(dst, 64*u))
	}
	ADDQ(U8(8), tile)
	if e.name == "I4" {
		ADDQ(U8(8), minima)
	}
	ADDQ(U8(4*2*e.bits), codes)
	ADDQ(U32(256), dst)
	SUBQ(U8(4), dim)
	JNZ(LabelRef("loop"))
	f.end()
}

func (f *flavour) expandValues(e element) {
	f.begin("ExpandValues"+e.name, "func(dst, tile *byte, dim int)",
		fmt.Sprintf("ExpandValues%s writes a quantised tile of values as float32 [16][dim]; dim is a multiple of 32.", e.name))
	w := weigher{e: e, size: AllocLocal(8), dims: AllocLocal(8)}
	dst, v0 := Load(Param("dst"), GP64()), Load(Param("tile"), GP64())
	w.rowSize()
	t := GP64()
	MOVQ(U32(16), t)
	v := f.vecs(4)
	Label("token")
	w.startQuantised()
	w.startDims()
	for _, dims := range []int{64, 32} {
		Label(fmt.Sprintf("chunk%d", dims))
		CMPQ(w.dims, U8(dims))
		JLT(LabelRef(fmt.Sprintf("end%d", dims)))
		part := v[:dims/16]
		f.widenQuantised(w, v0, part)
		for i, r := range part {
			VMOVUPS(r, at(dst, 64*i))
		}
		ADDQ(U32(4*dims), dst)
		w.advance(dims)
		SUBQ(U8(dims), w.dims)
		JMP(LabelRef(fmt.Sprintf("chunk%d", dims)))
		Label(fmt.Sprintf("end%d", dims))
	}
	ADDQ(w.size, v0)
	DECQ(t)
	JNZ(LabelRef("token"))
	f.end()
}
