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
	states       []StateRows
	stride       int
}

// mixSSM is Mamba-2: out [n, inner], normed and gated.
func (b *native) mixSSM(p *Pass, s *Mamba2, r *RecurrentParams, x []float32, n int, norm NormParams, states []StateRows) (*tensor.Dense, error) {
	t := &ssmTask{s: s, states: states}
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
	b.pool.Run(s.Heads, func(_, h int) { t.head(h) })
	w, err := r.Norm.Values()
	if err != nil {
		return nil, err
	}
	eps := b.m.NormEps
	b.pool.Run(n, func(_, row int) { t.finish(row, w, eps) })
	return out, nil
}

// head takes one head through all rows.
func (t *ssmTask) head(h int) {
	s := t.s
	inner, group := s.inner(), h*s.Groups/s.Heads
	first := (s.Kernel-1)*s.channels() + h*s.HeadDim*s.State
	row := 0
	for i := range t.states {
		state := t.states[i].State[first : first+s.HeadDim*s.State]
		copy(state, t.states[i].From[first:first+s.HeadDim*s.State])
		for range t.states[i].Rows {
			in := t.in[row*t.stride:]
			u := in[inner+h*s.HeadDim:][:s.HeadDim]
			bRow, cRow := in[2*inner+group*s.State:][:s.State], in[2*inner+(s.Groups+group)*s.State:][:s.State]
			dt := max(softplus(in[inner+s.channels()+h]+t.dt[h]), s.DTMin)
			if s.DTMax > 0 {
				dt = min(dt, s.DTMax)
			}
			kernels.Scale(state, float32(math.Exp(float64(dt*t.decay[h]))))
			out := t.out[row*inner+h*s.HeadDim:][:s.HeadDim]
			for j, x := range u {
				of := state[j*s.State : (j+1)*s.State]
				kernels.Axpy(of, dt*x, bRow)
				out[j] = kernels.Dot(of, cRow) + t.d[h]*x
			}
			row++
		}
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
	for j, v := range z {
		out[j] *= v * sigmoid(v)
	}
	if s.Norm == GatedNorm {
		norm()
	}
}
