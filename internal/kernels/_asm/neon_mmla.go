package main

func init() {
	registerARM("matmul_quantize", "i8mm", func(f *armFile) { f.quantize("Quantize", true) })
}

// Products of several rows with SMMLA, which adds the 2 by 2 products of 8 columns of two activation rows and of two weight
// rows. Vectors are of pairs: the operand of activations is rows t and t+1 by 8 columns, as Quantize wrote them; the operand
// of weights is rows r and r+1 by 8 columns, zipped from the tile's groups of 4; integer sums are in the lanes
//
//	t·r  t·(r+1)  (t+1)·r  (t+1)·(r+1)
//
// at [t/2][r/2], and finish brings them to rows.

// recordOfPairs is record.
func (d *armDotter) recordOfPairs() {
	halves, eights := 1, 4 // operands of 8 columns
	if d.super16() {
		halves, eights = 2, 2
	}
	for h := range halves {
		d.vectors = d.scratch
		d.startPairs(h)
		acts := d.vs(eights * d.T / 2)
		d.load(acts, d.act, h*eights*8*d.T)
		scratch := d.vectors
		for v := range d.V {
			d.vectors = scratch
			d.unpackPairs(h, v, func(eight, half, w int) {
				for p := range d.T / 2 {
					d.i("smmla v%d.4s, v%d.16b, v%d.16b", d.ints[p][2*v+half], acts[eight*d.T/2+p], w)
				}
			})
		}
		d.finish(h)
	}
}

// startPairs sets the integer sums to what a bias takes off, or to zero.
func (d *armDotter) startPairs(h int) {
	if !d.biased() {
		for _, row := range d.ints {
			d.zero(row)
		}
		return
	}
	was := d.vectors
	field := d.fields(d.negative(h))
	for p, sums := range d.ints {
		v, lane := field(d.negative(h), 2*p)
		op := [...]string{0: "zip1", 2: "zip2"}[lane]
		d.i("%s v%d.4s, v%d.4s, v%d.4s", op, sums[0], v, v)
		d.i("shl v%d.4s, v%d.4s, #%d", sums[0], sums[0], d.f.bias)
		for _, r := range sums[1:] {
			d.i("mov v%d.16b, v%d.16b", r, sums[0])
		}
	}
	d.vectors = was
}

// unpackPairs hands the operands of half h's weights of vector v to multiply: of the eight columns, rows 0 and 1 of the vector
// (half 0), or 2 and 3. What is zipped is still packed, so that two zips serve up to 4 operands.
func (d *armDotter) unpackPairs(h, v int, multiply func(eight, half, w int)) {
	a, b, c := d.v(), d.v(), d.v()
	var bits, tmp []int
	if offset := map[int]int{3: 128, 5: 256, 6: 256 + 64*h}[d.f.bits]; offset > 0 {
		step := map[int]int{3: 1, 5: 1, 6: 2}[d.f.bits] // from a group to the next
		bits, tmp = d.vs(2), []int{d.v()}
		d.i("ldr q%d, [%s, #%d]", a, d.planes, offset+16*v)
		d.i("ushr v%d.16b, v%d.16b, #%d", b, a, step)
		d.zip(bits[0], bits[1], a, b)
	}
	load := func(r, group int) { d.i("ldr q%d, [%s, #%d]", r, d.planes, 64*group+16*v) }
	and := func(to, from int) { d.i("and v%d.16b, v%d.16b, v%d.16b", to, from, d.low) }
	shift := func(to, from, n int) { d.i("ushr v%d.16b, v%d.16b, #%d", to, from, n) }
	done := func(eight, half, w, from, to int) {
		if bits != nil {
			d.insertFrom(bits[half], from, to, w, tmp[0])
		}
		if d.f.table != nil {
			d.i("tbl v%d.16b, {v%d.16b}, v%d.16b", w, d.table, w)
		}
		multiply(eight, half, w)
	}
	nibbles := func() { // both halves
		for i := range 2 {
			load(a, 2*i)
			load(b, 2*i+1)
			d.zip(c, b, a, b)
			for half, w := range []int{c, b} {
				and(a, w)
				done(i, half, a, 2*i, 4)
				shift(w, w, 4)
				done(i+2, half, w, 2*i+4, 4)
			}
		}
	}
	switch d.f.bits {
	case 8:
		for eight := range 4 {
			load(a, 2*eight)
			load(b, 2*eight+1)
			d.zip(c, b, a, b)
			multiply(eight, 0, c)
			multiply(eight, 1, b)
		}
	case 2, 3:
		planes := []int{h}
		if !d.super16() {
			planes = []int{0, 1}
		}
		for i, p := range planes {
			load(a, p)
			shift(b, a, 2)
			d.zip(c, b, a, b)
			for half, w := range []int{c, b} {
				pair := func(to, at int) { // the bits at 0 or 4 of w
					d.i("shl v%d.16b, v%d.16b, #%d", to, w, 6-at)
					shift(to, to, 6)
				}
				if d.f.bits == 2 || d.super16() {
					pair = func(to, at int) {
						if at > 0 {
							shift(w, w, at)
						}
						and(to, w)
					}
				}
				pair(a, 0)
				done(2*i, half, a, 4*p, 2)
				pair(w, 4)
				done(2*i+1, half, w, 4*p+2, 2)
			}
		}
	case 6, 4:
		if !d.super16() {
			nibbles()
			break
		}
		for i := range 2 {
			load(a, 2*i)
			load(b, 2*i+1)
			d.zip(c, b, a, b)
			for half, w := range []int{c, b} {
				if h == 0 {
					and(w, w)
				} else {
					shift(w, w, 4)
				}
				done(i, half, w, 4*i, 4)
			}
		}
	default:
		nibbles()
	}
}

// zip writes words 0 and 1 of x and y in turn to low, 2 and 3 to high, which may be y.
func (d *armDotter) zip(low, high, x, y int) {
	d.i("zip1 v%d.4s, v%d.4s, v%d.4s", low, x, y)
	d.i("zip2 v%d.4s, v%d.4s, v%d.4s", high, x, y)
}

// rowOfPair brings the integer sums of two rows with the weights of vector v to rows, and returns that of row t: of the even one
// first, in tmp.
func (d *armDotter) rowOfPair(t, v, tmp int) int {
	low, high := d.ints[t/2][2*v], d.ints[t/2][2*v+1]
	if t%2 == 1 {
		return high
	}
	d.i("zip1 v%d.2d, v%d.2d, v%d.2d", tmp, low, high)
	d.i("zip2 v%d.2d, v%d.2d, v%d.2d", high, low, high)
	return tmp
}
