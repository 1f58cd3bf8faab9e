package model

import (
	"math"

	"gorgonia.org/tensor"

	"terrace/internal/kernels"
)

// ssmTask is a Mamba-2 mixer's work over the rows of a pass.
type ssmTask struct {
	s            *Mamba2
	in           []float32 // [n, z | u|B|C | dt], the middle after the convolution
	out          []float32 // [n, inner]
	decay, dt, d []float32 // [heads]
	steps        []float32 // [n, 2, heads]: dt and e^(dt·Decay)
	stride       int
}

// mixSSM is Mamba-2: out [n, inner], normed and gated.
func (b *native) mixSSM(p *Pass, s *Mamba2, r *RecurrentParams, x []float32, n int, norm NormParams, states []StateRows) (*tensor.Dense, error) {
	t := &ssmTask{s: s, steps: b.ws.floats(&b.ws.mixA, 2*n*s.Heads)}
	var err error
	if t.in, t.stride, err = b.mixerInput(p, r, x, n, norm); err != nil {
		return nil, err
	}
	for _, v := range []struct {
		dst *[]float32
		of  *Vector
	}{{&t.decay, r.Decay}, {&t.dt, r.DTBias}, {&t.d, r.D}} {
		if *v.dst, err = v.of.Values(); err != nil {
			return nil, err
		}
	}
	inner := s.inner()
	if err := b.convolveAll(t.in[inner:], t.stride, s.channels(), s.Kernel, r, states, true); err != nil {
		return nil, err
	}
	out := b.ws.dense(&b.ws.attended, n, inner)
	t.out = floats(out)
	b.pool.Run(n, func(_, row int) { t.prepare(row) })
	b.runStrips(&strips{heads: s.Heads, n: s.State, width: s.HeadDim, first: (s.Kernel - 1) * s.channels(), states: states}, t.strip)
	w, err := r.Norm.Values()
	if err != nil {
		return nil, err
	}
	eps := b.m.NormEps
	b.pool.Run(n, func(_, row int) { t.finish(row, w, eps) })
	return out, nil
}

// prepare computes a row's step sizes and decays.
func (t *ssmTask) prepare(row int) {
	s := t.s
	raw, steps := t.in[row*t.stride+s.inner()+s.channels():][:s.Heads], t.steps[2*row*s.Heads:][:2*s.Heads]
	for h, x := range raw {
		dt := max(softplus(x+t.dt[h]), s.DTMin)
		if s.DTMax > 0 {
			dt = min(dt, s.DTMax)
		}
		steps[h], steps[s.Heads+h] = dt, float32(math.Exp(float64(dt*t.decay[h])))
	}
}

// strip takes a strip of a head's state through the rows of a text.
func (t *ssmTask) strip(s *strip) {
	m, h := t.s, s.head
	inner, group := m.inner(), h*m.Groups/m.Heads
	for r := range s.rows {
		row := s.row + r
		to, from := s.step(r)
		in, steps, out := t.in[row*t.stride+inner:], t.steps[2*row*m.Heads:], t.out[row*inner+h*m.HeadDim:][:m.HeadDim]
		b, c := in[inner+group*m.State:][:m.State], in[inner+(m.Groups+group)*m.State:][:m.State]
		y := s.result(out, 2)
		kernels.SSMStep(y, to, from, b, c, s.operand(in[h*m.HeadDim:][:m.HeadDim], 1), steps[m.Heads+h], steps[h], t.d[h])
		s.keep(out, y)
	}
}

// finish norms and gates a row's output.
func (t *ssmTask) finish(row int, w []float32, eps float32) {
	s := t.s
	inner := s.inner()
	out, z := t.out[row*inner:(row+1)*inner], t.in[row*t.stride:][:inner]
	norm := func() {
		for each, g := inner/s.Groups, 0; g < s.Groups; g++ {
			part := out[g*each : (g+1)*each]
			kernels.RMSNorm(part, part, w[g*each:(g+1)*each], eps)
		}
	}
	if s.Norm == NormThenGate {
		norm()
	}
	kernels.SiluMul(out, z, out)
	if s.Norm == GatedNorm {
		norm()
	}
}
