package main

import (
	"fmt"
	"math"
)

func init() {
	registerARM("attn_block", "neon", func(f *armFile) {
		for _, e := range elements {
			f.packKeys(e)
			f.packValues(e)
		}
		f.gemm()
		f.softmaxBlock("Fast", "2", false)
		f.softmaxBlock("Exact", "e", true)
		f.columnSums()
		f.expSum()
	})
}

func (f *armFile) packKeys(e element) {
	a := f.function("PackKeys"+e.name, "func(dst *float32, tile *byte, dim int)",
		"PackKeys"+e.name+" copies a tile of keys [dim][16] to 16 columns of a panel [dim][64].")
	v, dim := a.vs(4), a.arg("dim")
	a.label("dim")
	a.widen(e, v, a.arg("tile"), 0, true)
	a.store(v, a.arg("dst"), 0)
	a.i("add %s, %s, #256", a.arg("dst"), a.arg("dst"))
	a.i("subs %s, %s, #1", dim, dim)
	a.i("b.ne @dim")
}

func (f *armFile) packValues(e element) {
	a := f.function("PackValues"+e.name, "func(dst *float32, tile *byte, dim, panelBytes int)",
		"PackValues"+e.name+" copies a tile of values [16][dim] to 16 rows of panels [tokens][64], panelBytes apart; dim is a multiple of 16.")
	dst, tile, dim, next := a.arg("dst"), a.arg("tile"), a.arg("dim"), a.arg("panelBytes")
	size, column, from, to, left := a.g(), a.g(), a.g(), a.g(), a.g()
	v := a.vs(4)
	a.i("lsl %s, %s, #%d", size, dim, log2(e.size))
	a.i("sub %s, %s, #192", next, next)
	a.i("mov %s, #0", column)
	a.label("column")
	a.i("mov %s, %s", from, tile)
	a.i("mov %s, %s", to, dst)
	a.i("mov %s, #16", left)
	a.label("token")
	a.widen(e, v, from, 0, false)
	a.store(v, to, 0)
	a.i("add %s, %s, %s", from, from, size)
	a.i("add %s, %s, #256", to, to)
	a.i("subs %s, %s, #1", left, left)
	a.i("b.ne @token")
	a.i("add %s, %s, #%d", tile, tile, 16*e.size)
	a.i("add %s, %s, #16", column, column)
	a.i("tst %s, #63", column)
	a.i("b.eq @panel")
	a.i("add %s, %s, #64", dst, dst)
	a.i("b @more")
	a.label("panel")
	a.i("add %s, %s, %s", dst, dst, next)
	a.label("more")
	a.i("cmp %s, %s", column, dim)
	a.i("b.lt @column")
}

// gemm is attn_gemm.go's, number for number: 4 rows by 16 columns, then rows one by one.
func (f *armFile) gemm() {
	a := f.function("GemmF32", "func(c *float32, cBytes int, a *float32, aBytes int, b *float32, k, rows int, scale *float32)",
		"GemmF32 computes c[r] = scale[r]·c[r] + a[r]·b for rows of 64 columns; b is a panel [k][64]. A nil scale is all "+
			"zeros, c is then not read. cBytes and aBytes are between rows. Every row is summed in the order of k.")
	c, cBytes, x, xBytes := a.arg("c"), a.arg("cBytes"), a.arg("a"), a.arg("aBytes")
	rows, scale := a.arg("rows"), a.arg("scale")
	a.label("four")
	a.i("cmp %s, #4", rows)
	a.i("b.lt @rest")
	a.gemmRows(4)
	a.i("add %s, %s, %s, lsl #2", c, c, cBytes)
	a.i("add %s, %s, %s, lsl #2", x, x, xBytes)
	a.i("cbz %s, @nil4", scale)
	a.i("add %s, %s, #16", scale, scale)
	a.label("nil4")
	a.i("sub %s, %s, #4", rows, rows)
	a.i("b @four")
	a.label("rest")
	a.i("cbz %s, @done", rows)
	a.gemmRows(1)
	a.i("add %s, %s, %s", c, c, cBytes)
	a.i("add %s, %s, %s", x, x, xBytes)
	a.i("cbz %s, @nil1", scale)
	a.i("add %s, %s, #4", scale, scale)
	a.label("nil1")
	a.i("sub %s, %s, #1", rows, rows)
	a.i("b @rest")
	a.label("done")
}

func (a *armFunction) gemmRows(m int) {
	label := func(s string) string { return fmt.Sprintf("%s_%d", s, m) }
	wasV, wasG := a.vectors, a.general
	sums, w, x, s := make([][]int, m), a.vs(4), a.vs(m), a.v()
	for r := range sums {
		sums[r] = a.vs(4)
	}
	at, off, b, left := a.g(), a.g(), a.g(), a.g()
	rows := a.gs(m)
	eachRow := func(do func(r int)) {
		a.i("add %s, %s, %s", at, a.arg("c"), off)
		for r := range m {
			do(r)
			if r+1 < m {
				a.i("add %s, %s, %s", at, at, a.arg("cBytes"))
			}
		}
	}
	column := func(lane int) {
		a.load(w, b, 0)
		a.i("add %s, %s, #256", b, b)
		for r := range m {
			for i := range 4 {
				a.i("fmla v%d.4s, v%d.4s, v%d.s[%d]", sums[r][i], w[i], x[r], lane)
			}
		}
	}
	a.i("mov %s, #0", off)
	a.label(label("pass"))
	for r := range m {
		a.zero(sums[r])
	}
	a.i("cbz %s, @%s", a.arg("scale"), label("start"))
	eachRow(func(r int) {
		a.i("ldr s%d, [%s, #%d]", s, a.arg("scale"), 4*r)
		a.load(sums[r], at, 0)
		for _, v := range sums[r] {
			a.i("fmul v%d.4s, v%d.4s, v%d.s[0]", v, v, s)
		}
	})
	a.label(label("start"))
	a.i("add %s, %s, %s", b, a.arg("b"), off)
	a.i("mov %s, %s", rows[0], a.arg("a"))
	for r := 1; r < m; r++ {
		a.i("add %s, %s, %s", rows[r], rows[r-1], a.arg("aBytes"))
	}
	a.i("subs %s, %s, #4", left, a.arg("k"))
	a.i("b.lt @%s", label("few"))
	a.label(label("k4"))
	for r := range m {
		a.i("ldr q%d, [%s], #16", x[r], rows[r])
	}
	for lane := range 4 {
		column(lane)
	}
	a.i("subs %s, %s, #4", left, left)
	a.i("b.ge @%s", label("k4"))
	a.label(label("few"))
	a.i("adds %s, %s, #4", left, left)
	a.i("b.eq @%s", label("store"))
	a.label(label("k1"))
	for r := range m {
		a.i("ldr s%d, [%s], #4", x[r], rows[r])
	}
	column(0)
	a.i("subs %s, %s, #1", left, left)
	a.i("b.ne @%s", label("k1"))
	a.label(label("store"))
	eachRow(func(r int) { a.store(sums[r], at, 0) })
	a.i("add %s, %s, #64", off, off)
	a.i("cmp %s, #256", off)
	a.i("b.ne @%s", label("pass"))
	a.vectors, a.general = wasV, wasG
}

// softmaxBlock is attn_softmax.go's; the sums of l are kept in 16 lanes.
func (f *armFile) softmaxBlock(name, base string, exact bool) {
	a := f.function("SoftmaxBlock"+name, "func(s *float32, rows int, m, l, corr *float32)", fmt.Sprintf(
		"SoftmaxBlock%s takes rows of %d scores s into their online softmax to base %s: m [rows] becomes the largest score so far, "+
			"corr [rows] what earlier sums must be multiplied by, the scores' weights go in place, and their sum over lanes joins l [rows][16].", name, blockTokens, base))
	s, rows, m, l, corr := a.arg("s"), a.arg("rows"), a.arg("m"), a.arg("l"), a.arg("corr")
	at, left := a.g(), a.g()
	e := a.exponential(exact)
	top, sums := a.v(), a.vs(4)
	v, t := a.vs(2), a.temps(2)
	most := append(append([]int(nil), v...), t[0]...)
	x := append(append([]int(nil), t[1]...), t[2]...)
	a.i("cbz %s, @done", rows)
	a.label("row")
	a.i("mov %s, %s", at, s)
	a.loadNext(most, at)
	a.i("mov %s, #%d", left, blockTokens/16-1)
	a.label("top")
	a.loadNext(x, at)
	a.each("fmax v%d.4s, v%d.4s, v%d.4s", most, most, x)
	a.i("subs %s, %s, #1", left, left)
	a.i("b.ne @top")
	a.largest(most)
	a.i("ldr s%d, [%s]", x[0], m)
	a.i("fmax s%d, s%d, s%d", most[0], most[0], x[0])
	a.i("str s%d, [%s], #4", most[0], m)
	a.i("dup v%d.4s, v%d.s[0]", top, most[0])
	a.i("fsub s%d, s%d, s%d", v[0], x[0], top)
	e.apply(v[:1], t)
	a.i("str s%d, [%s], #4", v[0], corr)
	a.load(sums, l, 0)
	for _, r := range sums {
		a.i("fmul v%d.4s, v%d.4s, v%d.s[0]", r, r, v[0])
	}
	a.i("mov %s, #%d", left, blockTokens/16)
	a.label("weights")
	for i := 0; i < 4; i += 2 {
		a.load(v, s, 0)
		a.each("fsub v%d.4s, v%d.4s, v%d.4s", v, v, []int{top, top})
		e.apply(v, t)
		a.each("fadd v%d.4s, v%d.4s, v%d.4s", sums[i:i+2], sums[i:i+2], v)
		a.storeNext(v, s)
	}
	a.i("subs %s, %s, #1", left, left)
	a.i("b.ne @weights")
	a.storeNext(sums, l)
	a.i("subs %s, %s, #1", rows, rows)
	a.i("b.ne @row")
	a.label("done")
}

func (f *armFile) columnSums() {
	a := f.function("ColumnSums", "func(p *float32, w *float32, stride, rows int, sums *float32)",
		fmt.Sprintf("ColumnSums adds w·p of every stride-th of rows of %d numbers p to sums [%d].", blockTokens, blockTokens))
	p, w, stride, rows, sums := a.arg("p"), a.arg("w"), a.arg("stride"), a.arg("rows"), a.arg("sums")
	step, row, weight, left, pass := a.g(), a.g(), a.g(), a.g(), a.g()
	acc, v, factor := a.vs(16), a.vs(4), a.v()
	a.i("cbz %s, @done", rows)
	a.i("lsl %s, %s, #%d", step, stride, int(math.Log2(blockTokens*4)))
	a.i("lsl %s, %s, #2", stride, stride)
	a.i("mov %s, #2", pass) // 64 columns at a time
	a.label("pass")
	a.load(acc, sums, 0)
	a.i("mov %s, %s", row, p)
	a.i("mov %s, %s", weight, w)
	a.i("mov %s, %s", left, rows)
	a.label("row")
	a.i("ldr s%d, [%s]", factor, weight)
	for i := 0; i < 16; i += 4 {
		a.load(v, row, 16*i)
		for j := range 4 {
			a.i("fmla v%d.4s, v%d.4s, v%d.s[0]", acc[i+j], v[j], factor)
		}
	}
	a.i("add %s, %s, %s", row, row, step)
	a.i("add %s, %s, %s", weight, weight, stride)
	a.i("subs %s, %s, #1", left, left)
	a.i("b.ne @row")
	a.storeNext(acc, sums)
	a.i("add %s, %s, #256", p, p)
	a.i("subs %s, %s, #1", pass, pass)
	a.i("b.ne @pass")
	a.label("done")
}

func (f *armFile) expSum() {
	a := f.function("ExpSum", "func(x []float32, m float32) float32", "ExpSum replaces x by e^(x-m) and returns the sum; len(x) is a multiple of 16.")
	x, n, top := a.arg("x"), a.arg("x.len"), a.arg("m")
	a.i("dup v%s.4s, v%s.s[0]", top, top)
	e := a.exponential(true)
	sums, v, t := a.vs(4), a.vs(2), a.temps(2)
	a.zero(sums)
	a.i("cbz %s, @done", n)
	a.label("loop")
	for i := 0; i < 4; i += 2 {
		a.load(v, x, 0)
		for _, r := range v {
			a.i("fsub v%d.4s, v%d.4s, v%s.4s", r, r, top)
		}
		e.apply(v, t)
		a.each("fadd v%d.4s, v%d.4s, v%d.4s", sums[i:i+2], sums[i:i+2], v)
		a.storeNext(v, x)
	}
	a.endLoop("x.len")
	a.label("done")
	a.sumLanes(sums)
	a.returns(0, sums[0])
}
