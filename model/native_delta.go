package model

import (
	"math"

	"gorgonia.org/tensor"

	"terrace/internal/kernels"
)

// unitEps is what is added to the sum of squares where queries and keys of a DeltaNet are made unit length.
const unitEps = 1e-6

// deltaTask is the gated delta rule over the rows of a pass.
type deltaTask struct {
	d            *DeltaNet
	in           []float32 // [n, channels]: q, k, v after the convolution
	a, beta      []float32 // [n, hv or hv·dk] and [n, hv]; then e^g and σ
	out          []float32 // [n, hv·dv]
	decay, dt    []float32
	norm         []float32
	gate         []float32 // [n, hv·dv]
	keys         []float32 // [n, hv·dk], each times its decay, where that is of each number
	eps          float32
	stride, byCh int // numbers of a row of in; decays of a head: 1 or dk
}

// mixDelta is the gated delta rule: out [n, hv·dv], normed and gated.
func (b *native) mixDelta(p *Pass, d *DeltaNet, r *RecurrentParams, x []float32, n int, norm NormParams, states []StateRows) (*tensor.Dense, error) {
	t := &deltaTask{d: d, eps: b.m.NormEps, byCh: 1}
	if d.ByChannel {
		t.byCh, t.keys = d.KeyDim, b.ws.floats(&b.ws.mixKeys, n*d.ValueHeads*d.KeyDim)
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
		if err := b.matmulNormed(p.arithmetic(), x, n, norm, product{w: two.down, dst: low}); err != nil {
			return nil, err
		}
		if err := b.matmul(p.arithmetic(), low, n, product{w: two.up, dst: two.dst}); err != nil {
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
	b.pool.Run(n, func(_, row int) { t.prepare(row) })
	step := t.strip
	if d.ByChannel {
		step = t.stripByChannel
	}
	b.runStrips(&strips{heads: d.ValueHeads, n: d.KeyDim, width: d.ValueDim, first: (d.Kernel - 1) * d.channels(), states: states}, step)
	b.pool.Run(n, func(_, row int) { t.finish(row) })
	return out, nil
}

// prepare makes a row's queries and keys unit length and scales queries, and computes its decays and step sizes.
func (t *deltaTask) prepare(row int) {
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
	for h := range d.ValueHeads {
		t.beta[row*d.ValueHeads+h] = sigmoid(t.beta[row*d.ValueHeads+h])
		g := t.decays(row, h)
		for j, x := range g {
			of, at := h, h*t.byCh+j
			if len(t.decay) == d.ValueHeads*t.byCh { // else one a head, for all its channels
				of = at
			}
			g[j] = float32(math.Exp(float64(t.decay[of] * softplus(x+t.dt[at]))))
		}
		if d.ByChannel {
			keys := t.keys[(row*d.ValueHeads+h)*d.KeyDim:][:d.KeyDim]
			copy(keys, t.key(row, h))
			kernels.Mul(keys, g)
		}
	}
}

// decays are a row's of a value head: one, or one for each number of a key.
func (t *deltaTask) decays(row, h int) []float32 {
	return t.a[(row*t.d.ValueHeads+h)*t.byCh:][:t.byCh]
}

// query, key and value are a row's of a value head.
func (t *deltaTask) query(row, h int) []float32 {
	return t.in[row*t.stride+t.d.keyHead(h)*t.d.KeyDim:][:t.d.KeyDim]
}

func (t *deltaTask) key(row, h int) []float32 {
	return t.in[row*t.stride+(t.d.KeyHeads+t.d.keyHead(h))*t.d.KeyDim:][:t.d.KeyDim]
}

func (t *deltaTask) value(row, h int) []float32 {
	return t.in[row*t.stride+2*t.d.KeyHeads*t.d.KeyDim+h*t.d.ValueDim:][:t.d.ValueDim]
}

// keyHead is the key head of a value head.
func (d *DeltaNet) keyHead(h int) int {
	if d.Modulo {
		return h % d.KeyHeads
	}
	return h * d.KeyHeads / d.ValueHeads
}

// output is a row's of a value head.
func (t *deltaTask) output(row, h int) []float32 {
	return t.out[(row*t.d.ValueHeads+h)*t.d.ValueDim:][:t.d.ValueDim]
}

// strip takes a strip of a value head's state through the rows of a text.
func (t *deltaTask) strip(s *strip) {
	h, dots := s.head, s.pad(0)
	_, from := s.step(0)
	kernels.StateDot(dots, from, t.key(s.row, h))
	for r := range s.rows {
		row := s.row + r
		to, from := s.step(r)
		next, out := t.key(min(row+1, s.row+s.rows-1), h), t.output(row, h) // the last row's sums are of no use
		y := s.result(out, 2)
		kernels.DeltaStep(y, dots, to, from, t.key(row, h), t.query(row, h), next, s.operand(t.value(row, h), 1), t.decays(row, h)[0], t.beta[row*t.d.ValueHeads+h])
		s.keep(out, y)
	}
}

// stripByChannel is strip with a decay for each number of a key.
func (t *deltaTask) stripByChannel(s *strip) {
	h, dots := s.head, s.pad(0)
	decayed := func(row int) []float32 { return t.keys[(row*t.d.ValueHeads+h)*t.d.KeyDim:][:t.d.KeyDim] }
	_, from := s.step(0)
	kernels.StateDot(dots, from, decayed(s.row))
	for r := range s.rows {
		row := s.row + r
		to, from := s.step(r)
		next, out := decayed(min(row+1, s.row+s.rows-1)), t.output(row, h)
		y := s.result(out, 2)
		kernels.DeltaStepEach(y, dots, to, from, t.key(row, h), t.query(row, h), next, s.operand(t.value(row, h), 1), t.decays(row, h), t.beta[row*t.d.ValueHeads+h])
		s.keep(out, y)
	}
}

// finish norms and gates a row's output.
func (t *deltaTask) finish(row int) {
	values := t.d.ValueHeads * t.d.ValueDim
	for h := range t.d.ValueHeads {
		out := t.output(row, h)
		kernels.RMSNorm(out, out, t.norm, t.eps)
	}
	out, gate := t.out[row*values:][:values], t.gate[row*values:][:values]
	if t.d.Sigmoid {
		kernels.SigmoidMul(out, gate, out)
	} else {
		kernels.SiluMul(out, gate, out)
	}
}
