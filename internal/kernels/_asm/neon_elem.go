package main

import "fmt"

func init() {
	registerARM("elem", "neon", func(f *armFile) {
		f.loop("Add", "func(dst, x *float32, n int)", "Add adds x to dst.", []string{"dst", "x"}, "dst", nil, func(a *armFunction, v [][]int, _ []string) {
			a.each("fadd v%d.4s, v%d.4s, v%d.4s", v[0], v[0], v[1])
		})
		f.loop("Mul", "func(dst, x *float32, n int)", "Mul multiplies dst by x.", []string{"dst", "x"}, "dst", nil, func(a *armFunction, v [][]int, _ []string) {
			a.each("fmul v%d.4s, v%d.4s, v%d.4s", v[0], v[0], v[1])
		})
		f.loop("Scale", "func(x *float32, n int, s float32)", "Scale multiplies x by s.", []string{"x"}, "x", nil, func(a *armFunction, v [][]int, _ []string) {
			a.each("fmul v%d.4s, v%d.4s, v"+a.arg("s")+".s[0]", v[0], v[0])
		})
		f.loop("Axpy", "func(dst, x *float32, n int, a float32)", "Axpy adds a·x to dst.", []string{"dst", "x"}, "dst", nil, func(a *armFunction, v [][]int, _ []string) {
			a.each("fmla v%d.4s, v%d.4s, v"+a.arg("a")+".s[0]", v[0], v[1])
		})
		f.loop("MulScale", "func(dst, x, w *float32, n int, s float32)", "MulScale writes x·s·w to dst.", []string{"x", "w"}, "dst", nil, func(a *armFunction, v [][]int, _ []string) {
			a.each("fmul v%d.4s, v%d.4s, v"+a.arg("s")+".s[0]", v[0], v[0])
			a.each("fmul v%d.4s, v%d.4s, v%d.4s", v[0], v[0], v[1])
		})
		f.loop("Normalise", "func(dst, x, w, b *float32, n int, mean, s float32)", "Normalise writes (x-mean)·s·w + b to dst.", []string{"x", "w", "b"}, "dst", []string{"mean"}, func(a *armFunction, v [][]int, lanes []string) {
			a.each("fsub v%d.4s, v%d.4s, v"+lanes[0]+".4s", v[0], v[0])
			a.each("fmul v%d.4s, v%d.4s, v"+a.arg("s")+".s[0]", v[0], v[0])
			a.each("fmla v%d.4s, v%d.4s, v%d.4s", v[2], v[0], v[1])
			a.each("mov v%d.16b, v%d.16b", v[0], v[2])
		})
		f.loop("ReLU", "func(x *float32, n int)", "ReLU replaces negative numbers by 0.", []string{"x"}, "x", nil, func(a *armFunction, v [][]int, _ []string) {
			zero := a.v()
			a.i("movi v%d.4s, #0", zero)
			a.each(fmt.Sprintf("fmax v%%d.4s, v%%d.4s, v%d.4s", zero), v[0], v[0])
		})
		f.dotProduct()
		f.moment("SumSquares", "SumSquares is Σ (x-mean)², in float64.", true)
		f.moment("Sum", "Sum is Σ (x-mean), in float64.", false)
		f.extreme("Max", "Max is the largest number, NaN if any is NaN.", false)
		f.extreme("MaxAbs", "MaxAbs is the largest magnitude, NaN if any is NaN.", true)
		f.ropeNeox()
		f.ropeNorm()
		f.gated("SiluMul", "SiluMul writes gate/(1+e^-gate)·up to dst.", silu, true)
		f.gated("SigmoidMul", "SigmoidMul writes 1/(1+e^-gate)·up to dst.", sigmoid, true)
		f.gated("GeluMul", "GeluMul writes gelu(gate)·up to dst, gelu in its tanh form.", gelu, true)
		f.gated("Gelu", "Gelu replaces x by gelu(x) in its tanh form.", gelu, false)
		f.clamped()
		f.softcap()
		for _, e := range elements[1:] {
			f.widening(e)
		}
	})
}

// each adds one instruction for each place of the lists.
func (a *armFunction) each(format string, lists ...[]int) {
	for i := range lists[0] {
		var args []any
		for _, l := range lists {
			args = append(args, l[i])
		}
		a.i(format, args...)
	}
}

// loop emits an operation on n numbers, a multiple of 16 and not 0, sixteen at a time: the first operand's registers are the
// result's. wide are float parameters that are needed in all lanes.
func (f *armFile) loop(name, signature, doc string, operands []string, result string, wide []string, body func(a *armFunction, v [][]int, wide []string)) {
	a := f.function(name, signature, doc)
	var lanes []string
	for _, p := range wide {
		lanes = append(lanes, a.arg(p))
		a.i("dup v%s.4s, v%s.s[0]", a.arg(p), a.arg(p))
	}
	v := make([][]int, len(operands))
	for i := range v {
		v[i] = a.vs(4)
	}
	a.label("loop")
	for i, p := range operands {
		if p == result {
			a.load(v[i], a.arg(p), 0)
		} else {
			a.loadNext(v[i], a.arg(p))
		}
	}
	was := a.vectors
	body(a, v, lanes)
	a.vectors = was
	a.storeNext(v[0], a.arg(result))
	a.endLoop("n")
}

// endLoop goes on with the next 16 numbers.
func (a *armFunction) endLoop(count string) {
	n := a.arg(count)
	a.i("subs %s, %s, #16", n, n)
	a.i("b.ne @loop")
}

func (a *armFunction) storeNext(v []int, base string) {
	for i := 0; i < len(v); i += 2 {
		a.i("stp q%d, q%d, [%s], #32", v[i], v[i+1], base)
	}
}

// sumLanes leaves the sum of four registers' lanes in the lowest lane of the first.
func (a *armFunction) sumLanes(v []int) {
	a.i("fadd v%d.4s, v%d.4s, v%d.4s", v[0], v[0], v[1])
	a.i("fadd v%d.4s, v%d.4s, v%d.4s", v[2], v[2], v[3])
	a.i("fadd v%d.4s, v%d.4s, v%d.4s", v[0], v[0], v[2])
	a.i("faddp v%d.4s, v%d.4s, v%d.4s", v[0], v[0], v[0])
	a.i("faddp s%d, v%d.2s", v[0], v[0])
}

func (f *armFile) dotProduct() {
	a := f.function("Dot", "func(x, y *float32, n int) float32", "Dot is Σ x·y, summed in lanes.")
	sums, x, y := a.vs(4), a.vs(4), a.vs(4)
	a.zero(sums)
	a.label("loop")
	a.loadNext(x, a.arg("x"))
	a.loadNext(y, a.arg("y"))
	a.each("fmla v%d.4s, v%d.4s, v%d.4s", sums, x, y)
	a.endLoop("n")
	a.sumLanes(sums)
	a.returns(0, sums[0])
}

func (f *armFile) moment(name, doc string, square bool) {
	a := f.function(name, "func(x *float32, n int, mean float64) float64", doc)
	mean := a.arg("mean")
	sums, x, t := a.vs(4), a.vs(4), a.vs(4)
	for _, r := range sums {
		a.i("movi v%d.2d, #0", r)
	}
	a.i("dup v%s.2d, v%s.d[0]", mean, mean)
	a.label("loop")
	a.loadNext(x, a.arg("x"))
	for i := range 4 {
		for half, op := range []string{"fcvtl v%d.2d, v%d.2s", "fcvtl2 v%d.2d, v%d.4s"} {
			r, sum := t[(2*i+half)%4], sums[(2*i+half)%4]
			a.i(op, r, x[i])
			a.i("fsub v%d.2d, v%d.2d, v%s.2d", r, r, mean)
			if square {
				a.i("fmla v%d.2d, v%d.2d, v%d.2d", sum, r, r)
			} else {
				a.i("fadd v%d.2d, v%d.2d, v%d.2d", sum, sum, r)
			}
		}
	}
	a.endLoop("n")
	a.i("fadd v%d.2d, v%d.2d, v%d.2d", sums[0], sums[0], sums[1])
	a.i("fadd v%d.2d, v%d.2d, v%d.2d", sums[2], sums[2], sums[3])
	a.i("fadd v%d.2d, v%d.2d, v%d.2d", sums[0], sums[0], sums[2])
	a.i("faddp d%d, v%d.2d", sums[0], sums[0])
	a.returns(0, sums[0])
}

// extreme emits the largest number or magnitude; FMAX carries a NaN on.
func (f *armFile) extreme(name, doc string, magnitude bool) {
	a := f.function(name, "func(x *float32, n int) (top float32, nan bool)", doc)
	top, x := a.vs(4), a.vs(4)
	for _, r := range top {
		a.word(0xff800000, r)
	}
	a.label("loop")
	a.loadNext(x, a.arg("x"))
	if magnitude {
		a.each("fabs v%d.4s, v%d.4s", x, x)
	}
	a.each("fmax v%d.4s, v%d.4s, v%d.4s", top, top, x)
	a.endLoop("n")
	a.largest(top)
	a.i("fcmp s%d, s%d", top[0], top[0])
	a.i("cset w0, vs")
	a.returns(0, top[0])
	a.returns(1, 0)
}

// largest leaves the largest lane of four registers in the lowest lane of the first.
func (a *armFunction) largest(v []int) {
	a.i("fmax v%d.4s, v%d.4s, v%d.4s", v[0], v[0], v[1])
	a.i("fmax v%d.4s, v%d.4s, v%d.4s", v[2], v[2], v[3])
	a.i("fmax v%d.4s, v%d.4s, v%d.4s", v[0], v[0], v[2])
	a.i("fmaxv s%d, v%d.4s", v[0], v[0])
}

func (f *armFile) ropeNeox() {
	a := f.function("RopeNeox", "func(low, high, cos, sin *float32, n int)", "RopeNeox turns the pairs (low[i], high[i]) by the angles given, n of them.")
	x, y, c, s, t, u := a.vs(4), a.vs(4), a.vs(4), a.vs(4), a.vs(4), a.vs(4)
	a.label("loop")
	a.load(x, a.arg("low"), 0)
	a.load(y, a.arg("high"), 0)
	a.loadNext(c, a.arg("cos"))
	a.loadNext(s, a.arg("sin"))
	a.turn(x, y, c, s, t, u)
	a.storeNext(t, a.arg("low"))
	a.storeNext(u, a.arg("high"))
	a.endLoop("n")
}

// turn sets t = x·c - y·s and u = y·c + x·s, each with one fused operation.
func (a *armFunction) turn(x, y, c, s, t, u []int) {
	a.each("fmul v%d.4s, v%d.4s, v%d.4s", t, y, s)
	a.each("fneg v%d.4s, v%d.4s", t, t)
	a.each("fmla v%d.4s, v%d.4s, v%d.4s", t, x, c)
	a.each("fmul v%d.4s, v%d.4s, v%d.4s", u, x, s)
	a.each("fmla v%d.4s, v%d.4s, v%d.4s", u, y, c)
}

func (f *armFile) ropeNorm() {
	a := f.function("RopeNorm", "func(x, cos, sin *float32, n int)", "RopeNorm turns the pairs (x[2i], x[2i+1]) by the angles given, n of them.")
	v, c, s, t := a.vs(2), a.vs(1), a.vs(1), a.vs(2)
	a.label("loop")
	for range 4 {
		a.i("ld2 {v%d.4s, v%d.4s}, [%s]", v[0], v[1], a.arg("x"))
		a.loadNext(c, a.arg("cos"))
		a.loadNext(s, a.arg("sin"))
		a.turn(v[:1], v[1:], c, s, t[:1], t[1:])
		a.i("st2 {v%d.4s, v%d.4s}, [%s], #32", t[0], t[1], a.arg("x"))
	}
	a.endLoop("n")
}

func (f *armFile) widening(e element) {
	a := f.function(e.name+"ToF32", "func(dst *float32, src *uint16, n int)", e.name+"ToF32 widens exactly.")
	v := a.vs(4)
	a.label("loop")
	a.widen(e, v, a.arg("src"), 0, true)
	a.storeNext(v, a.arg("dst"))
	a.endLoop("n")
}

// armExp is attn_exp.go's exponential: the same numbers in the same order.
type armExp struct {
	a            *armFunction
	exact        bool
	low, high    int
	log2e, one   int
	ln2          [2]int
	coefficients []int // highest first, without 1 at the end
}

func (a *armFunction) exponential(exact bool) *armExp {
	e := &armExp{a: a, exact: exact}
	c := []float32{0.009582852865626742, 0.05590642492462231, 0.24024098616755005, 0.6931241933586805}
	if exact {
		e.low, e.high, e.log2e = a.constant(-104), a.constant(89), a.constant(1.44269504088896341)
		e.ln2 = [2]int{a.constant(ln2High), a.constant(ln2Low)}
		c = []float32{0.001381460187117703, 0.008368715219300773, 0.0416683878878481, 0.16666520645341695, 0.4999999344870054, 1}
	} else {
		e.low = a.constant(-150)
	}
	for _, x := range c[:len(c)-1] {
		e.coefficients = append(e.coefficients, a.constant(x))
	}
	e.one = a.constant(1)
	if exact {
		e.coefficients = append(e.coefficients, e.one)
	} else {
		e.coefficients = append(e.coefficients, a.constant(c[len(c)-1]))
	}
	return e
}

// apply replaces the numbers of v by their exponentials; three registers of scratch for each of v.
func (e *armExp) apply(v []int, t [][]int) {
	a, n, p, q := e.a, t[0][:len(v)], t[1][:len(v)], t[2][:len(v)]
	same := func(r int) []int {
		l := make([]int, len(v))
		for i := range l {
			l[i] = r
		}
		return l
	}
	a.each("fmax v%d.4s, v%d.4s, v%d.4s", v, v, same(e.low)) // NaN stays
	if e.exact {
		a.each("fmin v%d.4s, v%d.4s, v%d.4s", v, v, same(e.high))
		a.each("fmul v%d.4s, v%d.4s, v%d.4s", n, v, same(e.log2e))
		a.each("frintn v%d.4s, v%d.4s", n, n)
		for _, l := range e.ln2 {
			a.each("fmls v%d.4s, v%d.4s, v%d.4s", v, n, same(l))
		}
	} else {
		a.each("frintn v%d.4s, v%d.4s", n, v)
		a.each("fsub v%d.4s, v%d.4s, v%d.4s", v, v, n)
	}
	p, q = q, p
	for i, c := range append(e.coefficients[1:len(e.coefficients):len(e.coefficients)], e.one) {
		p, q = q, p
		a.each("mov v%d.16b, v%d.16b", q, same(c))
		last := p
		if i == 0 {
			last = same(e.coefficients[0])
		}
		a.each("fmla v%d.4s, v%d.4s, v%d.4s", q, last, v)
	}
	p, q = q, p
	// 2^n as two factors, so that results down to denormals and up to infinity come out right.
	a.each("fcvtzs v%d.4s, v%d.4s", n, n)
	a.each("sshr v%d.4s, v%d.4s, #1", q, n)
	a.each("sub v%d.4s, v%d.4s, v%d.4s", n, n, q)
	for _, r := range [][]int{n, q} {
		a.each("shl v%d.4s, v%d.4s, #23", r, r)
		a.each("add v%d.4s, v%d.4s, v%d.4s", r, r, same(e.one))
	}
	a.each("fmul v%d.4s, v%d.4s, v%d.4s", v, p, n)
	a.each("fmul v%d.4s, v%d.4s, v%d.4s", v, v, q)
}

// temps is scratch for apply on n registers.
func (a *armFunction) temps(n int) [][]int { return [][]int{a.vs(n), a.vs(n), a.vs(n)} }

// gated is elem_exp.go's, two registers at a time.
func (f *armFile) gated(name, doc string, kind gate, up bool) {
	signature := "func(x *float32, n int)"
	if up {
		signature = "func(dst, gate, up *float32, n int)"
	}
	a := f.function(name, signature, doc)
	dst := "x"
	if up {
		dst = "dst"
	}
	e := a.exponential(true)
	var c0, c1 int
	if kind == gelu {
		c0, c1 = a.constant(-0.0713548162726), a.constant(-1.5957691216057)
	}
	g, z, t := a.vs(2), a.vs(2), a.temps(2)
	a.label("loop")
	for i := range 2 {
		if up {
			a.loadNext(g, a.arg("gate"))
		} else {
			a.load(g, a.arg(dst), 32*i)
		}
		if kind == gelu {
			a.each("fmul v%d.4s, v%d.4s, v%d.4s", z, g, g)
			a.each("fmul v%d.4s, v%d.4s, v%d.4s", z, z, []int{c0, c0})
			a.each("fadd v%d.4s, v%d.4s, v%d.4s", z, z, []int{c1, c1})
			a.each("fmul v%d.4s, v%d.4s, v%d.4s", z, z, g)
		} else {
			a.each("fneg v%d.4s, v%d.4s", z, g)
		}
		e.apply(z, t)
		a.each("fadd v%d.4s, v%d.4s, v%d.4s", z, z, []int{e.one, e.one})
		of := g
		if kind == sigmoid {
			of = []int{e.one, e.one}
		}
		a.each("fdiv v%d.4s, v%d.4s, v%d.4s", z, of, z)
		if up {
			a.loadNext(g, a.arg("up"))
			a.each("fmul v%d.4s, v%d.4s, v%d.4s", z, z, g)
		}
		a.store(z, a.arg(dst), 32*i)
	}
	a.i("add %s, %s, #64", a.arg(dst), a.arg(dst))
	a.endLoop("n")
}

// clamped is elem_exp.go's, two registers at a time.
func (f *armFile) clamped() {
	a := f.function("ClampedMul", "func(dst, gate, up *float32, n int, alpha, limit float32)",
		"ClampedMul writes (u+1)·g/(1+e^(-alpha·g)) to dst, g = min(gate, limit), u = up within ±limit.")
	limit := a.arg("limit")
	a.i("dup v%s.4s, v%s.s[0]", limit, limit)
	e := a.exponential(true)
	g, u, z, t := a.vs(2), a.vs(2), a.vs(2), a.temps(2)
	low := a.v()
	a.i("fneg v%d.4s, v%s.4s", low, limit)
	a.label("loop")
	for i := range 2 {
		a.loadNext(g, a.arg("gate"))
		a.each("fmin v%d.4s, v%d.4s, v"+limit+".4s", g, g)
		a.each("fmul v%d.4s, v%d.4s, v"+a.arg("alpha")+".s[0]", z, g)
		a.each("fneg v%d.4s, v%d.4s", z, z)
		e.apply(z, t)
		a.each("fadd v%d.4s, v%d.4s, v%d.4s", z, z, []int{e.one, e.one})
		a.each("fdiv v%d.4s, v%d.4s, v%d.4s", z, g, z)
		a.loadNext(u, a.arg("up"))
		a.each("fmin v%d.4s, v%d.4s, v"+limit+".4s", u, u)
		a.each(fmt.Sprintf("fmax v%%d.4s, v%%d.4s, v%d.4s", low), u, u)
		a.each("fadd v%d.4s, v%d.4s, v%d.4s", u, u, []int{e.one, e.one})
		a.each("fmul v%d.4s, v%d.4s, v%d.4s", z, z, u)
		a.store(z, a.arg("dst"), 32*i)
	}
	a.i("add %s, %s, #64", a.arg("dst"), a.arg("dst"))
	a.endLoop("n")
}

// softcap is elem_exp.go's.
func (f *armFile) softcap() {
	a := f.function("Softcap", "func(x *float32, n int, limit float32)", "Softcap replaces x by limit·tanh(x/limit).")
	limit := a.arg("limit")
	a.i("dup v%s.4s, v%s.s[0]", limit, limit)
	e := a.exponential(true)
	y, z, t := a.v(), a.v(), a.temps(1)
	square, p := t[0][0], t[1][0]
	a.label("loop")
	for i := range 4 {
		a.i("ldr q%d, [%s, #%d]", y, a.arg("x"), 16*i)
		a.i("fdiv v%d.4s, v%d.4s, v%s.4s", y, y, limit)
		a.i("fadd v%d.4s, v%d.4s, v%d.4s", z, y, y)
		e.apply([]int{z}, t)
		a.i("fadd v%d.4s, v%d.4s, v%d.4s", z, z, e.one)
		a.i("fdiv v%d.4s, v%d.4s, v%d.4s", z, e.one, z)
		a.i("fadd v%d.4s, v%d.4s, v%d.4s", z, z, z)
		a.i("fsub v%d.4s, v%d.4s, v%d.4s", z, e.one, z)
		a.i("fmul v%d.4s, v%d.4s, v%d.4s", square, y, y)
		a.word(f32bits(62.0/2835), p)
		for _, c := range []float32{-17.0 / 315, 2.0 / 15, -1.0 / 3, 1} {
			a.word(f32bits(c), t[2][0])
			a.i("fmla v%d.4s, v%d.4s, v%d.4s", t[2][0], p, square)
			a.i("mov v%d.16b, v%d.16b", p, t[2][0])
		}
		a.i("fmul v%d.4s, v%d.4s, v%d.4s", p, p, y)
		a.word(f32bits(1.0/16), y) // |y| < 1/4: y² < 1/16
		a.i("fcmgt v%d.4s, v%d.4s, v%d.4s", square, y, square)
		a.i("bit v%d.16b, v%d.16b, v%d.16b", z, p, square)
		a.i("fmul v%d.4s, v%d.4s, v%s.4s", z, z, limit)
		a.i("str q%d, [%s, #%d]", z, a.arg("x"), 16*i)
	}
	a.i("add %s, %s, #64", a.arg("x"), a.arg("x"))
	a.endLoop("n")
}
