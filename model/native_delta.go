package model

import (
	"math"

	"gorgonia.org/tensor"

	"terrace/internal/kernels"
)

// unitEps is what is added to the sum of squares where queries and keys of a DeltaNet are made unit length.
const unitEps = 1e-6

// deltaTask is one value head's work over the rows of a pass.
type deltaTask struct {
	d            *DeltaNet
	in           []float32 // [n, channels]: q, k, v after the convolution
	a, beta      []float32 // [n, hv or hv·dk] and [n, hv]
	out          []float32 // [n, hv·dv]
	decay, dt    []float32
	states       []StateRows
	norm         []float32
	gate         []float32 // [n, hv·dv]
	eps          float32
	stride, byCh int // numbers of a row of in; decays of a head: 1 or dk
}

// mixDelta is the gated delta rule: out [n, hv·dv], normed and gated.
func (b *native) mixDelta(p *Pass, d *DeltaNet, r *RecurrentParams, x []float32, n int, norm NormParams, states []StateRows) (*tensor.Dense, error) {
	t := &deltaTask{d: d, states: states, eps: b.m.NormEps, byCh: 1}
	if d.ByChannel {
		t.byCh = d.KeyDim
	}
	values := d.ValueHeads * d.ValueDim
	t.a, t.beta, t.gate = b.ws.floats(&b.ws.mixA, n*d.ValueHeads*t.byCh), b.ws.floats(&b.ws.mixB, n*d.ValueHeads), b.ws.floats(&b.ws.mixGate, n*values)
	more := []product{{w: r.B, dst: t.beta}}
	for _, two := range []struct {
		down, up *Linear
		dst      []float32
	}{{r.ADown, r.A, t.a}, {r.ZDown, r.Z, t.gate}} {
		if two.down.Absent() {
			more = append(more, product{w: two.up, dst: two.dst})
			continue
		}
		low := b.ws.floats(&b.ws.mixed, n*two.down.Rows)
		if err := b.matmulNormed(p.Phase, x, n, norm, product{w: two.down, dst: low}); err != nil {
			return nil, err
		}
		if err := b.matmul(p.Phase, low, n, product{w: two.up, dst: two.dst}); err != nil {
			return nil, err
		}
	}
	var err error
	if t.in, t.stride, err = b.mixerInput(p, r, x, n, norm, more...); err != nil {
		return nil, err
	}
	for _, v := range []struct {
		dst *[]float32
		of  *Vector
	}{{&t.decay, r.Decay}, {&t.dt, r.DTBias}, {&t.norm, r.Norm}} {
		if *v.dst, err = v.of.Values(); err != nil {
			return nil, err
		}
	}
	if err := b.convolveAll(t.in, t.stride, d.channels(), d.Kernel, r, states, true); err != nil {
		return nil, err
	}
	out := b.ws.dense(&b.ws.attended, n, values)
	t.out = floats(out)
	b.pool.Run(n, func(_, row int) { t.unitRows(row) })
	b.pool.Run(d.ValueHeads, func(_, h int) { t.head(h) })
	return out, nil
}

// unitRows makes a row's queries and keys unit length, and scales queries.
func (t *deltaTask) unitRows(row int) {
	d := t.d
	scale := float32(1 / math.Sqrt(float64(d.KeyDim)))
	for h := range 2 * d.KeyHeads {
		v := t.in[row*t.stride+h*d.KeyDim:][:d.KeyDim]
		by := float32(1 / math.Sqrt(float64(kernels.Dot(v, v))+unitEps))
		if h < d.KeyHeads {
			by *= scale
		}
		kernels.Scale(v, by)
	}
}

// keyHead is the key head of a value head.
func (d *DeltaNet) keyHead(h int) int {
	if d.Modulo {
		return h % d.KeyHeads
	}
	return h * d.KeyHeads / d.ValueHeads
}

// head takes one value head through all rows.
func (t *deltaTask) head(h int) {
	d := t.d
	dk, dv, keys := d.KeyDim, d.ValueDim, d.KeyHeads*d.KeyDim
	state := (d.Kernel-1)*d.channels() + h*dk*dv
	row := 0
	delta := make([]float32, dv)
	for i := range t.states {
		s := t.states[i].State[state : state+dk*dv]
		copy(s, t.states[i].From[state:state+dk*dv])
		for range t.states[i].Rows {
			in, g := t.in[row*t.stride:], d.keyHead(h)
			q, k, v := in[g*dk:][:dk], in[keys+g*dk:][:dk], in[2*keys+h*dv:][:dv]
			t.decayState(s, row, h)
			clear(delta)
			for j, x := range k {
				kernels.Axpy(delta, x, s[j*dv:(j+1)*dv])
			}
			beta := sigmoid(t.beta[row*d.ValueHeads+h])
			for j := range delta {
				delta[j] = beta * (v[j] - delta[j])
			}
			out := t.out[(row*d.ValueHeads+h)*dv:][:dv]
			clear(out)
			for j, x := range k {
				kernels.Axpy(s[j*dv:(j+1)*dv], x, delta)
				kernels.Axpy(out, q[j], s[j*dv:(j+1)*dv])
			}
			t.finish(out, row, h)
			row++
		}
	}
}

// decayState multiplies a head's state by e^g, of the head or of each number of a key.
func (t *deltaTask) decayState(s []float32, row, h int) {
	dv := t.d.ValueDim
	for j := range t.byCh {
		at := h*t.byCh + j
		of := at
		if len(t.decay) < t.d.ValueHeads*t.byCh { // one a head, for all its channels
			of = h
		}
		g := t.decay[of] * softplus(t.a[row*t.d.ValueHeads*t.byCh+at]+t.dt[at])
		by := float32(math.Exp(float64(g)))
		if t.byCh == 1 {
			kernels.Scale(s, by)
			return
		}
		kernels.Scale(s[j*dv:(j+1)*dv], by)
	}
}

// finish norms and gates a head's output.
func (t *deltaTask) finish(out []float32, row, h int) {
	d := t.d
	kernels.RMSNorm(out, out, t.norm, t.eps)
	gate := t.gate[(row*d.ValueHeads+h)*d.ValueDim:][:d.ValueDim]
	for j, z := range gate {
		if d.Sigmoid {
			out[j] *= sigmoid(z)
		} else {
			out[j] *= z * sigmoid(z)
		}
	}
}
