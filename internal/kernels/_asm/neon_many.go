package main

// Products with many rows of activations, SMMLA, as matmul_many.go does with AVX2: a tile's records are spread into a panel
// once, and groups of 4 rows pass it. A part of a panel's record (there are two where scales are those of 16 columns):
//
//	of each 8 columns 8 operands of 2 rows by 8 columns as signed bytes, then 16 float32 scales, then (types with minima)
//	16 float32 minima, negative where they are subtracted
//
// A bias is taken off when weights are spread: sums of integers are exact, so results are those of the dot kernels.

// armManyFormats are the types whose kernels serve all types with as many parts and with minima or without.
var armManyFormats = []string{"Q8_0", "Q4_1", "Q3_K", "Q2_K"}

func init() {
	registerARM("matmul_many", "i8mm", func(f *armFile) {
		for _, w := range formats {
			f.spread(w)
		}
		for _, w := range formats {
			for _, name := range armManyFormats {
				if w.name == name {
					f.many(w)
				}
			}
		}
	})
}

// spread emits the unpacking of a tile's records into a panel; first is a multiple of 8.
func (f *armFile) spread(w format) {
	name := "Spread" + w.name
	a := f.function(name, "func(panel *byte, tile *byte, first, records int)",
		name+" writes records first.. of a "+w.name+" tile as bytes and float32 scales.")
	d := &armDotter{armFunction: a, f: w, T: 0, V: 4, mmla: true, tile: a.arg("tile")}
	d.registers()
	panel, part := a.arg("panel"), w.partBytes()
	bias := -1
	if d.biased() {
		bias = a.v()
		a.i("movi v%d.16b, #%d", bias, 1<<w.bias)
	}
	d.scratch = a.vectors
	d.skip(a.arg("first"))
	a.i("mov %s, %s", d.planes, d.tile)
	a.i("mov %s, %s", d.left, a.arg("records"))
	d.eachRecord(func() {
		for h := range w.parts() {
			for v := range 4 {
				d.vectors = d.scratch
				d.unpackPairs(h, v, func(eight, half, r int) {
					if bias >= 0 {
						d.i("sub v%d.16b, v%d.16b, v%d.16b", r, r, bias)
					}
					d.i("str q%d, [%s, #%d]", r, panel, h*part+128*eight+32*v+16*half)
				})
			}
			d.vectors = d.scratch
			scale, minimum, tmp := d.vs(2), []int(nil), d.v()
			if w.min {
				minimum = d.vs(2)
			}
			at := h*part + 512/w.parts()
			for v := 0; v < 4; v += 2 {
				d.scales(h, v, scale, minimum, tmp)
				d.store(scale, panel, at+16*v)
				if !w.min {
					continue
				}
				if w.super() && !d.super16() { // finish subtracts these
					for _, r := range minimum {
						d.i("fneg v%d.4s, v%d.4s", r, r)
					}
				}
				d.store(minimum, panel, at+64+16*v)
			}
		}
		d.advance(w.recordBytes())
		d.i("add %s, %s, #%d", panel, panel, w.parts()*part)
	})
}

// skip moves tile behind its first records, a multiple of 8.
func (d *armDotter) skip(first string) {
	bytes := d.f.recordBytes()
	if d.f.super() {
		bytes = 8*bytes + d.f.headerBytes()
		d.i("lsr %s, %s, #3", first, first)
	}
	d.i("mov x17, #%d", bytes)
	d.i("madd %s, %s, x17, %s", d.tile, first, d.tile)
}

// armMany is a product of a panel with 4 rows of activations, 8 of the tile's 16 rows at a time.
type armMany struct {
	*armFunction
	f       format
	at, act string   // in the panel, moved on by half of the tile's rows, and in the activations
	sums    [][2]int // float32, [row of activations][4 rows of weights each]
	ints    [2][]int // [pair of rows of activations][pair of rows of weights]
	scratch int
}

// many emits the product of a panel with groups of 4 activation rows, which lie groupBytes apart, added to dst, whose rows are
// strideBytes apart, in the order and by the operations of dot.
func (f *armFile) many(w format) {
	name := "Many" + w.name
	a := f.function(name, "func(dst *float32, strideBytes uintptr, panel *byte, act *byte, groupBytes uintptr, records, groups int)",
		name+" adds the product of a panel and groups of 4 activation rows to dst, whose rows are strideBytes apart.")
	m := &armMany{armFunction: a, f: w, at: a.g(), act: a.g()}
	dst, stride, left := a.arg("dst"), a.arg("strideBytes"), a.g()
	rows := append([]string{dst}, a.gs(manyRows-1)...)
	for range manyRows {
		m.sums = append(m.sums, [2]int(a.vs(2)))
	}
	m.ints = [2][]int{a.vs(4), a.vs(4)}
	m.scratch = a.vectors
	a.label("group")
	for t := 1; t < manyRows; t++ {
		a.i("add %s, %s, %s", rows[t], rows[t-1], stride)
	}
	for pass := range 2 {
		for t, row := range m.sums {
			a.load(row[:], rows[t], 32*pass)
		}
		a.i("mov %s, %s", m.at, a.arg("panel"))
		a.i("mov %s, %s", m.act, a.arg("act"))
		a.i("mov %s, %s", left, a.arg("records"))
		label := [...]string{"record", "second"}[pass]
		a.label(label)
		for part := range w.parts() {
			m.multiply(part, pass)
			m.finish(part, pass)
		}
		a.i("add %s, %s, #%d", m.at, m.at, w.parts()*w.partBytes())
		a.i("add %s, %s, #%d", m.act, m.act, manyRows*actBytes)
		a.i("subs %s, %s, #1", left, left)
		a.i("b.ne @%s", label)
		for t, row := range m.sums {
			a.store(row[:], rows[t], 32*pass)
		}
	}
	a.i("add %s, %s, %s", dst, rows[manyRows-1], stride)
	a.i("add %s, %s, %s", a.arg("act"), a.arg("act"), a.arg("groupBytes"))
	a.i("subs %s, %s, #1", a.arg("groups"), a.arg("groups"))
	a.i("b.ne @group")
}

// multiply sums the products of a part.
func (m *armMany) multiply(part, pass int) {
	m.vectors = m.scratch
	for _, row := range m.ints {
		m.zero(row)
	}
	eights := 4 / m.f.parts()
	var sets [][]int
	for range 2 {
		sets = append(sets, m.vs(6))
	}
	for eight := range eights {
		w, x := sets[eight%2][:4], sets[eight%2][4:]
		m.load(x, m.act, 32*(part*eights+eight))
		m.load(w, m.at, part*m.f.partBytes()+128*eight+64*pass)
		for p, row := range m.ints {
			for r, sum := range row {
				m.i("smmla v%d.4s, v%d.16b, v%d.16b", sum, x[p], w[r])
			}
		}
	}
}

// finish is armDotter's.
func (m *armMany) finish(part, pass int) {
	m.vectors = m.scratch
	dx, tmp, scale := m.v(), m.v(), m.vs(2)
	m.i("ldr q%d, [%s, #%d]", dx, m.act, actDX(manyRows, 0))
	var factor int
	var minimum []int
	if m.f.min {
		factor, minimum = m.v(), m.vs(2)
		if m.f.parts() == 1 {
			m.i("ldr q%d, [%s, #%d]", factor, m.act, actSum(manyRows, 0))
		} else {
			m.i("ldr q%d, [%s, #%d]", factor, m.act, actNeg(manyRows, 0, 1+part))
			m.i("scvtf v%d.4s, v%d.4s", factor, factor)
			m.i("fmul v%d.4s, v%d.4s, v%d.4s", factor, factor, dx)
		}
	}
	at := part*m.f.partBytes() + 512/m.f.parts() + 32*pass
	m.load(scale, m.at, at)
	if m.f.min {
		m.load(minimum, m.at, at+64)
	}
	for t, row := range m.sums {
		for v, sum := range row {
			low, high := m.ints[t/2][2*v], m.ints[t/2][2*v+1]
			n := high
			if t%2 == 0 {
				m.i("zip1 v%d.2d, v%d.2d, v%d.2d", tmp, low, high)
				m.i("zip2 v%d.2d, v%d.2d, v%d.2d", high, low, high)
				n = tmp
			}
			m.i("scvtf v%d.4s, v%d.4s", n, n)
			m.i("fmul v%d.4s, v%d.4s, v%d.s[%d]", n, n, dx, t)
			m.i("fmla v%d.4s, v%d.4s, v%d.4s", sum, n, scale[v])
			if m.f.min {
				m.i("fmla v%d.4s, v%d.4s, v%d.s[%d]", sum, minimum[v], factor, t)
			}
		}
	}
}
