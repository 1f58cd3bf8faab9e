package model

import (
	"slices"

	"gorgonia.org/tensor"

	"terrace/weights/stream"
)

// streaming is the native backend's part in a model whose weights are not all in memory (Model.Stream): it says which are needed next
// and waits for those that are needed now. Without such a model its methods do nothing.
type streaming struct {
	b      *native
	store  *stream.Store   // of experts; nil = all are there
	sweep  *stream.Sweeper // of a dense model's layers
	step   stream.Step
	guess  moeScratch // choices of the next layer's router
	outs   []float32  // of experts that are computed as they come, [experts of the step, rows, D]
	at     []int      // where each expert's begin
	likely []int
	choose *stream.Chooser // nil: choices are the router's own
}

func (s *streaming) init(b *native) {
	s.b = b
	switch st := b.m.streamed; {
	case st == nil:
	case b.m.Experts > 0:
		if s.store = st; b.m.bias.On() {
			s.choose = stream.NewChooser(st)
		}
	default:
		s.sweep = st.Sweeper()
	}
}

func (s *streaming) end() {
	if s.sweep != nil {
		s.sweep.End()
	}
}

// enter waits for a layer that is about to be computed in.
func (s *streaming) enter(layer int) error {
	if s.sweep == nil {
		return nil
	}
	return s.sweep.Enter(layer)
}

// peek waits for a layer beside the one that was entered.
func (s *streaming) peek(layer int) error {
	if s.sweep == nil {
		return nil
	}
	return s.sweep.Peek(layer)
}

// predict has the experts read that the router of a layer would choose for hidden rows x [n, D] of an earlier place,
// or [n, RowWidth] of several copies; of rows that carry more besides none.
func (s *streaming) predict(p *Pass, layer int, x []float32, n int) error {
	b := s.b
	m := b.m
	if s.store == nil || layer >= m.Layers || !m.Layer[layer].MoE || m.wide() {
		return nil
	}
	s.likely = s.likely[:0]
	l := &m.Params.Layers[layer]
	in, norm := x, l.FFNNorm
	if l.Beside != nil {
		norm = l.Beside.RouterNorm
	}
	if m.Copies > 1 {
		var err error
		if in, err = b.mixCopies(p.arithmetic(), x, n, &l.FFNHyper); err != nil {
			return err
		}
	} else if !m.PostNorm && !norm.W.Absent() {
		in = b.ws.floats(&b.ws.guessNormed, n*m.Hidden)
		if err := b.norm(in, x, n, m.Hidden, norm); err != nil {
			return err
		}
	}
	logits := b.ws.floats(&b.ws.router, n*m.Experts)
	if err := b.matmul(p.arithmetic(), in, n, product{w: l.Router, dst: logits}); err != nil {
		return err
	}
	bias, err := l.RouterBias.Values()
	if err != nil {
		return err
	}
	s.prefer(layer, &s.guess)
	s.guess.route(&m.Config, logits, bias, n)
	if m.Routed != nil {
		m.Routed(layer, s.guess.rows, true)
	}
	for e, rows := range s.guess.rows {
		if len(rows) > 0 {
			s.likely = append(s.likely, e)
		}
	}
	s.store.Predict(layer, s.likely)
	return nil
}

// predictNext is predict of the layer behind one, of the rows that go into that.
func (b *native) predictNext(p *Pass, layer int, hidden *tensor.Dense) error {
	if b.streaming.store == nil {
		return nil
	}
	x, err := b.layerRows(p, layer, hidden, false)
	if err != nil {
		return err
	}
	return b.streaming.predict(p, layer+1, x, hidden.Shape()[0])
}

// fewRows is where a step is small enough that its experts' outputs are kept until all are computed, so that those in memory need not
// wait for those before them.
const fewRows = 16

// mixture is the experts' part of native.mixture, in the order in which they come, with sums in the order of their numbers.
func (s *streaming) mixture(ph arithmetic, layer int, dst, in []float32, n int) (err error) {
	b, l := s.b, &s.b.m.Params.Layers[layer]
	rows := b.gather.rows
	s.store.Use(&s.step, layer, func(e int) int { return len(rows[e]) }, n, n > fewRows)
	defer s.step.End()
	if n > fewRows {
		for {
			e, ok, err := s.step.Next()
			if err != nil || !ok {
				return err
			}
			if err := b.expert(ph, l, e, dst, in); err != nil {
				return err
			}
		}
	}
	s.outs, s.at = s.outs[:0], slices.Grow(s.at[:0], len(rows))[:len(rows)]
	for {
		e, ok, err := s.step.Next()
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		s.at[e] = len(s.outs)
		end := len(s.outs) + len(rows[e])*b.m.ExpertRow()
		s.outs = slices.Grow(s.outs, end-len(s.outs))[:end]
		if err := b.expertOut(ph, l, e, s.outs[s.at[e]:end], in); err != nil {
			return err
		}
	}
	for e := range rows {
		if len(rows[e]) > 0 {
			b.addExpert(e, dst, s.outs[s.at[e]:])
		}
	}
	return nil
}
