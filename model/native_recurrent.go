package model

import (
	"fmt"
	"slices"

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
	if err := b.matmul(p.arithmetic(), floats(out), n, block); err != nil {
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
		return in, width, b.matmulNormed(p.arithmetic(), x, n, norm, append([]product{{w: r.In[0], dst: in}}, more...)...)
	}
	at := 0
	for _, w := range r.In {
		part := b.ws.floats(&b.ws.mixed, n*w.Rows)
		if err := b.matmulNormed(p.arithmetic(), x, n, norm, product{w: w, dst: part}); err != nil {
			return nil, 0, err
		}
		for row := range n {
			copy(in[row*width+at:], part[row*w.Rows:(row+1)*w.Rows])
		}
		at += w.Rows
	}
	for _, m := range more {
		if err := b.matmulNormed(p.arithmetic(), x, n, norm, m); err != nil {
			return nil, 0, err
		}
	}
	return in, width, nil
}

// convolver runs a causal convolution over channels [from, to) of all, with weights w [kernel, channels] and bias [channels] (nil = none).
type convolver struct {
	channels, from, to, kernel int
	w, bias                    []float32
	taps                       [][]float32
	tail                       []float32 // [kernel−1, to−from] of a call
}

func newConvolver(channels, from, to, kernel int, w, bias []float32) *convolver {
	c := &convolver{channels: channels, from: from, to: to, kernel: kernel, w: w[from:], taps: make([][]float32, kernel), tail: make([]float32, (kernel-1)*(to-from))}
	if bias != nil {
		c.bias = bias[from:to]
	}
	return c
}

// run convolves rows of x, stride numbers apart, in place. tail [kernel−1, channels] are the inputs before the first row, oldest first,
// and afterwards the last ones.
func (c *convolver) run(x []float32, rows, stride int, tail []float32) {
	n, keep := c.to-c.from, c.kernel-1
	input := func(r int) []float32 { // row r, before it is convolved; those before the first are negative
		if r < 0 {
			return tail[(keep+r)*c.channels+c.from:][:n]
		}
		return x[r*stride+c.from:][:n]
	}
	for j := range keep {
		copy(c.tail[j*n:(j+1)*n], input(rows-keep+j))
	}
	for r := rows - 1; r >= 0; r-- { // a row's inputs are the rows before it
		for j := range c.taps {
			c.taps[j] = input(r - keep + j)
		}
		kernels.Convolve(c.taps[keep], c.taps, c.w, c.channels, c.bias)
	}
	for j := range keep {
		copy(tail[j*c.channels+c.from:][:n], c.tail[j*n:(j+1)*n])
	}
}

// silu applies it to rows of x.
func (c *convolver) silu(x []float32, rows, stride int) {
	for r := range rows {
		part := x[r*stride+c.from : r*stride+c.to]
		kernels.SiluMul(part, part, ones[:len(part)])
	}
}

var ones = slices.Repeat([]float32{1}, convChannels)

// convolution is the weights of a layer's convolution, [kernel, channels]: each tap's side by side.
func (b *native) convolution(r *RecurrentParams, channels, kernel int) ([]float32, error) {
	if w := b.taps[r]; w != nil {
		return w, nil
	}
	var w []float32
	for _, v := range r.Conv {
		part, err := v.Values()
		if err != nil {
			return nil, err
		}
		w = append(w, part...)
	}
	if len(w) != channels*kernel {
		return nil, fmt.Errorf("model: convolution of %d weights, want %d of %d channels: %w", len(w), channels*kernel, channels, ErrConfig)
	}
	turned := make([]float32, len(w))
	for c := range channels {
		for j := range kernel {
			turned[j*channels+c] = w[c*kernel+j]
		}
	}
	b.taps[r] = turned
	return turned, nil
}

// convChannels is how many channels a task convolves.
const convChannels = 256

// convolveAll convolves all channels of every sequence, tasks side by side; then silu, where asked.
func (b *native) convolveAll(x []float32, stride, channels, kernel int, r *RecurrentParams, states []StateRows, activate bool) error {
	w, err := b.convolution(r, channels, kernel)
	if err != nil {
		return err
	}
	bias, err := r.ConvBias.Values()
	if err != nil {
		return err
	}
	tasks := (channels + convChannels - 1) / convChannels
	b.pool.Run(tasks, func(_, i int) {
		from, to, row := i*convChannels, min((i+1)*convChannels, channels), 0
		c := newConvolver(channels, from, to, kernel, w, bias)
		for s := range states {
			for j := range kernel - 1 {
				copy(states[s].State[j*channels+from:j*channels+to], states[s].From[j*channels+from:j*channels+to])
			}
			c.run(x[row*stride:], states[s].Rows, stride, states[s].State[:(kernel-1)*channels])
			row += states[s].Rows
		}
		if activate {
			c.silu(x, row, stride)
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
