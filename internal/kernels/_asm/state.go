package main

import (
	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Kernels of recurrent state: a strip of n rows goes through registers one row after another, from one
// place to another or in place. AVX-512 takes 64 numbers of a
// row; AVX2 takes 16, and rows in pairs with sums of their own, so that no addition waits for the one before it.
const stateRows = 4 // n is a multiple

func init() {
	for _, make := range flavours {
		f := make()
		register("state", f.isa, func() {
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
}

// stateShape is how many registers a strip's row takes and how many sets of sums there are.
func (f *flavour) stateShape() (width, sets int) {
	if f.wide() {
		return 4, 1
	}
	return 2, 2
}

// stateSums are the registers of the sums of a vector, zeroed.
func (f *flavour) stateSums(width, sets int) [][]reg.VecPhysical {
	v := make([][]reg.VecPhysical, sets)
	for i := range v {
		v[i] = f.vecs(width)
		for _, r := range v[i] {
			f.zero(r)
		}
	}
	return v
}

// strip loads a pointer to rows and their distance, in bytes.
func strip(name string) (s, stride reg.Register) {
	s, stride = Load(Param(name), GP64()), Load(Param(name+"Stride"), GP64())
	SHLQ(operand.U8(2), stride)
	return s, stride
}

// stateNext ends it.
func (f *flavour) stateNext(n reg.Register, pointers ...reg.Register) {
	for _, p := range pointers {
		ADDQ(operand.U8(4*stateRows), p)
	}
	SUBQ(operand.U8(stateRows), n)
	JNZ(operand.LabelRef("rows"))
}

// stateStore adds the sets and stores the first.
func (f *flavour) stateStore(sums [][]reg.VecPhysical, to reg.Register) {
	for i, v := range sums[0] {
		for _, more := range sums[1:] {
			VADDPS(more[i], v, v)
		}
		VMOVUPS(v, at(to, i*f.bytes()))
	}
}

func (f *flavour) stateDot() {
	f.begin("StateDot", "func(out, from *float32, fromStride, n int, x *float32)", "StateDot is out = Σ x[i]·from[i].")
	width, sets := f.stateShape()
	from, fromStride := strip("from")
	n, x := Load(Param("n"), GP64()), Load(Param("x"), GP64())
	sums, t := f.stateSums(width, sets), f.vec()
	Label("rows")
	for r := range stateRows {
		VBROADCASTSS(at(x, 4*r), t)
		for i := range width {
			VFMADD231PS(at(from, i*f.bytes()), t, sums[r%sets][i])
		}
		ADDQ(fromStride, from)
	}
	f.stateNext(n, x)
	f.stateStore(sums, Load(Param("out"), GP64()))
	f.end()
}

// stateStep emits a step: with the delta rule or without it, with a decay of each row or one of all.
func (f *flavour) stateStep(name, signature, doc string, delta, each bool) {
	f.begin(name, signature, doc)
	width, sets := f.stateShape()
	to, toStride := strip("to")
	from, fromStride := strip("from")
	n := Load(Param("n"), GP64())
	k, q, v := Load(Param("k"), GP64()), Load(Param("q"), GP64()), Load(Param("v"), GP64())
	pointers := []reg.Register{k, q}
	var next, gs, dots reg.Register
	g, d := f.vec(), f.vecs(width)
	if each {
		gs = Load(Param("decay"), GP64())
		pointers = append(pointers, gs)
	} else {
		f.broadcastTo("decay", g)
	}
	if delta {
		next, dots = Load(Param("next"), GP64()), Load(Param("dots"), GP64())
		pointers = append(pointers, next)
	}
	was := f.next
	t := f.vec()
	for i, d := range d {
		VMOVUPS(at(v, i*f.bytes()), d)
		switch {
		case !delta:
			f.broadcastTo("dt", t)
		case each:
			VSUBPS(at(dots, i*f.bytes()), d, d)
			f.broadcastTo("beta", t)
		default:
			VFNMADD231PS(at(dots, i*f.bytes()), g, d)
			f.broadcastTo("beta", t)
		}
		VMULPS(t, d, d)
	}
	f.next = was
	outs := f.stateSums(width, sets)
	var sums [][]reg.VecPhysical
	if delta {
		sums = f.stateSums(width, sets)
	}
	kx, qx := f.vec(), f.vec()
	nx := kx
	if delta && f.wide() {
		nx = f.vec()
	}
	x := f.vecs(width)
	Label("rows")
	for r := range stateRows {
		if each {
			VBROADCASTSS(at(gs, 4*r), g)
		}
		VBROADCASTSS(at(k, 4*r), kx)
		VBROADCASTSS(at(q, 4*r), qx)
		for i, x := range x {
			VMULPS(at(from, i*f.bytes()), g, x)
			VFMADD231PS(kx, d[i], x)
			VMOVUPS(x, at(to, i*f.bytes()))
			VFMADD231PS(x, qx, outs[r%sets][i])
		}
		if delta {
			VBROADCASTSS(at(next, 4*r), nx)
			for i, x := range x {
				VFMADD231PS(x, nx, sums[r%sets][i])
			}
		}
		ADDQ(toStride, to)
		ADDQ(fromStride, from)
	}
	f.stateNext(n, pointers...)
	out := Load(Param("out"), GP64())
	if delta {
		f.stateStore(sums, dots)
	} else {
		f.broadcastTo("skip", kx)
		for i := range width {
			VFMADD231PS(at(v, i*f.bytes()), kx, outs[0][i])
		}
	}
	f.stateStore(outs, out)
	f.end()
}

// broadcastTo loads a float parameter into all lanes of a register.
func (f *flavour) broadcastTo(param string, v reg.VecPhysical) {
	m, err := Param(param).Resolve()
	if err != nil {
		panic(err)
	}
	VBROADCASTSS(m.Addr, v)
}

// convolve emits a row of a causal convolution over n channels, n a multiple of 16 and not 0.
func (f *flavour) convolve() {
	f.begin("Convolve", "func(dst *float32, taps **float32, k int, w *float32, stride, n int, bias *float32)",
		"Convolve is dst = bias + Σ w[j]·taps[j], rows of w stride numbers apart; a nil bias is 0.")
	dst, taps, w, n := Load(Param("dst"), GP64()), Load(Param("taps"), GP64()), Load(Param("w"), GP64()), Load(Param("n"), GP64())
	stride, bias, k := Load(Param("stride"), GP64()), Load(Param("bias"), GP64()), Load(Param("k"), GP64())
	SHLQ(operand.U8(2), stride)
	at16 := func(base, index reg.Register, i int) operand.Mem {
		return operand.Mem{Base: base, Index: index, Scale: 1, Disp: i * f.bytes()}
	}
	offset, j, tap, row := GP64(), GP64(), GP64(), GP64()
	XORQ(offset, offset)
	sums, t := f.vecs(16/f.lanes), f.vec()
	Label("channels")
	for _, v := range sums {
		f.zero(v)
	}
	TESTQ(bias, bias)
	JZ(operand.LabelRef("start"))
	for i, v := range sums {
		VMOVUPS(at16(bias, offset, i), v)
	}
	Label("start")
	XORQ(j, j)
	MOVQ(w, row)
	Label("taps")
	MOVQ(operand.Mem{Base: taps, Index: j, Scale: 8}, tap)
	for i, v := range sums {
		VMOVUPS(at16(tap, offset, i), t)
		VFMADD231PS(at16(row, offset, i), t, v)
	}
	ADDQ(stride, row)
	INCQ(j)
	CMPQ(j, k)
	JNE(operand.LabelRef("taps"))
	for i, v := range sums {
		VMOVUPS(v, at16(dst, offset, i))
	}
	ADDQ(operand.U8(64), offset)
	SUBQ(operand.U8(16), n)
	JNZ(operand.LabelRef("channels"))
	f.end()
}
