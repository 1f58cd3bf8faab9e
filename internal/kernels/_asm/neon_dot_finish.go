package main

// finish scales the integer sums of a record, or of its half h, and adds them to the results.
func (d *armDotter) finish(h int) {
	d.vectors = d.scratch
	wanted := []int{fieldDX}
	if d.f.min && !d.super16() {
		wanted = append(wanted, fieldDXSum)
	}
	negatives := d.biased() && !d.sdot && !d.mmla || d.f.min && d.super16()
	if negatives {
		wanted = append(wanted, d.negative(h))
	}
	field := d.fields(wanted...)
	var minima []int // super16: minus the half's sum times dx, of each row in lane 0
	if d.f.min && d.super16() {
		minima = d.vs(d.T)
		for t, r := range minima {
			v, lane := field(d.negative(h), t)
			x, xlane := field(fieldDX, t)
			d.i("dup v%d.4s, v%d.s[%d]", r, v, lane)
			d.i("scvtf v%d.4s, v%d.4s", r, r)
			d.i("fmul v%d.4s, v%d.4s, v%d.s[%d]", r, r, x, xlane)
		}
	}
	scale, minimum, tmp := d.vs(2), []int(nil), d.v()
	if d.f.min {
		minimum = d.vs(2)
	}
	for v := 0; v < d.V; v += 2 {
		d.scales(h, v, scale, minimum, tmp)
		for i := range 2 {
			for t := range d.T {
				sum := d.reduce(h, t, v+i, tmp, field)
				x, lane := field(fieldDX, t)
				d.i("scvtf v%d.4s, v%d.4s", sum, sum)
				d.i("fmul v%d.4s, v%d.4s, v%d.s[%d]", sum, sum, x, lane)
				d.i("fmla v%d.4s, v%d.4s, v%d.4s", d.sums[t][v+i], sum, scale[i])
				switch {
				case !d.f.min:
				case d.super16():
					d.i("fmla v%d.4s, v%d.4s, v%d.s[0]", d.sums[t][v+i], minimum[i], minima[t])
				default:
					op := "fmla"
					if d.f.super() {
						op = "fmls"
					}
					x, lane := field(fieldDXSum, t)
					d.i("%s v%d.4s, v%d.4s, v%d.s[%d]", op, d.sums[t][v+i], minimum[i], x, lane)
				}
			}
		}
	}
}

// reduce leaves the integer sums of vector v, a lane a row, in the register returned.
func (d *armDotter) reduce(h, t, v, tmp int, field func(field, t int) (int, int)) int {
	if d.sdot {
		return d.ints[t][v]
	}
	if d.mmla {
		return d.rowOfPair(t, v, tmp)
	}
	a, b := d.ints[t][2*v], d.ints[t][2*v+1]
	if !d.pairs() {
		d.i("saddlp v%d.4s, v%d.8h", a, a)
		d.i("saddlp v%d.4s, v%d.8h", b, b)
	}
	d.i("addp v%d.4s, v%d.4s, v%d.4s", a, a, b)
	if d.biased() {
		v, lane := field(d.negative(h), t)
		d.i("dup v%d.4s, v%d.s[%d]", tmp, v, lane)
		d.i("shl v%d.4s, v%d.4s, #%d", tmp, tmp, d.f.bias)
		d.i("add v%d.4s, v%d.4s, v%d.4s", a, a, tmp)
	}
	return a
}

// scales loads the float32 scales, and minima, of vectors v and v+1 for half h.
func (d *armDotter) scales(h, v int, scale, minimum []int, tmp int) {
	d.scalesAt(d.f, d.planes, d.halfs, d.byts, d.head, h, v, scale, minimum, tmp)
}

func (a *armFunction) scalesAt(f format, planes, halfs, byts, head string, h, v int, scale, minimum []int, tmp int) {
	at := f.planeBytes()
	half := func(base string, offset int, r []int) {
		a.i("ldr q%d, [%s, #%d]", r[0], base, offset+8*v)
		a.halves(r)
	}
	bytes := func(offset int, r []int, signed bool) {
		op := "ushll"
		if signed {
			op = "sshll"
		}
		a.i("ldr d%d, [%s, #%d]", r[0], byts, offset+4*v)
		a.i("%s v%d.8h, v%d.8b, #0", op, r[0], r[0])
		a.i("%s2 v%d.4s, v%d.8h, #0", op, r[1], r[0])
		a.i("%s v%d.4s, v%d.4h, #0", op, r[0], r[0])
	}
	times := func(r []int, offset int) { // times the header's float16 scales
		for i, v := range r {
			if f.shift > 0 {
				a.i("scvtf v%d.4s, v%d.4s, #%d", v, v, f.shift)
			} else {
				a.i("scvtf v%d.4s, v%d.4s", v, v)
			}
			load := "ldr d%d, [%s, #%d]"
			a.i(load, tmp, head, offset+8*(i))
			a.i("fcvtl v%d.4s, v%d.4h", tmp, tmp)
			a.i("fmul v%d.4s, v%d.4s, v%d.4s", v, v, tmp)
		}
	}
	switch f.scale {
	case "f16":
		half(halfs, at, scale)
		if f.min {
			half(halfs, at+32, minimum)
		}
	case "e8":
		bytes(at, scale, false)
		for _, r := range scale {
			a.i("shl v%d.4s, v%d.4s, #23", r, r)
		}
	case "f16x2":
		half(halfs, at+32*h, scale)
	case "f32x2":
		a.load(scale, planes, at+64*h+16*v)
	case "super32":
		bytes(at, scale, f.signed)
		times(scale, 8*v)
		if f.min {
			bytes(at+16, minimum, false)
			times(minimum, 32+8*v)
		}
	case "super16":
		bytes(at+16*h, scale, f.signed)
		if f.min {
			for i, r := range scale {
				a.i("ushr v%d.4s, v%d.4s, #4", minimum[i], r)
				a.i("shl v%d.4s, v%d.4s, #28", r, r)
				a.i("ushr v%d.4s, v%d.4s, #28", r, r)
			}
			times(minimum, 32+8*v)
		}
		times(scale, 8*v)
	}
}
