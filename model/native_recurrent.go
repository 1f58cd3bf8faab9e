package model

import (
	"fmt"

	"gorgonia.org/tensor"

	"terrace/internal/kernels"
)

// Mix implements Recurrent: products of all rows together, then each sequence's rows one after another, heads side by side, so that what
// a row computes does not depend on how a text is cut or on the texts beside it.
func (b *native) Mix(p *Pass, layer int, hidden *tensor.Dense, states []StateRows) (*tensor.Dense, error) {
	if err := b.streaming.enter(layer); err != nil {
		return nil, err
	}
	c, l := &b.m.Layer[layer], &b.m.Params.Layers[layer]
	n, rows := hidden.Shape()[0], 0
	for i := range states {
		rows += states[i].Rows
		if len(states[i].State) != c.stateFloats() || len(states[i].From) != c.stateFloats() {
			return nil, fmt.Errorf("model: state of %d numbers for layer %d, want %d", len(states[i].State), layer, c.stateFloats())
		}
	}
	if rows != n {
		return nil, fmt.Errorf("model: states of %d rows, the pass has %d", rows, n)
	}
	if c.NGrams != nil {
		if err := b.addNGrams(p, layer, floats(hidden), n, states, c.stateFloats()-c.NGrams.floats()); err != nil {
			return nil, err
		}
	}
	x, _, norm, err := b.blockRows(p, layer, hidden, b.inputNorm(l), &l.AttnHyper)
	if err != nil {
		return nil, err
	}
	var out *tensor.Dense
	switch {
	case c.Delta != nil:
		out, err = b.mixDelta(p, c.Delta, &l.Recurrent, x, n, norm, states)
	case c.SSM != nil:
		out, err = b.mixSSM(p, c.SSM, &l.Recurrent, x, n, norm, states)
	case c.Conv != nil:
		out, err = b.mixConv(p, c.Conv, &l.Recurrent, x, n, norm, states)
	default:
		return nil, fmt.Errorf("model: layer %d has no recurrent mixer", layer)
	}
	if err != nil || c.Heads == 0 {
		return out, err
	}
	block := b.blockOut(x, n, NormParams{})
	block.w = l.Recurrent.Out
	if err := b.matmul(p.Phase, floats(out), n, block); err != nil {
		return nil, err
	}
	return nil, b.addBlock(x, block, n, NormParams{})
}

// mixerInput computes a mixer's products In x, one behind another in each row [n, width], and more that stand alone.
func (b *native) mixerInput(p *Pass, r *RecurrentParams, x []float32, n int, norm NormParams, more ...product) (in []float32, width int, err error) {
	for _, w := range r.In {
		width += w.Rows
	}
	in = b.ws.floats(&b.ws.mixIn, n*width)
	if len(r.In) == 1 && len(more) < len(b.products) {
		return in, width, b.matmulNormed(p.Phase, x, n, norm, append([]product{{w: r.In[0], dst: in}}, more...)...)
	}
	at := 0
	for _, w := range r.In {
		part := b.ws.floats(&b.ws.mixed, n*w.Rows)
		if err := b.matmulNormed(p.Phase, x, n, norm, product{w: w, dst: part}); err != nil {
			return nil, 0, err
		}
		for row := range n {
			copy(in[row*width+at:], part[row*w.Rows:(row+1)*w.Rows])
		}
		at += w.Rows
	}
	for _, m := range more {
		if err := b.matmulNormed(p.Phase, x, n, norm, m); err != nil {
			return nil, 0, err
		}
	}
	return in, width, nil
}

// convolve runs a causal convolution with weights w [channels, kernel] and bias (nil = none) over rows of x, channels [from, to) of rows
// stride numbers apart, in place. tail [kernel−1, channels] are the inputs before the first row, oldest first, and afterwards the last ones.
func convolve(x []float32, rows, stride, channels, from, to, kernel int, w, bias, tail []float32) {
	keep := kernel - 1
	for c := from; c < to; c++ {
		weights := w[c*kernel : (c+1)*kernel]
		for r := range rows {
			at := r*stride + c
			now := x[at]
			sum := now * weights[keep]
			for j := range keep {
				sum += weights[j] * tail[j*channels+c]
			}
			for j := 1; j < keep; j++ {
				tail[(j-1)*channels+c] = tail[j*channels+c]
			}
			if keep > 0 {
				tail[(keep-1)*channels+c] = now
			}
			if bias != nil {
				sum += bias[c]
			}
			x[at] = sum
		}
	}
}

// convolution is the weights of all channels [channels, kernel].
func (r *RecurrentParams) convolution() (w []float32, err error) {
	for _, v := range r.Conv {
		part, err := v.Values()
		if err != nil {
			return nil, err
		}
		if w == nil && len(r.Conv) == 1 {
			return part, nil
		}
		w = append(w, part...)
	}
	return w, nil
}

// convChannels is how many channels a task convolves.
const convChannels = 256

// convolveAll is convolve over all channels of every sequence, tasks side by side; then silu, where asked.
func (b *native) convolveAll(x []float32, stride, channels, kernel int, r *RecurrentParams, states []StateRows, activate bool) error {
	w, err := r.convolution()
	if err != nil {
		return err
	}
	bias, err := r.ConvBias.Values()
	if err != nil {
		return err
	}
	if len(w) != channels*kernel {
		return fmt.Errorf("model: convolution of %d weights, want %d of %d channels: %w", len(w), channels*kernel, channels, ErrConfig)
	}
	tasks := (channels + convChannels - 1) / convChannels
	b.pool.Run(tasks, func(_, i int) {
		from, to, row := i*convChannels, min((i+1)*convChannels, channels), 0
		for s := range states {
			for j := range kernel - 1 {
				copy(states[s].State[j*channels+from:j*channels+to], states[s].From[j*channels+from:j*channels+to])
			}
			convolve(x[row*stride:], states[s].Rows, stride, channels, from, to, kernel, w, bias, states[s].State[:(kernel-1)*channels])
			row += states[s].Rows
		}
		for r := 0; activate && r < row; r++ {
			part := x[r*stride+from : r*stride+to]
			for j, v := range part {
				part[j] = v * sigmoid(v)
			}
		}
	})
	return nil
}

// mixConv is ShortConv: out = C ⊙ conv(B⊙u).
func (b *native) mixConv(p *Pass, c *ShortConv, r *RecurrentParams, x []float32, n int, norm NormParams, states []StateRows) (*tensor.Dense, error) {
	in, width, err := b.mixerInput(p, r, x, n, norm)
	if err != nil {
		return nil, err
	}
	out := b.ws.dense(&b.ws.attended, n, c.Width)
	y := floats(out)
	for row := range n {
		dst, of := y[row*c.Width:(row+1)*c.Width], in[row*width:(row+1)*width]
		copy(dst, of[:c.Width])
		kernels.Mul(dst, of[2*c.Width:3*c.Width])
	}
	if err := b.convolveAll(y, c.Width, c.Width, c.Kernel, r, states, false); err != nil {
		return nil, err
	}
	for row := range n {
		kernels.Mul(y[row*c.Width:(row+1)*c.Width], in[row*width+c.Width:row*width+2*c.Width])
	}
	return out, nil
}
