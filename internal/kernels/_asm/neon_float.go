package main

import "fmt"

func init() {
	registerARM("matmul_float", "neon", func(f *armFile) {
		f.quantize("Quantize", false)
		for _, e := range elements {
			for _, T := range []int{1, 2, 4} {
				f.panel(e, T)
			}
		}
		for _, w := range formats {
			f.unpackTile(w)
		}
	})
}

// quantize is matmul_quantize.go's, number for number. In pairs, for SMMLA, a record's int8 numbers lie 8 columns at a time,
// those of each row: of two neighbouring rows they are an operand.
func (f *armFile) quantize(name string, pairs bool) {
	doc := name + " writes activation row `row` of the `rows` that share the records at act, from 32*records floats"
	if pairs {
		doc += ", of each 8 columns row after row"
	}
	a := f.function(name, "func(act *byte, rows int, row int, x *float32, records int)", doc+".")
	act, rows, row, x, left := a.arg("act"), a.arg("rows"), a.arg("row"), a.arg("x"), a.arg("records")
	q, field, step, off := a.g(), a.g(), a.g(), a.g()
	off3, off4 := a.g(), a.g()
	if pairs {
		a.i("add %s, %s, %s, lsl #3", q, act, row)
	} else {
		a.i("add %s, %s, %s, lsl #5", q, act, row)
	}
	a.i("add %s, %s, %s, lsl #5", field, act, rows)
	a.i("add %s, %s, %s, lsl #2", field, field, row)
	a.i("mov %s, #%d", step, actBytes)
	a.i("mul %s, %s, %s", step, step, rows)
	a.i("lsl %s, %s, #2", off, rows)
	a.i("add %s, %s, %s, lsl #1", off3, off, off)
	a.i("lsl %s, %s, #4", off4, rows)
	off2 := a.g()
	a.i("lsl %s, %s, #3", off2, rows)
	v, t := a.vs(8), a.vs(4)
	inv127, f127, tiny := a.v(), a.v(), a.v()
	a.word(0x3C010204, inv127)
	a.word(0x42FE0000, f127)
	a.word(0x0D000000, tiny)
	most, scale, inverse, mask := a.v(), a.v(), a.v(), a.v()
	a.label("record")
	a.loadNext(v, x)
	// The maximum is taken over the bits as integers: a NaN beats Inf beats every number.
	for i := range 4 {
		a.i("fabs v%d.4s, v%d.4s", t[i], v[i])
	}
	for i := range 4 {
		a.i("fabs v%d.4s, v%d.4s", most, v[4+i])
		a.i("umax v%d.4s, v%d.4s, v%d.4s", t[i], t[i], most)
	}
	a.i("umax v%d.4s, v%d.4s, v%d.4s", t[0], t[0], t[1])
	a.i("umax v%d.4s, v%d.4s, v%d.4s", t[2], t[2], t[3])
	a.i("umax v%d.4s, v%d.4s, v%d.4s", t[0], t[0], t[2])
	a.i("umaxv s%d, v%d.4s", most, t[0])
	a.i("fmul s%d, s%d, s%d", scale, most, inv127)
	a.i("fdiv s%d, s%d, s%d", inverse, f127, most)
	a.i("fcmgt s%d, s%d, s%d", mask, tiny, most) // below 2^-101: 0; NaN stays
	a.i("bic v%d.16b, v%d.16b, v%d.16b", inverse, inverse, mask)
	for _, r := range v {
		a.i("fmul v%d.4s, v%d.4s, v%d.s[0]", r, r, inverse)
		a.i("fcvtns v%d.4s, v%d.4s", r, r)
	}
	for h := range 2 { // sums of 16 columns
		a.i("add v%d.4s, v%d.4s, v%d.4s", t[0], v[4*h], v[4*h+1])
		a.i("add v%d.4s, v%d.4s, v%d.4s", t[1], v[4*h+2], v[4*h+3])
		a.i("add v%d.4s, v%d.4s, v%d.4s", t[0], t[0], t[1])
		a.i("addv s%d, v%d.4s", t[2+h], t[0])
		a.i("neg v%d.2s, v%d.2s", t[2+h], t[2+h])
	}
	for i := 0; i < 8; i += 4 {
		a.i("sqxtn v%d.4h, v%d.4s", v[i], v[i])
		a.i("sqxtn2 v%d.8h, v%d.4s", v[i], v[i+1])
		a.i("sqxtn v%d.4h, v%d.4s", v[i+2], v[i+2])
		a.i("sqxtn2 v%d.8h, v%d.4s", v[i+2], v[i+3])
		a.i("sqxtn v%d.8b, v%d.8h", v[i], v[i])
		a.i("sqxtn2 v%d.16b, v%d.8h", v[i], v[i+2])
	}
	if pairs {
		for i := range 4 { // moves q by 32 bytes a row
			a.i("st1 {v%d.d}[%d], [%s], %s", v[i/2*4], i%2, q, off2)
		}
	} else {
		a.i("stp q%d, q%d, [%s]", v[0], v[4], q)
	}
	a.i("add v%d.2s, v%d.2s, v%d.2s", t[0], t[2], t[3])
	a.i("str s%d, [%s]", scale, field)
	a.i("str s%d, [%s, %s]", t[0], field, off2)
	a.i("str s%d, [%s, %s]", t[2], field, off3)
	a.i("str s%d, [%s, %s]", t[3], field, off4)
	a.i("neg v%d.2s, v%d.2s", t[0], t[0])
	a.i("scvtf s%d, s%d", t[0], t[0])
	a.i("fmul s%d, s%d, s%d", t[0], t[0], scale)
	a.i("str s%d, [%s, %s]", t[0], field, off)
	if pairs {
		a.i("add %s, %s, %s", q, q, off4)
		a.i("add %s, %s, %s", q, q, off)
	} else {
		a.i("add %s, %s, %s", q, q, step)
	}
	a.i("add %s, %s, %s", field, field, step)
	a.i("subs %s, %s, #1", left, left)
	a.i("b.ne @record")
}

// panel is matmul_panel.go's, number for number: four columns at a time as long as there are so many.
func (f *armFile) panel(e element, T int) {
	name := fmt.Sprintf("Panel%sx%d", e.name, T)
	a := f.function(name, "func(out *float32, panel *byte, x *float32, xStrideBytes uintptr, k int)",
		fmt.Sprintf("%s adds the products of a %s panel [k][16] with %d rows of x, xStrideBytes apart, to out [%d][16].", name, e.name, T, T))
	out, panel, stride, k := a.arg("out"), a.arg("panel"), a.arg("xStrideBytes"), a.arg("k")
	rows := []string{a.arg("x")}
	for t := 1; t < T; t++ {
		rows = append(rows, a.g())
		a.i("add %s, %s, %s", rows[t], rows[t-1], stride)
	}
	sums, w, x := make([][]int, T), a.vs(4), a.vs(T)
	for t := range sums {
		sums[t] = a.vs(4)
		a.zero(sums[t])
	}
	column := func(lane int) {
		a.widen(e, w, panel, 0, true)
		for t := range T {
			for i := range 4 {
				a.i("fmla v%d.4s, v%d.4s, v%d.s[%d]", sums[t][i], w[i], x[t], lane)
			}
		}
	}
	a.i("subs %s, %s, #4", k, k)
	a.i("b.lt @rest")
	a.label("four")
	for t := range T {
		a.i("ldr q%d, [%s], #16", x[t], rows[t])
	}
	for lane := range 4 {
		column(lane)
	}
	a.i("subs %s, %s, #4", k, k)
	a.i("b.ge @four")
	a.label("rest")
	a.i("adds %s, %s, #4", k, k)
	a.i("b.eq @done")
	a.label("column")
	for t := range T {
		a.i("ldr s%d, [%s], #4", x[t], rows[t])
	}
	column(0)
	a.i("subs %s, %s, #1", k, k)
	a.i("b.ne @column")
	a.label("done")
	for t := range T {
		a.load(w, out, 64*t)
		for i := range 4 {
			a.i("fadd v%d.4s, v%d.4s, v%d.4s", sums[t][i], sums[t][i], w[i])
		}
		a.store(sums[t], out, 64*t)
	}
}

// unpackTile is matmul_unpack.go's, bit for bit: w = d*u + m, two vectors of 4 rows at a time.
func (f *armFile) unpackTile(w format) {
	a := f.function("Unpack"+w.name, "func(panel *float32, tile *byte, first, records int)",
		"Unpack"+w.name+" writes columns 32*first.. of records*32 columns of a "+w.name+" tile as float32 [column][16 rows].")
	d := &armDotter{armFunction: a, f: w, T: 0, V: 2, sdot: true, tile: a.arg("tile")}
	d.registers()
	panel, pass, to := a.arg("panel"), a.g(), a.g()
	d.skip(a.arg("first"))
	a.i("mov %s, #0", pass)
	a.label("pass")
	a.i("add %s, %s, %s", d.byts, d.tile, pass)
	a.i("add %s, %s, %s, lsl #1", d.halfs, d.tile, pass)
	a.i("add %s, %s, %s, lsl #2", d.planes, d.tile, pass)
	a.i("add %s, %s, %s, lsl #2", to, panel, pass)
	a.i("mov %s, %s", d.left, a.arg("records"))
	d.eachRecord(func() {
		halves := 1
		if d.super16() {
			halves = 2
		}
		for h := range halves {
			a.vectors = d.scratch
			scale, offset, tmp := a.vs(2), a.vs(2), a.v()
			d.loadBits(h)
			minimum := []int(nil)
			if w.min {
				minimum = offset
			}
			a.scalesAt(w, d.planes, d.halfs, d.byts, d.head, h, 0, scale, minimum, tmp)
			d.offsets(scale, offset, tmp)
			u := a.vs(2)
			for _, groups := range d.steps(h) {
				for v := range 2 {
					d.unpack(groups, v, u)
					for i, g := range groups {
						d.columns(g, v, u[i], scale[v], offset[v], tmp, to)
					}
				}
			}
		}
		d.advance(w.recordBytes())
		a.i("add %s, %s, #2048", to, to)
	})
	a.i("add %s, %s, #8", pass, pass)
	a.i("cmp %s, #16", pass)
	a.i("b.ne @pass")
}

// offsets are what is added to d·u: the minima as they are, or minus the bias times d.
func (d *armDotter) offsets(scale, offset []int, tmp int) {
	switch {
	case d.f.min && d.f.super():
		for _, r := range offset {
			d.i("fneg v%d.4s, v%d.4s", r, r)
		}
	case !d.f.min && d.biased():
		d.word(0x80000000|uint32(127+d.f.bias)<<23, tmp)
		for i, r := range offset {
			d.i("fmul v%d.4s, v%d.4s, v%d.4s", r, scale[i], tmp)
		}
	}
}

// columns writes the four columns of group g, whose bytes are u, of vector v's rows.
func (d *armDotter) columns(g, v, u, scale, offset, tmp int, to string) {
	op := "ushr"
	if d.pairs() {
		op = "sshr"
	}
	x := d.v()
	for j := range 4 {
		if j < 3 {
			d.i("shl v%d.4s, v%d.4s, #%d", tmp, u, 24-8*j)
			d.i("%s v%d.4s, v%d.4s, #24", op, tmp, tmp)
		} else {
			d.i("%s v%d.4s, v%d.4s, #24", op, tmp, u)
		}
		d.i("scvtf v%d.4s, v%d.4s", tmp, tmp)
		if d.f.min || d.biased() {
			d.i("mov v%d.16b, v%d.16b", x, offset)
			d.i("fmla v%d.4s, v%d.4s, v%d.4s", x, tmp, scale)
		} else {
			d.i("fmul v%d.4s, v%d.4s, v%d.4s", x, tmp, scale)
		}
		d.i("str q%d, [%s, #%d]", x, to, (4*g+j)*64+16*v)
	}
	d.vectors--
}
