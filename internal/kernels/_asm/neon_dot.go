package main

import "fmt"

func init() {
	registerARM("matmul_dot", "neon", func(f *armFile) {
		for _, w := range formats {
			f.dot(w, 1, 4, "neon")
			f.dot(w, 2, 2, "neon")
		}
	})
	registerARM("matmul_dot", "dotprod", func(f *armFile) {
		for _, w := range formats {
			f.dot(w, 1, 4, "dotprod")
			f.dot(w, 2, 4, "dotprod")
			f.dot(w, 4, 2, "dotprod")
		}
	})
	registerARM("matmul_dot", "i8mm", func(f *armFile) { // one row is SDOT's
		for _, w := range formats {
			f.dot(w, 2, 4, "i8mm")
			f.dot(w, 4, 2, "i8mm")
		}
	})
}

// armDotter multiplies a tile with T rows of activations as matmul_dot.go says, in the same order of the same float32
// operations, so that its results are those of AVX2 and AVX-512 bit for bit. V vectors of 4 weight rows are taken at a time,
// 4/V passes a tile. A vector of weights is 4 rows by 4 columns, a group, and meets the group's 4 activations of a row:
//
//	i8mm     SMMLA, 1 operation for 32 multiply-adds, of two rows of weights by two of activations (neon_mmla.go)
//	dotprod  SDOT by element, 1 operation for 16 multiply-adds
//	neon     SMLAL and SMLAL2 of a broadcast group into 16 bits, widened once a record (twice of 6 bits, where two groups
//	         of signed bytes are all that 16 bits hold: each second group)
type armDotter struct {
	*armFunction
	f    format
	T, V int
	sdot bool
	mmla bool

	tile                   string // unmoved
	planes, halfs, byts    string // where the record's planes, float16 scales and byte scales of the pass lie
	act, left, inner, head string

	sums  [][]int // float32 results, [T][V]
	ints  [][]int // integer sums; without dot products [T][2V], of rows 0 and 1, 2 and 3; with mmla [T/2][2V]
	low   int     // mask of the low bits
	extra int     // mask of the bits of the second plane
	table int

	scratch int // first vector register of the phases below
	q       [][2]int
	bits    []int // second plane
}

func (f *armFile) dot(w format, T, V int, isa string) {
	name := fmt.Sprintf("Dot%sx%d", w.name, T)
	a := f.function(name, "func(dst *float32, strideBytes uintptr, tile *byte, act *byte, records int)",
		fmt.Sprintf("%s multiplies a %s tile of 16 rows with %d activation rows; dst rows are strideBytes apart.", name, w.name, T))
	d := &armDotter{armFunction: a, f: w, T: T, V: V, sdot: isa == "dotprod", mmla: isa == "i8mm", tile: a.arg("tile")}
	d.registers()
	dst, stride := a.arg("dst"), a.arg("strideBytes")
	pass := a.g()
	if V < 4 {
		a.i("mov %s, #0", pass)
	}
	a.label("pass")
	a.i("mov %s, %s", d.planes, d.tile)
	if V < 4 {
		a.i("add %s, %s, %s", d.byts, d.tile, pass)
		a.i("add %s, %s, %s, lsl #1", d.halfs, d.tile, pass)
		a.i("add %s, %s, %s, lsl #2", d.planes, d.tile, pass)
	}
	a.i("mov %s, %s", d.act, a.arg("act"))
	a.i("mov %s, %s", d.left, a.arg("records"))
	for _, row := range d.sums {
		a.zero(row)
	}
	d.eachRecord(func() {
		if d.mmla {
			d.recordOfPairs()
		} else {
			d.record()
		}
		d.advance(w.recordBytes())
		a.i("add %s, %s, #%d", d.act, d.act, T*actBytes)
	})
	at := a.g()
	a.i("mov %s, %s", at, dst)
	for t, row := range d.sums {
		a.store(row, at, 0)
		if t+1 < T {
			a.i("add %s, %s, %s", at, at, stride)
		}
	}
	if V < 4 {
		a.i("add %s, %s, #%d", dst, dst, 16*V)
		a.i("add %s, %s, #%d", pass, pass, 4*V)
		a.i("cmp %s, #16", pass)
		a.i("b.ne @pass")
	}
}

// eachRecord is the loop over the records left of all columns; body moves on from one to the next.
func (d *armDotter) eachRecord(body func()) {
	if d.f.super() {
		d.label("super")
		d.i("mov %s, %s", d.head, d.halfs)
		d.advance(d.f.headerBytes())
		d.i("mov %s, #8", d.inner)
	}
	d.label("record")
	body()
	if d.f.super() {
		d.i("subs %s, %s, #1", d.inner, d.inner)
		d.i("b.ne @record")
		d.i("subs %s, %s, #8", d.left, d.left)
		d.i("b.ne @super")
	} else {
		d.i("subs %s, %s, #1", d.left, d.left)
		d.i("b.ne @record")
	}
}

func (d *armDotter) registers() {
	a := d.armFunction
	d.act, d.left, d.inner, d.head = a.g(), a.g(), a.g(), a.g()
	d.planes = a.g()
	d.halfs, d.byts = d.planes, d.planes
	if d.V < 4 {
		d.halfs, d.byts = a.g(), a.g()
	}
	for t := range d.T {
		d.sums = append(d.sums, a.vs(d.V))
		switch {
		case d.sdot:
			d.ints = append(d.ints, a.vs(d.V))
		case !d.mmla || t%2 == 0:
			d.ints = append(d.ints, a.vs(2*d.V))
		}
	}
	mask := func(low, extra byte) {
		d.low = a.v()
		a.i("movi v%d.16b, #%d", d.low, low)
		if extra != 0 {
			d.extra = a.v()
			a.i("movi v%d.16b, #%d", d.extra, extra)
		}
	}
	switch d.f.bits {
	case 2:
		mask(0x03, 0)
	case 3:
		if d.mmla && !d.super16() { // no register is left for the low one
			d.extra = a.v()
			a.i("movi v%d.16b, #4", d.extra)
		} else {
			mask(0x03, 0x04)
		}
	case 4:
		mask(0x0f, 0)
	case 5:
		mask(0x0f, 0x10)
	case 6:
		mask(0x0f, 0x30)
	}
	if t := d.f.table; t != nil {
		d.table = a.v()
		d.byteTable(t, d.table)
	}
	d.scratch = a.vectors
}

// byteTable fills a register with 16 bytes.
func (a *armFunction) byteTable(t *[16]int8, v int) {
	for i := 0; i < 16; i += 8 {
		for j := 0; j < 8; j += 2 {
			op := "movk"
			if j == 0 {
				op = "movz"
			}
			a.i("%s x17, #%#x, lsl #%d", op, uint16(uint8(t[i+j]))|uint16(uint8(t[i+j+1]))<<8, 8*j)
		}
		a.i("mov v%d.d[%d], x17", v, i/8)
	}
}

func (d *armDotter) advance(n int) {
	d.i("add %s, %s, #%d", d.planes, d.planes, n)
	if d.V < 4 {
		d.i("add %s, %s, #%d", d.halfs, d.halfs, n)
		d.i("add %s, %s, #%d", d.byts, d.byts, n)
	}
}

func (d *armDotter) super16() bool { return d.f.parts() == 2 }

// pairs says that 16 bits hold the products of two groups only, and that weights are signed.
func (d *armDotter) pairs() bool { return d.f.bias == 7 }

// biased says that the weights are unsigned and the sums lack a multiple of the activations' sum.
func (d *armDotter) biased() bool { return d.f.bias >= 0 && d.f.bias != 7 }

func (d *armDotter) record() {
	halves := 1
	if d.super16() {
		halves = 2
	}
	for h := range halves {
		d.vectors = d.scratch
		d.start(h)
		d.loadActivations(h)
		d.loadBits(h)
		w := d.vs(2)
		var dup [2][]int
		if !d.sdot {
			dup = [2][]int{d.vs(d.T), d.vs(d.T)}
		}
		first := true
		for _, groups := range d.steps(h) {
			if !d.sdot {
				for i, g := range groups {
					for t, v := range dup[i] {
						d.i("dup v%d.4s, v%d.s[%d]", v, d.q[t][g/4], g%4)
					}
				}
			}
			if d.sdot && d.f.bits == 8 {
				d.whole(groups, w)
				continue
			}
			for v := range d.V {
				d.unpack(groups, v, w)
				d.multiply(groups, v, w, dup, first)
			}
			first = false
		}
		d.finish(h)
	}
}

// whole multiplies groups of whole bytes, two vectors loaded by an instruction.
func (d *armDotter) whole(groups []int, w []int) {
	for _, g := range groups {
		for v := 0; v < d.V; v += 2 {
			d.load(w, d.planes, 64*g+16*v)
			for i := range 2 {
				for t := range d.T {
					d.i("sdot v%d.4s, v%d.16b, v%d.4b[%d]", d.ints[t][v+i], w[i], d.q[t][g/4], g%4)
				}
			}
		}
	}
}

// steps are the groups of a half that are unpacked together: the low and the high nibbles of a vector.
func (d *armDotter) steps(h int) (steps [][]int) {
	switch {
	case d.super16() && d.pairs() && !d.sdot:
		steps = [][]int{{4 * h, 4*h + 1}, {4*h + 2, 4*h + 3}}
	case d.super16():
		for g := 4 * h; g < 4*h+4; g++ {
			steps = append(steps, []int{g})
		}
	case d.f.bits == 8:
		for g := 0; g < 8; g += 2 {
			steps = append(steps, []int{g, g + 1})
		}
	case d.sdot && d.f.bits < 4:
		for g := range 8 {
			steps = append(steps, []int{g})
		}
	default:
		for g := range 4 {
			steps = append(steps, []int{g, g + 4})
		}
	}
	return steps
}

// start sets the integer sums to what a bias takes off, or to zero.
func (d *armDotter) start(h int) {
	if !d.sdot {
		if d.pairs() {
			for _, row := range d.ints {
				d.zero(row)
			}
		}
		return
	}
	if !d.biased() {
		for _, row := range d.ints {
			d.zero(row)
		}
		return
	}
	was := d.vectors
	fields := d.fields(d.negative(h))
	for t, row := range d.ints {
		v, lane := fields(d.negative(h), t)
		d.i("dup v%d.4s, v%d.s[%d]", row[0], v, lane)
		d.i("shl v%d.4s, v%d.4s, #%d", row[0], row[0], d.f.bias)
		for _, r := range row[1:] {
			d.i("mov v%d.16b, v%d.16b", r, row[0])
		}
	}
	d.vectors = was
}

// Fields of an activation record, T numbers each.
const (
	fieldDX = iota
	fieldDXSum
	fieldNegative // of the whole record, then of its halves
)

// negative is the field with minus the sum of the half's activations.
func (d *armDotter) negative(h int) int {
	if d.super16() {
		return fieldNegative + 1 + h
	}
	return fieldNegative
}

// fields loads the fields named and returns where one is: register and lane.
func (d *armDotter) fields(wanted ...int) func(field, t int) (v, lane int) {
	at := map[int]int{}
	for _, field := range wanted {
		for t := range d.T {
			n := (field*d.T + t) / 4
			if _, ok := at[n]; ok {
				continue
			}
			at[n] = d.v()
			size := "q"
			switch left := 20*d.T - 16*n; {
			case left < 8:
				size = "s"
			case left < 16:
				size = "d"
			}
			d.i("ldr %s%d, [%s, #%d]", size, at[n], d.act, 32*d.T+16*n)
		}
	}
	return func(field, t int) (int, int) { return at[(field*d.T+t)/4], (field*d.T + t) % 4 }
}

// loadActivations loads the int8 numbers: of the half's groups only, where halves are finished apart.
func (d *armDotter) loadActivations(h int) {
	d.q = make([][2]int, d.T)
	for t := range d.T {
		if d.super16() {
			d.q[t][h] = d.v()
			d.i("ldr q%d, [%s, #%d]", d.q[t][h], d.act, 32*t+16*h)
			continue
		}
		d.q[t] = [2]int{d.v(), d.v()}
		d.load(d.q[t][:], d.act, 32*t)
	}
}

// loadBits loads the plane of fifth bits, of third bits, or of the half's fifth and sixth bits.
func (d *armDotter) loadBits(h int) {
	offset := map[int]int{3: 128, 5: 256, 6: 256 + 64*h}[d.f.bits]
	if offset == 0 {
		return
	}
	d.bits = d.vs(d.V)
	d.load(d.bits, d.planes, offset)
}

// unpack writes the weights of one or two groups to w.
func (d *armDotter) unpack(groups []int, v int, w []int) {
	g := groups[0]
	if len(groups) == 2 && d.f.bits != 8 && (d.f.bits < 4 || groups[1] != g+4) { // they share no vector
		for i := range groups {
			tmp := d.v()
			d.unpack(groups[i:i+1], v, []int{w[i], tmp})
			d.vectors--
		}
		return
	}
	switch d.f.bits {
	case 8:
		for i, g := range groups {
			d.i("ldr q%d, [%s, #%d]", w[i], d.planes, 64*g+16*v)
		}
		return
	case 2, 3:
		d.i("ldr q%d, [%s, #%d]", w[0], d.planes, 64*(g/4)+16*v)
		if g%4 > 0 {
			d.i("ushr v%d.16b, v%d.16b, #%d", w[0], w[0], 2*(g%4))
		}
		if g%4 < 3 {
			d.i("and v%d.16b, v%d.16b, v%d.16b", w[0], w[0], d.low)
		}
		if d.f.bits == 3 {
			d.insert(g, 2, v, w[0], w[1])
		}
		if d.f.table != nil {
			d.i("tbl v%d.16b, {v%d.16b}, v%d.16b", w[0], d.table, w[0])
		}
		return
	}
	last := len(groups) - 1
	d.i("ldr q%d, [%s, #%d]", w[last], d.planes, 64*(g%4)+16*v)
	if last == 1 || g < 4 {
		d.i("and v%d.16b, v%d.16b, v%d.16b", w[0], w[last], d.low)
	}
	if last == 1 || g >= 4 {
		d.i("ushr v%d.16b, v%d.16b, #4", w[last], w[last])
	}
	for i, g := range groups {
		switch d.f.bits {
		case 5:
			tmp := d.v()
			d.insert(g, 4, v, w[i], tmp)
			d.vectors--
		case 6:
			d.insert(2*(g%4), 4, v, w[i], w[1])
		}
		if d.f.table != nil {
			d.i("tbl v%d.16b, {v%d.16b}, v%d.16b", w[i], d.table, w[i])
		}
	}
}

// insert moves bit from of every byte of the second plane to bit to of w; the mask says how many.
func (d *armDotter) insert(from, to, v, w, tmp int) { d.insertFrom(d.bits[v], from, to, w, tmp) }

func (d *armDotter) insertFrom(src, from, to, w, tmp int) {
	switch {
	case from > to:
		d.i("ushr v%d.16b, v%d.16b, #%d", tmp, src, from-to)
		src = tmp
	case from < to:
		d.i("shl v%d.16b, v%d.16b, #%d", tmp, src, to-from)
		src = tmp
	}
	d.i("bit v%d.16b, v%d.16b, v%d.16b", w, src, d.extra)
}

// multiply adds the groups' products of vector v to every row's sums.
func (d *armDotter) multiply(groups []int, v int, w []int, dup [2][]int, first bool) {
	for t := range d.T {
		switch {
		case d.sdot:
			for i, g := range groups {
				d.i("sdot v%d.4s, v%d.16b, v%d.4b[%d]", d.ints[t][v], w[i], d.q[t][g/4], g%4)
			}
		case d.pairs():
			tmp := d.v()
			for half, upper := range []string{"", "2"} {
				b := [...]string{"8b", "16b"}[half]
				d.i("smull%s v%d.8h, v%d.%s, v%d.%s", upper, tmp, w[0], b, dup[0][t], b)
				d.i("smlal%s v%d.8h, v%d.%s, v%d.%s", upper, tmp, w[1], b, dup[1][t], b)
				d.i("sadalp v%d.4s, v%d.8h", d.ints[t][2*v+half], tmp)
			}
			d.vectors--
		default:
			for i := range groups {
				op := "smlal"
				if first && i == 0 {
					op = "smull"
				}
				d.i("%s v%d.8h, v%d.8b, v%d.8b", op, d.ints[t][2*v], w[i], dup[i][t])
				d.i("%s2 v%d.8h, v%d.16b, v%d.16b", op, d.ints[t][2*v+1], w[i], dup[i][t])
			}
		}
	}
}
