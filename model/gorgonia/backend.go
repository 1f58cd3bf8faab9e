package gorgonia

import (
	"fmt"

	_ "go4.org/unsafe/assume-no-moving-gc" // gorgonia's tensors hold pointers as integers; the pinned version knows this Go
	"gorgonia.org/tensor"

	"terrace/internal/kernels/quant"
	"terrace/model"
)

func init() { model.RegisterBackend("gorgonia", newBackend) }

// backend implements model.Backend and model.QueryGuesser.
type backend struct {
	m       *model.Model
	weights weights
	rotary  *model.RotaryRows
}

// newBackend builds the reference backend of a model; it reads weights at their first use. Threads are not used.
func newBackend(m *model.Model, _ model.BackendOptions) (model.Backend, error) {
	if err := m.OnlyPlain("gorgonia"); err != nil {
		return nil, fmt.Errorf("gorgonia: %w", err)
	}
	return &backend{m: m, weights: newWeights(), rotary: model.NewRotaryRows(&m.Config)}, nil
}

// Name implements model.Backend.
func (b *backend) Name() string { return "gorgonia" }

// Close implements model.Backend.
func (b *backend) Close() error {
	b.weights = newWeights()
	return nil
}

// Embed implements model.Backend.
func (b *backend) Embed(p *model.Pass, ids []int32) (*tensor.Dense, error) {
	m := b.m
	table := m.Params.Embed
	x := make([]float32, len(ids)*table.Cols)
	for i, id := range ids {
		if id < 0 || int(id) >= m.Vocab {
			return nil, fmt.Errorf("gorgonia: token %d of the pass is id %d, the vocabulary has %d: %w", i, id, m.Vocab, model.ErrToken)
		}
		if err := row(x[i*table.Cols:(i+1)*table.Cols], table, int(id)); err != nil {
			return nil, err
		}
	}
	s := b.sheet()
	h := s.in(matrix(len(ids), table.Cols, x))
	if !m.Params.EmbedIn.Absent() {
		h = s.linear(h, m.Params.EmbedIn)
	} else {
		h = s.scale(h, m.EmbedScale)
	}
	if m.Params.Positions != nil {
		learned, err := b.positions(p)
		if err != nil {
			return nil, err
		}
		h = s.add(h, s.in(learned))
	}
	if !m.Params.EmbedNorm.W.Absent() && m.Params.EmbedIn.Absent() {
		h = s.norm(h, m.Params.EmbedNorm)
	}
	return s.run1(h)
}

// positions are the learned position rows [n, D].
func (b *backend) positions(p *model.Pass) (*tensor.Dense, error) {
	m, table := b.m, b.m.Params.Positions
	x := make([]float32, len(p.Pos)*m.Hidden)
	for i, pos := range p.Pos {
		at := int(pos) + m.PosOffset
		if at >= table.Rows {
			return nil, fmt.Errorf("gorgonia: position %d, the model has learned %d: %w", pos, table.Rows-m.PosOffset, model.ErrConfig)
		}
		if err := row(x[i*m.Hidden:(i+1)*m.Hidden], table, at); err != nil {
			return nil, err
		}
	}
	return matrix(len(p.Pos), m.Hidden, x), nil
}

// row dequantises one row of a weight.
func row(dst []float32, l *model.Linear, i int) error {
	data, err := l.Bytes()
	if err != nil {
		return err
	}
	size := l.Tensor.Type.RowBytes(l.Cols)
	quant.Dequantize(l.Tensor.Type, dst, data[i*size:(i+1)*size])
	return nil
}

// Project implements model.Backend.
func (b *backend) Project(p *model.Pass, layer int, hidden *tensor.Dense) (q, k, v *tensor.Dense, err error) {
	a, l := &b.m.Layer[layer].Attention, &b.m.Params.Layers[layer]
	s := b.sheet()
	x := s.attentionInput(s.in(hidden), l)
	out, err := s.run(
		s.turn(p, layer, s.linear(x, l.Q), a.Heads, l.QNorm, true),
		s.turn(p, layer, s.linear(x, l.K), a.KVHeads, l.KNorm, false),
		s.linear(x, l.V))
	if err != nil {
		return nil, nil, nil, fmt.Errorf("gorgonia: layer %d: %w", layer, err)
	}
	return out[0], out[1], out[2], nil
}

// GuessQuery implements model.QueryGuesser.
func (b *backend) GuessQuery(p *model.Pass, layer int, hidden *tensor.Dense) (*tensor.Dense, error) {
	l := &b.m.Params.Layers[layer]
	s := b.sheet()
	x := s.attentionInput(s.in(hidden), l)
	return s.run1(s.turn(p, layer, s.linear(x, l.Q), b.m.Layer[layer].Heads, l.QNorm, true))
}

// Finish implements model.Backend.
func (b *backend) Finish(p *model.Pass, layer int, hidden, attended *tensor.Dense) (*tensor.Dense, error) {
	m, l := b.m, &b.m.Params.Layers[layer]
	s := b.sheet()
	x := s.addBlock(s.in(hidden), s.linear(s.in(attended), l.O), l.PostAttnNorm)
	if m.PostNorm {
		x = s.norm(x, l.AttnNorm)
	}
	in := x
	if !m.PostNorm {
		in = s.norm(x, l.FFNNorm)
	}
	var out node
	if m.Layer[layer].MoE {
		mixed, err := s.run(x, in, s.softmax(s.linear(in, l.Router)))
		if err != nil {
			return nil, fmt.Errorf("gorgonia: layer %d: %w", layer, err)
		}
		sum, err := b.mixture(l, mixed[1], mixed[2])
		if err != nil {
			return nil, fmt.Errorf("gorgonia: layer %d: %w", layer, err)
		}
		s = b.sheet()
		x, out = s.in(mixed[0]), s.in(sum)
	} else {
		out = s.feedForward(in, l.Gate, l.Up, l.Down)
	}
	x = s.addBlock(x, out, l.PostFFNNorm)
	if m.PostNorm {
		x = s.norm(x, l.FFNNorm)
	}
	return s.run1(x)
}

// Logits implements model.Backend.
func (b *backend) Logits(_ *model.Pass, hidden *tensor.Dense) (*tensor.Dense, error) {
	m := b.m
	s := b.sheet()
	x := s.in(hidden)
	if !m.NoFinal {
		x = s.norm(x, m.Params.FinalNorm)
	}
	if !m.Params.EmbedOut.Absent() {
		x = s.linear(x, m.Params.EmbedOut)
	}
	x = s.scale(s.linear(x, m.Params.Output), m.LogitScale)
	return s.run1(s.softcap(x, m.LogitSoftcap))
}
