package kernels

import (
	"fmt"

	"terrace/internal/kernels/ref"
)

// A head's recurrent state is [n, width]; the numbers of a column know nothing of other columns. So a kernel takes a strip of StateLanes
// columns, whose rows lie stride numbers apart, through one token at a time: the strip stays in the first-level cache for all tokens of a
// pass, and each of its numbers is read and written once a token. Sums run over rows in one order whatever the stride and the pass, so that
// a token's result does not depend on where a pass began.
//
// Why not in chunks of 64 tokens, as matrix products: of a head of 128 by 128 a token costs 4·128·128 = 66 thousand multiply-adds here, and
// 3·128·128 + 64·5·128 + 64²/3 = 91 thousand in the chunk's form, 60 thousand with chunks of 16; both are bound by these, not by memory.

// Strip is where the rows of a strip lie: Data from the first row's first number on, Stride numbers from one row to the next.
type Strip struct {
	Data   []float32
	Stride int
}

// stateOps are the selected path's. A nil dot: plain Go, strips of 16.
type stateOps struct {
	lanes         int
	dot           func(out, from *float32, fromStride, n int, x *float32)
	deltaStep     func(out, dots, to, from *float32, toStride, fromStride, n int, k, q, next, v *float32, g, beta float32)
	deltaStepEach func(out, dots, to, from *float32, toStride, fromStride, n int, k, q, next, v, g *float32, beta float32)
	ssmStep       func(out, to, from *float32, toStride, fromStride, n int, k, q, v *float32, g, dt, skip float32)
	convolve      func(dst *float32, taps **float32, k int, w *float32, stride, n int, bias *float32)
}

var states = stateOps{lanes: 16}

// StateLanes is the width of the strips of the selected path.
func StateLanes() int { return states.lanes }

// assembled tells whether the assembly takes states of n rows.
func (o *stateOps) assembled(n int) bool { return o.dot != nil && n > 0 && n%4 == 0 }

// check panics where the strip is short of n rows.
func (s Strip) check(op string, n int) {
	if n > 0 && (s.Stride < states.lanes || len(s.Data) < (n-1)*s.Stride+states.lanes) {
		panic(fmt.Sprintf("kernels: %s: strip of %d numbers, want %d rows of %d with stride %d", op, len(s.Data), n, states.lanes, s.Stride))
	}
}

// StateDot writes Σ_i x[i]·s[i] to out [lanes]; s is a strip of len(x) rows.
func StateDot(out []float32, s Strip, x []float32) {
	s.check("StateDot", len(x))
	wantLen("StateDot", states.lanes, len(out))
	if states.assembled(len(x)) {
		states.dot(&out[0], &s.Data[0], s.Stride, len(x), &x[0])
		return
	}
	ref.StateDot(out[:states.lanes], s.Data, s.Stride, x)
}

// DeltaStep takes a strip of len(k) rows through one token of the gated delta rule: d = beta·(v − g·dots); to[i] = g·from[i] + k[i]·d;
// out = Σ q[i]·to[i]; dots ← Σ next[i]·to[i]. dots [lanes] comes in as Σ k[i]·from[i], StateDot's of the token, and next is the key of
// the token behind it. out, dots and v are [lanes]; to may be from.
func DeltaStep(out, dots []float32, to, from Strip, k, q, next, v []float32, g, beta float32) {
	checkStep("DeltaStep", to, from, len(k), len(out), len(dots), len(v))
	wantLen("DeltaStep", len(k), len(q), len(next))
	if states.assembled(len(k)) {
		states.deltaStep(&out[0], &dots[0], &to.Data[0], &from.Data[0], to.Stride, from.Stride, len(k), &k[0], &q[0], &next[0], &v[0], g, beta)
		return
	}
	ref.DeltaStep(out[:states.lanes], dots, to.Data, from.Data, to.Stride, from.Stride, k, q, next, v, g, beta)
}

// DeltaStepEach is DeltaStep with a decay of each row, g [len(k)]: dots comes in as Σ g[i]·k[i]·from[i], and next is the product of both
// of the token behind it.
func DeltaStepEach(out, dots []float32, to, from Strip, k, q, next, v, g []float32, beta float32) {
	checkStep("DeltaStepEach", to, from, len(k), len(out), len(dots), len(v))
	wantLen("DeltaStepEach", len(k), len(q), len(next), len(g))
	if states.assembled(len(k)) {
		states.deltaStepEach(&out[0], &dots[0], &to.Data[0], &from.Data[0], to.Stride, from.Stride, len(k), &k[0], &q[0], &next[0], &v[0], &g[0], beta)
		return
	}
	ref.DeltaStepEach(out[:states.lanes], dots, to.Data, from.Data, to.Stride, from.Stride, k, q, next, v, g, beta)
}

// SSMStep takes a strip of len(b) rows through one token of Mamba-2: to[i] = g·from[i] + b[i]·dt·u; out = Σ c[i]·to[i] + skip·u.
// out and u are [lanes]; to may be from.
func SSMStep(out []float32, to, from Strip, b, c, u []float32, g, dt, skip float32) {
	checkStep("SSMStep", to, from, len(b), len(out), len(u))
	wantLen("SSMStep", len(b), len(c))
	if states.assembled(len(b)) {
		states.ssmStep(&out[0], &to.Data[0], &from.Data[0], to.Stride, from.Stride, len(b), &b[0], &c[0], &u[0], g, dt, skip)
		return
	}
	ref.SSMStep(out[:states.lanes], to.Data, from.Data, to.Stride, from.Stride, b, c, u, g, dt, skip)
}

// checkStep panics where an operand of a step over n rows is short; lens are of those that have a number for each column.
func checkStep(op string, to, from Strip, n int, lens ...int) {
	to.check(op, n)
	from.check(op, n)
	wantLen(op, states.lanes, lens...)
}

// MaxTaps is the widest convolution of the assembly.
const MaxTaps = 8

// Convolve writes bias + Σ_j w[j]·taps[j] to dst, which may be one of the taps; rows of w lie stride numbers apart, a nil bias is 0.
func Convolve(dst []float32, taps [][]float32, w []float32, stride int, bias []float32) {
	n := len(dst)
	for _, t := range taps {
		wantLen("Convolve", n, len(t))
	}
	if len(taps) > 0 {
		wantLen("Convolve", (len(taps)-1)*stride+n, len(w))
	}
	if bias != nil {
		wantLen("Convolve", n, len(bias))
	}
	if m := n &^ 15; states.convolve != nil && m > 0 && len(taps) > 0 && len(taps) <= MaxTaps {
		var first *float32
		var rows [MaxTaps]*float32
		for j, t := range taps {
			rows[j] = &t[0]
		}
		if bias != nil {
			first, bias = &bias[0], bias[m:]
		}
		states.convolve(&dst[0], &rows[0], len(taps), &w[0], stride, m, first)
		if m == n {
			return
		}
		var rest [MaxTaps][]float32
		for j, t := range taps {
			rest[j] = t[m:]
		}
		dst, taps, w = dst[m:], rest[:len(taps)], w[m:]
	}
	ref.Convolve(dst, taps, w, stride, bias)
}
