package main

import "fmt"

// neonStrip is how many registers a strip's row takes: 16 numbers.
const neonStrip = 4

func init() {
	registerARM("state", "neon", func(f *armFile) {
		f.convolve()
		f.stateDot()
		f.stateStep("DeltaStep", "func(out, dots, to, from *float32, toStride, fromStride, n int, k, q, next, v *float32, decay, beta float32)",
			"DeltaStep: d = beta·(v − decay·dots); to[i] = decay·from[i] + k[i]·d; out = Σ q[i]·to[i]; dots = Σ next[i]·to[i].", true, false)
		f.stateStep("DeltaStepEach", "func(out, dots, to, from *float32, toStride, fromStride, n int, k, q, next, v, decay *float32, beta float32)",
			"DeltaStepEach: d = beta·(v − dots); to[i] = decay[i]·from[i] + k[i]·d; out = Σ q[i]·to[i]; dots = Σ next[i]·to[i].", true, true)
		f.stateStep("SSMStep", "func(out, to, from *float32, toStride, fromStride, n int, k, q, v *float32, decay, dt, skip float32)",
			"SSMStep: to[i] = decay·from[i] + k[i]·dt·v; out = Σ q[i]·to[i] + skip·v.", false, false)
	})
}

func (f *armFile) stateDot() {
	a := f.function("StateDot", "func(out, from *float32, fromStride, n int, x *float32)", "StateDot is out = Σ x[i]·from[i].")
	sums, x, row := a.vs(neonStrip), a.v(), a.vs(neonStrip)
	a.zero(sums)
	a.inBytes("fromStride")
	a.label("rows")
	a.loadNext([]int{x}, a.arg("x"))
	for r := range stateRows {
		a.load(row, a.arg("from"), 0)
		a.by("fmla", sums, row, x, r)
		a.nextRow("from")
	}
	a.nextRows()
	a.store(sums, a.arg("out"), 0)
}

// by is an operation with one number of a register: dst = dst op x·of[lane].
func (a *armFunction) by(op string, dst, x []int, of, lane int) {
	a.each(fmt.Sprintf("%s v%%d.4s, v%%d.4s, v%d.s[%d]", op, of, lane), dst, x)
}

// inBytes turns a parameter, a distance in numbers, to bytes.
func (a *armFunction) inBytes(name string) { a.i("lsl %s, %s, #2", a.arg(name), a.arg(name)) }

// nextRow moves a pointer to a strip's next row.
func (a *armFunction) nextRow(name string) {
	a.i("add %s, %s, %s", a.arg(name), a.arg(name), a.arg(name+"Stride"))
}

// nextRows ends the loop over a strip's rows.
func (a *armFunction) nextRows() {
	a.i("subs %s, %s, #%d", a.arg("n"), a.arg("n"), stateRows)
	a.i("b.ne @rows")
}

// stateStep is state.go's.
func (f *armFile) stateStep(name, signature, doc string, delta, each bool) {
	a := f.function(name, signature, doc)
	scalar := func(name string) (v int) {
		_, err := fmt.Sscan(a.arg(name), &v)
		fatal(err)
		return v
	}
	outs, sums, d, row, v := a.vs(neonStrip), []int(nil), a.vs(neonStrip), a.vs(neonStrip), a.vs(neonStrip)
	a.zero(outs)
	a.load(v, a.arg("v"), 0)
	if delta {
		a.load(row, a.arg("dots"), 0)
		if each {
			a.each("fsub v%d.4s, v%d.4s, v%d.4s", v, v, row)
		} else {
			a.by("fmls", v, row, scalar("decay"), 0)
		}
		a.by("fmul", d, v, scalar("beta"), 0)
		sums = a.vs(neonStrip)
		a.zero(sums)
	} else {
		a.by("fmul", d, v, scalar("dt"), 0)
	}
	k, q, next, g := a.v(), a.v(), a.v(), a.v()
	a.inBytes("toStride")
	a.inBytes("fromStride")
	a.label("rows")
	a.loadNext([]int{k}, a.arg("k"))
	a.loadNext([]int{q}, a.arg("q"))
	if delta {
		a.loadNext([]int{next}, a.arg("next"))
	}
	if each {
		a.loadNext([]int{g}, a.arg("decay"))
	}
	for r := range stateRows {
		a.load(row, a.arg("from"), 0)
		if each {
			a.by("fmul", row, row, g, r)
		} else {
			a.by("fmul", row, row, scalar("decay"), 0)
		}
		a.by("fmla", row, d, k, r)
		a.store(row, a.arg("to"), 0)
		a.by("fmla", outs, row, q, r)
		if delta {
			a.by("fmla", sums, row, next, r)
		}
		a.nextRow("to")
		a.nextRow("from")
	}
	a.nextRows()
	if delta {
		a.store(sums, a.arg("dots"), 0)
	} else {
		a.by("fmla", outs, v, scalar("skip"), 0)
	}
	a.store(outs, a.arg("out"), 0)
}

// convolve is state.go's.
func (f *armFile) convolve() {
	a := f.function("Convolve", "func(dst *float32, taps **float32, k int, w *float32, stride, n int, bias *float32)",
		"Convolve is dst = bias + Σ w[j]·taps[j], rows of w stride numbers apart; a nil bias is 0.")
	sums, x, w := a.vs(4), a.vs(4), a.vs(4)
	offset, left, taps, tap, row := a.g(), a.g(), a.g(), a.g(), a.g()
	a.inBytes("stride")
	a.i("mov %s, #0", offset)
	a.label("channels")
	a.zero(sums)
	a.i("cbz %s, @start", a.arg("bias"))
	a.loadNext(sums, a.arg("bias"))
	a.label("start")
	a.i("mov %s, %s", left, a.arg("k"))
	a.i("mov %s, %s", taps, a.arg("taps"))
	a.i("add %s, %s, %s", row, a.arg("w"), offset)
	a.label("taps")
	a.i("ldr %s, [%s], #8", tap, taps)
	a.i("add %s, %s, %s", tap, tap, offset)
	a.load(x, tap, 0)
	a.load(w, row, 0)
	a.each("fmla v%d.4s, v%d.4s, v%d.4s", sums, x, w)
	a.i("add %s, %s, %s", row, row, a.arg("stride"))
	a.i("subs %s, %s, #1", left, left)
	a.i("b.ne @taps")
	a.storeNext(sums, a.arg("dst"))
	a.i("add %s, %s, #64", offset, offset)
	a.i("subs %s, %s, #16", a.arg("n"), a.arg("n"))
	a.i("b.ne @channels")
}
