package model

import (
	"fmt"
	"math"

	"terrace/internal/kernels"
	"terrace/internal/kernels/quant"
)

// addNGrams adds a layer's embedding of n-grams to the rows x [n, RowWidth]; at is where its numbers begin in each sequence's state.
func (b *native) addNGrams(p *Pass, layer int, x []float32, n int, states []StateRows, at int) error {
	g, l := b.m.Layer[layer].NGrams, &b.m.Params.Layers[layer].NGrams
	embedded := b.ws.floats(&b.ws.ngrams, n*g.Heads()*g.Dim)
	if err := b.embedNGrams(g, l, x, states, at+(g.Kernel-1)*g.Size*g.Channels, embedded); err != nil {
		return err
	}
	d, wide, row := b.m.Hidden, g.Channels, b.m.RowWidth()
	keys, values := b.ws.floats(&b.ws.copyGates, n*wide), b.ws.floats(&b.ws.copyIn, n*d)
	if err := b.matmul(p.arithmetic(), embedded, n, product{w: l.Key, dst: keys}, product{w: l.Value, dst: values}); err != nil {
		return err
	}
	queries := b.ws.floats(&b.ws.copies, n*wide)
	if err := b.normCopies(x, n, l.QueryNorm, queries); err != nil {
		return err
	}
	keyNorm, err := l.KeyNorm.W.Values()
	if err != nil {
		return err
	}
	upNorm, err := l.UpNorm.W.Values()
	if err != nil {
		return err
	}
	up, normed := b.ws.floats(&b.ws.ngramUp, n*wide), b.ws.floats(&b.ws.ngramConv, n*wide)
	b.pool.Run(n, func(_, r int) {
		for s := 0; s < wide; s += d {
			key := keys[r*wide+s:][:d]
			kernels.RMSNorm(key, key, keyNorm[s:s+d], b.m.NormEps)
			dot := float64(kernels.Dot(key, queries[r*wide+s:][:d])) / math.Sqrt(float64(d))
			gate := math.Copysign(math.Sqrt(max(math.Abs(dot), 1e-6)), dot)
			if dot == 0 {
				gate = 0
			}
			u := up[r*wide+s:][:d]
			copy(u, values[r*d:(r+1)*d])
			kernels.Scale(u, sigmoid(float32(gate)))
			kernels.RMSNorm(normed[r*wide+s:][:d], u, upNorm[s:s+d], b.m.NormEps)
		}
	})
	if err := b.convolveApart(g, l, normed, states, at); err != nil {
		return err
	}
	b.pool.Run(n, func(_, r int) {
		kernels.Add(x[r*row:][:wide], up[r*wide:][:wide])
		kernels.Add(x[r*row:][:wide], normed[r*wide:][:wide])
	})
	return nil
}

// embedNGrams fills dst [rows, Heads·Dim] with the table's rows of each token's n-grams; the sequences' last tokens are in their states from at
// on, oldest first, each plus 1 (0 = the text has none).
func (b *native) embedNGrams(g *NGrams, l *NGramParams, x []float32, states []StateRows, at int, dst []float32) error {
	width, row := b.m.RowWidth(), 0
	last := make([]int, g.Size) // the row's token, the one before it, …
	for i := range states {
		history := make([]float32, g.Size-1, g.Size-1+states[i].Rows)
		copy(history, states[i].From[at:])
		for range states[i].Rows {
			history = append(history, x[(row+1)*width-1]+1)
			g.recent(history, last)
			if err := g.lookUp(l, last, dst[row*g.Heads()*g.Dim:][:g.Heads()*g.Dim]); err != nil {
				return err
			}
			row++
		}
		copy(states[i].State[at:], history[len(history)-g.Size+1:])
	}
	return nil
}

// recent fills last with the newest tokens of a history (each plus 1, 0 = the text has none), the newest first: where a text has ended there
// are only ends before.
func (g *NGrams) recent(history []float32, last []int) {
	ended := false
	for j := range last {
		token := int(history[len(history)-1-j]) - 1
		if ended = ended || token < 0 || j > 0 && token == g.End; ended {
			token = g.End
		}
		last[j] = token
	}
}

// lookUp reads the rows of the n-grams of the last tokens, the newest first.
func (g *NGrams) lookUp(l *NGramParams, last []int, dst []float32) error {
	mixed := int64(last[0]) * int64(g.Multiplier[0])
	for n := 2; n <= g.Size; n++ {
		mixed ^= int64(last[n-1]) * int64(g.Multiplier[n-1])
		for h := (n - 2) * g.Each; h < (n-1)*g.Each; h++ {
			size := int64(g.Sizes[h])
			at := int((mixed%size+size)%size) + g.Offsets[h]
			if err := l.row(at, dst[h*g.Dim:(h+1)*g.Dim]); err != nil {
				return err
			}
		}
	}
	return nil
}

// row reads a row of the table where it lies: most of a large table is never looked at, so each row is checked by itself.
func (l *NGramParams) row(at int, dst []float32) error {
	part := l.Table[at/l.Table[0].Rows]
	t, size := part.Tensor, part.Tensor.Type.RowBytes(part.Cols)
	data := t.Raw()
	if data == nil {
		if _, err := t.Bytes(); err != nil {
			return err
		}
	}
	at %= l.Table[0].Rows
	quant.Dequantize(t.Type, dst, data[at*size:(at+1)*size])
	for _, x := range dst {
		if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
			return fmt.Errorf("model: tensor %q: row %d is not finite: %w", t.Name, at, ErrConfig)
		}
	}
	return nil
}

// convolveApart is silu of a causal convolution over rows of x [rows, Channels], in place, whose taps are Size rows apart; the inputs before the
// first row are in the sequences' states from at on, oldest first.
func (b *native) convolveApart(g *NGrams, l *NGramParams, x []float32, states []StateRows, at int) error {
	w, err := l.Conv.Values()
	if err != nil {
		return err
	}
	wide, kept := g.Channels, (g.Kernel-1)*g.Size
	b.pool.Run((wide+convChannels-1)/convChannels, func(_, task int) {
		row := 0
		var inputs []float32
		for i := range states {
			rows := states[i].Rows
			for c := task * convChannels; c < min((task+1)*convChannels, wide); c++ {
				inputs = inputs[:0]
				for j := range kept {
					inputs = append(inputs, states[i].From[at+j*wide+c])
				}
				for r := range rows {
					inputs = append(inputs, x[(row+r)*wide+c])
				}
				for r := range rows {
					sum := float32(0)
					for j := range g.Kernel {
						sum += w[c*g.Kernel+j] * inputs[r+j*g.Size]
					}
					x[(row+r)*wide+c] = sum * sigmoid(sum)
				}
				for j := range kept {
					states[i].State[at+j*wide+c] = inputs[rows+j]
				}
			}
			row += rows
		}
	})
	return nil
}
