package model

import (
	"fmt"
	"math"

	"gorgonia.org/tensor"

	"terrace/internal/kernels"
)

// widen makes rows that carry more than the residual: the embeddings x [n, D] as streams, and the ids behind them.
func (b *native) widen(p *Pass, ids []int32, x []float32, n int) (*tensor.Dense, error) {
	m := b.m
	d, width := m.Hidden, m.RowWidth()
	hidden := b.ws.dense(&b.ws.wide, n, width)
	rows := floats(hidden)
	for r := range n {
		copy(rows[r*width:], x[r*d:(r+1)*d])
		if m.PerLayer > 0 {
			rows[(r+1)*width-1] = float32(ids[r]) // exact: ids are less than 1<<24
		}
	}
	for i, w := range m.Params.StreamIn {
		y := b.ws.floats(&b.ws.block, n*d)
		if err := b.matmul(p.arithmetic(), x, n, product{w: w, dst: y}); err != nil {
			return nil, err
		}
		for r := range n {
			part := rows[r*width+(i+1)*d:][:d]
			copy(part, y[r*d:])
			asLarge(part, x[r*d:(r+1)*d])
		}
	}
	return hidden, nil
}

// asLarge scales x to the root of the mean square of another vector.
func asLarge(x, as []float32) {
	kernels.Scale(x, float32(rms(as)/math.Max(rms(x), math.Sqrt(1e-5))))
}

func rms(x []float32) float64 { return math.Sqrt(float64(kernels.Dot(x, x)) / float64(len(x))) }

// unwiden are the rows [n, D] that the head reads: the residual, or the mean of the streams, each as large as the first.
func (b *native) unwiden(p *Pass, hidden *tensor.Dense) ([]float32, error) {
	m, rows := b.m, floats(hidden)
	n, d, width := hidden.Shape()[0], m.Hidden, m.RowWidth()
	x := b.ws.floats(&b.ws.stream, n*d)
	take(x, rows, n, d, width, 0)
	if m.Streams.Count == 0 {
		return x, nil
	}
	s, y := b.ws.floats(&b.ws.predicted, n*d), b.ws.floats(&b.ws.block, n*d)
	for i, w := range m.Params.StreamOut {
		take(s, rows, n, d, width, i+1)
		if err := b.matmul(p.arithmetic(), s, n, product{w: w, dst: y}); err != nil {
			return nil, err
		}
		for r := range n {
			part := y[r*d : (r+1)*d]
			asLarge(part, rows[r*width:r*width+d])
			kernels.Add(x[r*d:(r+1)*d], part)
		}
	}
	kernels.Scale(x, 1/float32(m.Streams.Count))
	return x, nil
}

// take copies a stream of rows width apart to x [n, d].
func take(x, rows []float32, n, d, width, stream int) {
	for r := range n {
		copy(x[r*d:(r+1)*d], rows[r*width+stream*d:])
	}
}

// layerRows are the rows [n, D] that a layer works on: the hidden rows themselves, or in scratch what of them it works on. Streams are guessed into
// ws.predicted [n, Count·D] where all is asked for.
func (b *native) layerRows(p *Pass, layer int, hidden *tensor.Dense, all bool) ([]float32, error) {
	m, rows := b.m, floats(hidden)
	if !m.wide() {
		return rows, nil
	}
	n, d, width := hidden.Shape()[0], m.Hidden, m.RowWidth()
	x := b.ws.floats(&b.ws.stream, n*d)
	take(x, rows, n, d, width, m.Streams.Active)
	count := m.Streams.Count
	if count == 0 {
		return x, nil
	}
	s := m.Params.Layers[layer].Streams
	modes, err := b.modes(p, s, x, n)
	if err != nil {
		return nil, err
	}
	predict, err := s.Predict.Values()
	if err != nil {
		return nil, err
	}
	guesses := b.ws.floats(&b.ws.predicted, n*count*d)
	b.pool.Run(n, func(_, r int) {
		from, mode := rows[r*width:(r+1)*width], modes[r*count:(r+1)*count]
		for i := range count {
			if !all && i != m.Streams.Active {
				continue
			}
			to := guesses[(r*count+i)*d:][:d]
			copy(to, from[i*d:])
			for j := range count {
				kernels.Axpy(to, kernels.Dot(predict[(i*count+j)*count:][:count], mode), from[j*d:(j+1)*d])
			}
		}
		copy(x[r*d:(r+1)*d], guesses[(r*count+m.Streams.Active)*d:])
	})
	return x, nil
}

// LayerRows implements RowReader.
func (b *native) LayerRows(p *Pass, layer int, hidden *tensor.Dense) ([]float32, error) {
	if err := b.streaming.enter(layer); err != nil {
		return nil, err
	}
	x, _, _, err := b.blockRows(p, layer, hidden, NormParams{}, &b.m.Params.Layers[layer].AttnHyper)
	return x, err
}

// modes is tanh(Router·norm(x)/D) of rows x [n, D].
func (b *native) modes(p *Pass, s *StreamParams, x []float32, n int) ([]float32, error) {
	modes := b.ws.floats(&b.ws.modes, n*s.Router.Rows)
	if err := b.matmulNormed(p.arithmetic(), x, n, s.RouterNorm, product{w: s.Router, dst: modes}); err != nil {
		return nil, err
	}
	for i, v := range modes {
		modes[i] = float32(math.Tanh(float64(v) / float64(b.m.Hidden)))
	}
	return modes, nil
}

// correct takes what a layer made of its rows, y [n, D], into all streams of rows [n, RowWidth], from the guesses in ws.predicted. Afterwards y is the
// active stream, scaled as per-layer inputs see it.
func (b *native) correct(p *Pass, layer int, rows, y []float32, n int) error {
	m, s := b.m, b.m.Params.Layers[layer].Streams
	modes, err := b.modes(p, s, y, n)
	if err != nil {
		return err
	}
	weights, err := s.Correct.Values()
	if err != nil {
		return err
	}
	scale, err := s.Scale.Values()
	if err != nil {
		return err
	}
	d, width, count := m.Hidden, m.RowWidth(), m.Streams.Count
	guesses := b.ws.predicted.data
	b.pool.Run(n, func(_, r int) {
		from, to, mode := guesses[r*count*d:(r+1)*count*d], rows[r*width:(r+1)*width], modes[r*count:(r+1)*count]
		news := y[r*d : (r+1)*d]
		kernels.Axpy(news, -1, from[m.Streams.Active*d:][:d])
		copy(to, from)
		for i := range count {
			kernels.Axpy(to[i*d:(i+1)*d], 1+kernels.Dot(weights[i*count:(i+1)*count], mode), news)
		}
		copy(news, to[m.Streams.Active*d:])
		if scale != nil {
			kernels.Mul(news, scale)
		}
	})
	return nil
}

// finishWide is Finish of rows that carry more than the residual.
func (b *native) finishWide(p *Pass, layer int, hidden, attended *tensor.Dense) (*tensor.Dense, error) {
	m, rows := b.m, floats(hidden)
	n, d, width := hidden.Shape()[0], m.Hidden, m.RowWidth()
	x, err := b.layerRows(p, layer, hidden, true)
	if err != nil {
		return nil, err
	}
	if err := b.finishRows(p, layer, x, n, attended); err != nil {
		return nil, err
	}
	streams := m.Streams.Count
	if streams > 0 {
		if err := b.correct(p, layer, rows, x, n); err != nil {
			return nil, err
		}
	}
	var more []float32
	if m.PerLayer > 0 {
		if more, err = b.perLayer(p, layer, rows, x, n); err != nil {
			return nil, err
		}
	}
	if streams > 0 {
		for r := range n {
			for i := 1; i < streams && more != nil; i++ {
				kernels.Add(rows[r*width+i*d:][:d], more[r*d:(r+1)*d])
			}
		}
		return hidden, nil
	}
	kernels.Add(x[:n*d], more)
	if err := b.scaleOut(layer, x[:n*d]); err != nil {
		return nil, err
	}
	for r := range n {
		copy(rows[r*width:], x[r*d:(r+1)*d])
	}
	return hidden, nil
}

// scaleOut is the factor on all of a layer's output, where it has one.
func (b *native) scaleOut(layer int, x []float32) error {
	scale, err := b.m.Params.Layers[layer].OutScale.Values()
	if err == nil && scale != nil {
		kernels.Scale(x, scale[0])
	}
	return err
}

// perLayer is what a layer's input of each row's token adds to rows x [n, D].
func (b *native) perLayer(p *Pass, layer int, rows, x []float32, n int) ([]float32, error) {
	m, l := b.m, b.m.Params.Layers[layer].PerLayer
	in, err := b.tokenInputs(p, layer, rows, n)
	if err != nil {
		return nil, err
	}
	g := b.ws.floats(&b.ws.gate, n*m.PerLayer)
	if err := b.matmul(p.arithmetic(), x, n, product{w: l.Gate, dst: g}); err != nil {
		return nil, err
	}
	t := &b.rows
	t.act, t.dst, t.gate, t.up, t.rows, t.width = m.Act, in, g, in, n, m.PerLayer
	b.pool.Run(t.tasks(n), t.activationRows)
	out := b.ws.floats(&b.ws.block, n*m.Hidden)
	if err := b.matmul(p.arithmetic(), in, n, product{w: l.Up, dst: out}); err != nil {
		return nil, err
	}
	return out, b.norm(out, out, n, m.Hidden, l.Norm)
}

// tokenInputs are a layer's inputs [n, P] of the tokens of rows.
func (b *native) tokenInputs(p *Pass, layer int, rows []float32, n int) ([]float32, error) {
	m := b.m
	width, size := m.RowWidth(), m.PerLayer
	table := m.Params.PerLayerTable
	x := b.ws.floats(&b.ws.row, n*m.Hidden)
	for r := range n {
		id := int(rows[(r+1)*width-1])
		if id < 0 || id >= m.Vocab {
			return nil, fmt.Errorf("model: row %d of the pass is of id %d, the vocabulary has %d: %w", r, id, m.Vocab, ErrToken)
		}
		if err := m.Params.Embed.Row(x[r*m.Hidden:(r+1)*m.Hidden], id); err != nil {
			return nil, err
		}
	}
	kernels.Scale(x, orOne(m.EmbedScale)/float32(math.Sqrt(float64(m.Hidden))))
	in := b.ws.floats(&b.ws.perLayer, n*size)
	if err := b.matmul(p.arithmetic(), x, n, product{w: m.Params.Layers[layer].PerLayer.Proj, dst: in}); err != nil {
		return nil, err
	}
	if err := b.norm(in, in, n, size, m.Params.PerLayerNorm); err != nil {
		return nil, err
	}
	own := b.ws.floats(&b.ws.tokenRow, size)
	for r := range n {
		id := int(rows[(r+1)*width-1])
		if id >= table.Rows {
			id = 0 // ids behind the text's have no row of their own
		}
		if err := table.Tensor.Row(own, id, layer*size); err != nil {
			return nil, err
		}
		kernels.Axpy(in[r*size:(r+1)*size], float32(math.Sqrt(float64(size))), own)
	}
	kernels.Scale(in, float32(math.Sqrt(0.5)))
	return in, nil
}

// laurel is z + norm(Up·Down·z) of the normed rows z of x [n, D], in scratch.
func (b *native) laurel(p *Pass, l *LayerParams, x []float32, n int) ([]float32, error) {
	d := b.m.Hidden
	z, low, out := b.ws.floats(&b.ws.laurel, n*d), b.ws.floats(&b.ws.latent, n*l.Laurel.Down.Rows), b.ws.floats(&b.ws.block, n*d)
	if err := b.norm(z, x, n, d, l.AttnNorm); err != nil {
		return nil, err
	}
	if err := b.matmul(p.arithmetic(), z, n, product{w: l.Laurel.Down, dst: low}); err != nil {
		return nil, err
	}
	if err := b.matmul(p.arithmetic(), low, n, product{w: l.Laurel.Up, dst: out}); err != nil {
		return nil, err
	}
	if err := b.norm(out, out, n, d, l.Laurel.Norm); err != nil {
		return nil, err
	}
	kernels.Add(z, out)
	return z, nil
}
