package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// blockTokens is the number of keys of a block of the blockwise kernels.
const blockTokens = 128

func init() {
	for _, make := range flavours {
		f := make()
		register("attn_softmax", f.isa, func() {
			f.softmaxBlock("Fast", false, false)
			f.softmaxBlock("Exact", true, false)
			f.columnSums("", false)
			f.expSum()
		})
		if f.wide() {
			register("attn_softmax_bf16", f.isa, func() {
				f.softmaxBlock("BF16", false, true)
				f.columnSums("BF16", true)
			})
		}
	}
}

// softmaxBlock emits the online softmax of one block of keys for many rows.
func (f *flavour) softmaxBlock(name string, exact, bf16 bool) {
	signature, where := "func(s *float32, rows int, m, l, corr *float32)", "in place"
	if bf16 {
		signature, where = "func(s *float32, p *uint16, rows int, m, l, corr *float32)", "to p as bf16"
	}
	base := "2"
	if exact {
		base = "e"
	}
	f.begin("SoftmaxBlock"+name, signature, fmt.Sprintf("SoftmaxBlock%s takes rows of %d scores s into their online softmax to base %s: "+
		"m [rows] becomes the largest score so far, corr [rows] what earlier sums must be multiplied by, the scores' weights "+
		"go %s, and their sum over lanes joins l [rows][16].", name, blockTokens, base, where))
	s, rows := Load(Param("s"), GP64()), Load(Param("rows"), GP64())
	m, l, corr := Load(Param("m"), GP64()), Load(Param("l"), GP64()), Load(Param("corr"), GP64())
	var p reg.Register
	if bf16 {
		p = Load(Param("p"), GP64())
	}
	x := f.newExponential(exact)
	x.hidden = true
	top, sum, t := f.vec(), f.vec(), f.vecs(x.temps())
	v := f.vecs(4)
	count := blockTokens / f.lanes

	TESTQ(rows, rows)
	JZ(LabelRef("done"))
	Label("row")
	VMOVUPS(at(s, 0), top)
	for i := 1; i < count; i++ {
		VMAXPS(at(s, i*f.bytes()), top, top)
	}
	f.lanesMax(top, t[0])
	VBROADCASTSS(at(m, 0), v[0])
	VMAXPS(v[0], top, top)
	VMOVSS(top.AsX(), at(m, 0))
	VSUBPS(top, v[0], v[0])
	x.apply(v[0], t)
	VMOVSS(v[0].AsX(), at(corr, 0))
	if f.wide() {
		VMULPS(at(l, 0), v[0], sum)
	} else { // two registers of lanes become one
		VMOVUPS(at(l, 0), sum)
		VADDPS(at(l, 32), sum, sum)
		VMULPS(v[0], sum, sum)
		f.zero(t[0])
		VMOVUPS(t[0], at(l, 32))
	}
	for i := 0; i < count; i++ {
		e := v[i%4]
		VMOVUPS(at(s, i*f.bytes()), e)
		VSUBPS(top, e, e)
		x.apply(e, t)
		VADDPS(e, sum, sum)
		if !bf16 {
			VMOVUPS(e, at(s, i*f.bytes()))
		} else if i%2 == 1 {
			narrow2(v[i%4-1], e, e)
			VMOVUPS(e, at(p, i/2*64))
		}
	}
	VMOVUPS(sum, at(l, 0))
	ADDQ(U32(4*blockTokens), s)
	if bf16 {
		ADDQ(U32(2*blockTokens), p)
	}
	ADDQ(U8(4), m)
	ADDQ(U8(4), corr)
	ADDQ(U8(64), l)
	DECQ(rows)
	JNZ(LabelRef("row"))
	Label("done")
	f.end()
}

// columnSums emits the sum of weighted rows. AVX-512 keeps all sums in registers.
func (f *flavour) columnSums(name string, bf16 bool) {
	number, bytes := "float32", 4
	if bf16 {
		number, bytes = "uint16", 2
	}
	f.begin("ColumnSums"+name, "func(p *"+number+", w *float32, stride, rows int, sums *float32)", fmt.Sprintf("ColumnSums%s adds w·p "+
		"of every stride-th of rows of %d numbers p to sums [%d].", name, blockTokens, blockTokens))
	p, w := Load(Param("p"), GP64()), Load(Param("w"), GP64())
	stride, rows := Load(Param("stride"), GP64()), Load(Param("rows"), GP64())
	sums := Load(Param("sums"), GP64())
	step := GP64()
	IMUL3Q(U32(blockTokens*bytes), stride, step)
	SHLQ(U8(2), stride)
	factor, v := f.vec(), f.vecs(2)
	var acc []reg.VecPhysical
	if f.wide() {
		acc = f.vecs(blockTokens / f.lanes)
		for i, a := range acc {
			VMOVUPS(at(sums, i*f.bytes()), a)
		}
	}
	TESTQ(rows, rows)
	JZ(LabelRef("done"))
	Label("row")
	VBROADCASTSS(at(w, 0), factor)
	for i := 0; i < blockTokens/f.lanes; i++ {
		e := v[i%2]
		switch {
		case bf16:
			VPMOVZXWD(at(p, i*f.bytes()/2), e)
			VPSLLD(U8(16), e, e)
			VFMADD231PS(e, factor, acc[i])
		case f.wide():
			VFMADD231PS(at(p, i*f.bytes()), factor, acc[i])
		default:
			VMOVUPS(at(sums, i*f.bytes()), e)
			VFMADD231PS(at(p, i*f.bytes()), factor, e)
			VMOVUPS(e, at(sums, i*f.bytes()))
		}
	}
	ADDQ(step, p)
	ADDQ(stride, w)
	DECQ(rows)
	JNZ(LabelRef("row"))
	Label("done")
	for i, a := range acc {
		VMOVUPS(a, at(sums, i*f.bytes()))
	}
	f.end()
}

func (f *flavour) expSum() {
	f.begin("ExpSum", "func(x []float32, m float32) float32", "ExpSum replaces x by e^(x-m) and returns the sum; len(x) is a multiple of 16.")
	x, n := Load(Param("x").Base(), GP64()), Load(Param("x").Len(), GP64())
	mAddr, err := Param("m").Resolve()
	if err != nil {
		panic(err)
	}
	if !f.wide() {
		f.expSumNarrow(x, n, mAddr.Addr)
		return
	}
	e := f.newExponential(true)
	e.hidden = true
	top, t := f.vec(), f.vecs(e.temps())
	sums, v := f.vecs(2), f.vecs(2)
	VBROADCASTSS(mAddr.Addr, top)
	f.zero(sums[0])
	f.zero(sums[1])
	Label("loop")
	SUBQ(U8(16), n)
	JL(LabelRef("done"))
	VMOVUPS(at(x, 0), v[0])
	VSUBPS(top, v[0], v[0])
	e.apply(v[0], t)
	VADDPS(v[0], sums[0], sums[0])
	VMOVUPS(v[0], at(x, 0))
	ADDQ(U8(64), x)
	JMP(LabelRef("loop"))
	Label("done")
	VADDPS(sums[1], sums[0], sums[0])
	f.lanesSum(sums[0], t[0])
	Store(sums[0].AsX(), ReturnIndex(0))
	f.end()
}

// expSumNarrow takes four registers at a time, by turns: an exponential is a chain of some 55 cycles, of which the processor sees
// only a few ahead when they come one after the other. The sums are those of two at a time.
func (f *flavour) expSumNarrow(x, n reg.Register, m Mem) {
	top, sums := f.vec(), f.vecs(2)
	v := [3][]reg.VecPhysical{f.vecs(4), f.vecs(4), f.vecs(4)}
	VBROADCASTSS(m, top)
	f.zero(sums[0])
	f.zero(sums[1])
	some := func(count int) {
		r, n, p := v[0][:count], v[1][:count], v[2][:count]
		for i := range r {
			VMOVUPS(at(x, i*f.bytes()), r[i])
		}
		for i := range r {
			VSUBPS(top, r[i], r[i])
		}
		exponentials(r, n, p)
		for i := range p {
			VADDPS(p[i], sums[i%2], sums[i%2])
			VMOVUPS(p[i], at(x, i*f.bytes()))
		}
	}
	Label("loop")
	SUBQ(U8(32), n)
	JL(LabelRef("rest"))
	some(4)
	SUBQ(I8(-128), x)
	JMP(LabelRef("loop"))
	Label("rest")
	ADDQ(U8(32), n)
	JZ(LabelRef("done"))
	some(2)
	Label("done")
	VADDPS(sums[1], sums[0], sums[0])
	f.lanesSum(sums[0], top)
	Store(sums[0].AsX(), ReturnIndex(0))
	f.end()
}
