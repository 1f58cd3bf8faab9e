package main

import "fmt"

func init() {
	registerARM("attn_decode", "neon", func(f *armFile) {
		for _, e := range elements {
			for heads := 1; heads <= 4; heads++ {
				f.score(e, heads)
			}
			for heads := 1; heads <= 4; heads++ {
				f.weigh(e, heads)
			}
		}
		for _, e := range quantisedElements {
			f.expandKeys(e)
			f.expandValues(e)
		}
	})
}

// score is attn_decode.go's with AVX2's order of sums: one a token, in the order of dimensions.
func (f *armFile) score(e element, heads int) {
	name := fmt.Sprintf("Score%sx%d", e.name, heads)
	a := f.function(name, "func(s, q []float32, keys [][]byte, masks []uint16, dim int, next [][]byte)",
		fmt.Sprintf("%s writes q·k to s [%d][16·tiles] for tiles of 16 tokens, [dim][16] each; q is [dim][%d]. "+
			"Tokens whose mask bit is 0 score -Inf. dim is a multiple of 4.", name, heads, heads))
	s, keys, masks, tiles := a.arg("s"), a.arg("keys"), a.arg("masks"), a.arg("masks.len")
	stride, at, data, q, left := a.g(), a.g(), a.g(), a.g(), a.g()
	a.i("lsl %s, %s, #6", stride, tiles)
	low, bits := a.v(), a.vs(4)
	a.word(0xff800000, low)
	a.laneBits(bits)
	sums := make([][]int, heads)
	for h := range sums {
		sums[h] = a.vs(4)
	}
	k, qv := a.vs(4), a.vs(heads)
	a.i("cbz %s, @done", tiles)
	a.label("tile")
	a.i("ldr %s, [%s], #24", data, keys)
	for _, r := range sums {
		a.zero(r)
	}
	a.i("mov %s, %s", q, a.arg("q"))
	a.i("mov %s, %s", left, a.arg("dim"))
	a.label("dims")
	a.loadNext(qv, q)
	for u := range 4 {
		a.widen(e, k, data, 0, true)
		for h := range heads {
			n := u*heads + h
			for i := range 4 {
				a.i("fmla v%d.4s, v%d.4s, v%d.s[%d]", sums[h][i], k[i], qv[n/4], n%4)
			}
		}
	}
	a.i("subs %s, %s, #4", left, left)
	a.i("b.ne @dims")
	a.i("ld1r {v%d.8h}, [%s], #2", qv[0], masks)
	a.i("ushll v%d.4s, v%d.4h, #0", qv[0], qv[0])
	for i := range 4 {
		a.i("cmtst v%d.4s, v%d.4s, v%d.4s", k[i], qv[0], bits[i])
	}
	a.i("mov %s, %s", at, s)
	for h, r := range sums {
		for i := range 4 {
			a.i("bif v%d.16b, v%d.16b, v%d.16b", r[i], low, k[i])
		}
		a.store(r, at, 0)
		if h+1 < heads {
			a.i("add %s, %s, %s", at, at, stride)
		}
	}
	a.i("add %s, %s, #64", s, s)
	a.i("subs %s, %s, #1", tiles, tiles)
	a.i("b.ne @tile")
	a.label("done")
}

// laneBits fills four registers with the bits 0 to 15, one a lane.
func (a *armFunction) laneBits(v []int) {
	a.i("mov x17, #1")
	a.i("movk x17, #2, lsl #32")
	a.i("mov v%d.d[0], x17", v[0])
	a.i("lsl x17, x17, #2")
	a.i("mov v%d.d[1], x17", v[0])
	for i, r := range v[1:] {
		a.i("shl v%d.4s, v%d.4s, #%d", r, v[0], 4*i+4)
	}
}

// armWeigher are the registers of weigh.
type armWeigher struct {
	*armFunction
	e                          element
	heads                      int
	data, out, left            string
	row, mask, p, v, bit       string
	stride, dimBytes, rowBytes string
}

// weigh is attn_decode.go's: every number of out takes the tokens in order.
func (f *armFile) weigh(e element, heads int) {
	name := fmt.Sprintf("Weigh%sx%d", e.name, heads)
	a := f.function(name, "func(out, p []float32, values [][]byte, masks []uint16, dim int, next [][]byte)",
		fmt.Sprintf("%s adds p·v to out [%d][dim] for tiles of 16 tokens, [16][dim] each; p is [%d][16·tiles]. "+
			"Tokens whose mask bit is 0 are not read. dim is a multiple of 16.", name, heads, heads))
	w := &armWeigher{armFunction: a, e: e, heads: heads, data: a.g(), out: a.g(), left: a.g(), row: a.g(), mask: a.g(), p: a.g(), v: a.g(), bit: a.g()}
	values, masks, tiles := a.arg("values"), a.arg("masks"), a.arg("masks.len")
	w.stride, w.dimBytes, w.rowBytes = a.arg("out.len"), a.arg("p.len"), a.arg("values.len")
	a.i("lsl %s, %s, #6", w.stride, tiles)
	a.i("lsl %s, %s, #2", w.dimBytes, a.arg("dim"))
	a.i("lsl %s, %s, #%d", w.rowBytes, a.arg("dim"), log2(e.size))
	a.i("cbz %s, @done", tiles)
	a.label("tile")
	a.i("ldr %s, [%s], #24", w.data, values)
	a.i("ldrh w%s, [%s], #2", w.mask[1:], masks)
	a.i("mov %s, %s", w.out, a.arg("out"))
	a.i("mov %s, %s", w.left, a.arg("dim"))
	if most := map[int]int{1: 64, 2: 32}[heads]; most > 0 {
		w.chunk(most)
	}
	w.chunk(16)
	a.i("add %s, %s, #64", a.arg("p"), a.arg("p"))
	a.i("subs %s, %s, #1", tiles, tiles)
	a.i("b.ne @tile")
	a.label("done")
}

// chunk adds a tile's tokens to so many dimensions of out at a time, as long as there are so many.
func (w *armWeigher) chunk(dims int) {
	a, was := w.armFunction, w.vectors
	label := func(s string) string { return fmt.Sprintf("%s%d", s, dims) }
	sums := make([][]int, w.heads)
	for h := range sums {
		sums[h] = a.vs(dims / 4)
	}
	x, pv := a.vs(4), a.vs(w.heads)
	each := func(do func(h int, at string)) {
		a.i("mov %s, %s", w.v, w.out)
		for h := range sums {
			do(h, w.v)
			if h+1 < w.heads {
				a.i("add %s, %s, %s", w.v, w.v, w.dimBytes)
			}
		}
	}
	token := func(lane int) {
		for c := 0; c < dims; c += 16 {
			a.widen(w.e, x, w.v, c*w.e.size, false)
			for h := range w.heads {
				for i := range 4 {
					a.i("fmla v%d.4s, v%d.4s, v%d.s[%d]", sums[h][c/4+i], x[i], pv[h], lane)
				}
			}
		}
	}
	weights := func(size string) { // of the tokens at row
		for h := range w.heads {
			a.i("ldr %s%d, [%s]", size, pv[h], w.row)
			if h+1 < w.heads {
				a.i("add %s, %s, %s", w.row, w.row, w.stride)
			}
		}
	}
	a.label(label("chunk"))
	a.i("cmp %s, #%d", w.left, dims)
	a.i("b.lt @%s", label("end"))
	each(func(h int, at string) { a.load(sums[h], at, 0) })
	a.i("mov %s, %s", w.bit, w.mask)
	a.i("mov w17, #0xffff")
	a.i("cmp w%s, w17", w.mask[1:])
	a.i("b.ne @%s", label("sparse"))
	a.i("mov %s, %s", w.v, w.data)
	a.i("mov %s, %s", w.p, a.arg("p"))
	a.i("mov %s, #4", w.bit)
	a.label(label("dense"))
	a.i("mov %s, %s", w.row, w.p)
	weights("q")
	for lane := range 4 {
		token(lane)
		a.i("add %s, %s, %s", w.v, w.v, w.rowBytes)
	}
	a.i("add %s, %s, #16", w.p, w.p)
	a.i("subs %s, %s, #1", w.bit, w.bit)
	a.i("b.ne @%s", label("dense"))
	a.i("b @%s", label("store"))
	a.label(label("sparse"))
	a.i("cbz %s, @%s", w.bit, label("store"))
	a.i("rbit %s, %s", w.p, w.bit)
	a.i("clz %s, %s", w.p, w.p)
	a.i("sub %s, %s, #1", w.v, w.bit)
	a.i("and %s, %s, %s", w.bit, w.bit, w.v)
	a.i("madd %s, %s, %s, %s", w.v, w.p, w.rowBytes, w.data)
	a.i("add %s, %s, %s, lsl #2", w.row, a.arg("p"), w.p)
	weights("s")
	token(0)
	a.i("b @%s", label("sparse"))
	a.label(label("store"))
	each(func(h int, at string) { a.store(sums[h], at, 0) })
	a.i("add %s, %s, #%d", w.out, w.out, 4*dims)
	a.i("add %s, %s, #%d", w.data, w.data, dims*w.e.size)
	a.i("sub %s, %s, #%d", w.left, w.left, dims)
	a.i("b @%s", label("chunk"))
	a.label(label("end"))
	w.vectors = was
}

// codes16 turns 16 codes to four registers of float32: signed bytes, or the low or high halves of bytes.
func (a *armFunction) codes16(e element, codes int, v []int) {
	op := "sshll"
	if e.name == "I4" {
		op = "ushll"
	}
	a.i("%s2 v%d.8h, v%d.16b, #0", op, v[2], codes)
	a.i("%s v%d.8h, v%d.8b, #0", op, v[0], codes)
	for i := 0; i < 4; i += 2 {
		a.i("%s2 v%d.4s, v%d.8h, #0", op, v[i+1], v[i])
		a.i("%s v%d.4s, v%d.4h, #0", op, v[i], v[i])
	}
	for _, r := range v {
		a.i("scvtf v%d.4s, v%d.4s", r, r)
	}
}

// scaled multiplies codes by lane 0 of scale and, of int4, adds minimum, which is in all lanes.
func (a *armFunction) scaled(e element, v []int, scale, minimum int) {
	for _, r := range v {
		a.i("fmul v%d.4s, v%d.4s, v%d.s[0]", r, r, scale)
		if e.name == "I4" {
			a.i("fadd v%d.4s, v%d.4s, v%d.4s", r, r, minimum)
		}
	}
}

func (f *armFile) expandKeys(e element) {
	name := "ExpandKeys" + e.name
	a := f.function(name, "func(dst, tile *byte, dim int)", name+" writes a tile of keys as float32 [dim][16].")
	dst, tile, dim := a.arg("dst"), a.arg("tile"), a.arg("dim")
	codes, minima := a.g(), a.g()
	a.i("add %s, %s, %s, lsl #1", minima, tile, dim)                                  // of int4: behind the scales
	a.i("add %s, %s, %s, lsl #%d", codes, tile, dim, map[int]int{8: 1, 4: 2}[e.bits]) // behind scales, and minima
	v, c, scale, minimum, low := a.vs(4), a.vs(2), a.v(), a.v(), a.v()
	a.i("movi v%d.16b, #15", low)
	half := func(r int, from string) {
		a.i("ldr h%d, [%s], #2", r, from)
		a.i("fcvt s%d, h%d", r, r)
	}
	a.label("dim")
	half(scale, tile)
	if e.name == "I4" {
		half(minimum, minima)
		a.i("dup v%d.4s, v%d.s[0]", minimum, minimum)
		a.i("ldr d%d, [%s], #8", c[0], codes)
		a.i("ushr v%d.8b, v%d.8b, #4", c[1], c[0])
		a.i("and v%d.8b, v%d.8b, v%d.8b", c[0], c[0], low)
		a.i("mov v%d.d[1], v%d.d[0]", c[0], c[1])
	} else {
		a.i("ldr q%d, [%s], #16", c[0], codes)
	}
	a.codes16(e, c[0], v)
	a.scaled(e, v, scale, minimum)
	a.storeNext(v, dst)
	a.i("subs %s, %s, #1", dim, dim)
	a.i("b.ne @dim")
}

func (f *armFile) expandValues(e element) {
	name := "ExpandValues" + e.name
	a := f.function(name, "func(dst, tile *byte, dim int)", name+" writes a tile of values as float32 [16][dim]. dim is a multiple of 32.")
	dst, tile, dim := a.arg("dst"), a.arg("tile"), a.arg("dim")
	tokens, head, left, group := a.g(), a.g(), a.g(), a.g()
	v, c, scale, minimum, low := a.vs(4), a.vs(2), a.v(), a.v(), a.v()
	a.i("movi v%d.16b, #15", low)
	a.i("add %s, %s, #63", head, dim) // bytes of a token's scales
	a.i("lsr %s, %s, #6", head, head)
	size := a.g()
	a.i("lsl %s, %s, #%d", size, head, map[int]int{8: 1, 4: 2}[e.bits])
	a.i("mov %s, #16", tokens)
	a.label("token")
	a.i("mov %s, %s", head, tile)
	a.i("add %s, %s, %s", tile, tile, size)
	a.i("mov %s, %s", left, dim)
	a.label("group")
	a.i("ldr h%d, [%s], #2", scale, head)
	a.i("fcvt s%d, h%d", scale, scale)
	if e.name == "I4" {
		a.i("ldr h%d, [%s], #2", minimum, head)
		a.i("fcvt s%d, h%d", minimum, minimum)
		a.i("dup v%d.4s, v%d.s[0]", minimum, minimum)
	}
	a.i("mov %s, #2", group)
	a.label("half") // 32 dimensions
	if e.name == "I4" {
		a.i("ldr q%d, [%s], #16", c[0], tile)
		a.i("ushr v%d.16b, v%d.16b, #4", c[1], c[0])
		a.i("and v%d.16b, v%d.16b, v%d.16b", c[0], c[0], low)
	} else {
		a.loadNext(c, tile)
	}
	for _, r := range c {
		a.codes16(e, r, v)
		a.scaled(e, v, scale, minimum)
		a.storeNext(v, dst)
	}
	a.i("subs %s, %s, #32", left, left)
	a.i("b.eq @next")
	a.i("subs %s, %s, #1", group, group)
	a.i("b.ne @half")
	a.i("b @group")
	a.label("next")
	a.i("subs %s, %s, #1", tokens, tokens)
	a.i("b.ne @token")
}
