package model

import (
	"slices"

	"terrace/internal/kernels"
)

// moeScratch groups rows by expert.
type moeScratch struct {
	in, out []float32
	rows    [][]int   // rows of each expert
	share   []float32 // [n, experts] weight of an expert for a row, 0 = not used
	scores  []float64 // of one row's experts, to choose by
	weights []float64 // of one row's experts, before they are normalised
	order   []int

	prefer []bool  // experts that others give way to (bias.go); nil = none
	margin float64 // by how much their weight may be less
	moved  int     // choices that gave way
}

// mixture routes each row to its experts (Router) and adds their outputs by weight, and what the shared network gives. Rows of one
// expert are computed together; a row's sum runs over experts in order, so that it does not depend on the other rows. Where experts work on
// a latent, the router and the shared network see the row itself.
func (b *native) mixture(ph arithmetic, layer int, out product, in []float32, n int) error {
	l := &b.m.Params.Layers[layer]
	logits := b.ws.floats(&b.ws.router, n*b.m.Experts)
	if err := b.matmul(ph, in, n, product{w: l.Router, dst: logits}); err != nil {
		return err
	}
	if err := b.routed(ph, layer, out, in, logits, n); err != nil {
		return err
	}
	return b.sharedExpert(ph, l, out.dst, in, n)
}

// routed adds the outputs of the experts that the router's logits [n, experts] choose.
func (b *native) routed(ph arithmetic, layer int, out product, in, logits []float32, n int) error {
	m, s, l := b.m, &b.gather, &b.m.Params.Layers[layer]
	bias, err := l.RouterBias.Values()
	if err != nil {
		return err
	}
	factors, err := l.ExpertScale.Values()
	if err != nil {
		return err
	}
	b.streaming.prefer(layer, s)
	s.route(&m.Config, logits, bias, n)
	b.streaming.biased(n)
	if m.Routed != nil {
		m.Routed(layer, s.rows, false)
	}
	for i := range s.share[:n*len(factors)] {
		s.share[i] *= factors[i%len(factors)]
	}
	if !out.add {
		clear(out.dst[:n*m.Hidden])
	}
	if m.MoELatent == 0 {
		err = b.experts(ph, layer, out.dst, in, n)
	} else {
		low, sum := b.ws.floats(&b.ws.latentIn, n*m.MoELatent), b.ws.floats(&b.ws.latentOut, n*m.MoELatent)
		clear(sum)
		if err = b.matmul(ph, in, n, product{w: l.ExpertIn, dst: low}); err == nil {
			err = b.experts(ph, layer, sum, low, n)
		}
		if err == nil {
			err = b.matmul(ph, sum, n, product{w: l.ExpertOut, dst: out.dst, add: true})
		}
	}
	return err
}

// experts adds to dst [n, ExpertRow] what the experts of a layer make of the rows of in that chose them.
func (b *native) experts(ph arithmetic, layer int, dst, in []float32, n int) (err error) {
	if b.streaming.store != nil {
		return b.streaming.mixture(ph, layer, dst, in, n)
	}
	for e := 0; e < b.m.Experts && err == nil; e++ {
		err = b.expert(ph, &b.m.Params.Layers[layer], e, dst, in)
	}
	return err
}

// ExpertRow is the numbers of a row that experts work on.
func (c *Config) ExpertRow() int {
	if c.MoELatent > 0 {
		return c.MoELatent
	}
	return c.Hidden
}

// expert adds to dst what an expert makes of the rows of in that chose it.
func (b *native) expert(ph arithmetic, l *LayerParams, e int, dst, in []float32) error {
	s := &b.gather
	if len(s.rows[e]) == 0 {
		return nil
	}
	size := len(s.rows[e]) * b.m.ExpertRow()
	s.out = slices.Grow(s.out[:0], size)[:size]
	if err := b.expertOut(ph, l, e, s.out, in); err != nil {
		return err
	}
	b.addExpert(e, dst, s.out)
	return nil
}

// expertOut computes what an expert makes of the rows of in that chose it, one behind another.
func (b *native) expertOut(ph arithmetic, l *LayerParams, e int, dst, in []float32) error {
	m, s, width := b.m, &b.gather, b.m.ExpertRow()
	rows := s.rows[e]
	s.in = slices.Grow(s.in[:0], len(rows)*width)[:len(rows)*width]
	for i, r := range rows {
		row := s.in[i*width : (i+1)*width]
		copy(row, in[r*width:(r+1)*width])
		if m.Router.OnInput {
			kernels.Scale(row, s.share[r*m.Experts+e])
		}
	}
	var gate *Linear
	if len(l.ExpertGate) > 0 {
		gate = l.ExpertGate[e]
	}
	return b.dense(ph.of(rows), gate, l.ExpertUp[e], product{w: l.ExpertDown[e], dst: dst}, s.in, len(rows), NormParams{})
}

// addExpert adds an expert's rows to those of dst that chose it, by weight.
func (b *native) addExpert(e int, dst, rows []float32) {
	m, s, width := b.m, &b.gather, b.m.ExpertRow()
	for i, r := range s.rows[e] {
		share := s.share[r*m.Experts+e]
		if m.Router.OnInput {
			share = 1
		}
		kernels.Axpy(dst[r*width:(r+1)*width], share, rows[i*width:(i+1)*width])
	}
}

// sharedExpert adds to dst what the network beside the experts makes of the rows of in.
func (b *native) sharedExpert(ph arithmetic, l *LayerParams, dst, in []float32, n int) error {
	if l.SharedUp.Absent() {
		return nil
	}
	if l.SharedRouter.Absent() {
		return b.dense(ph, l.SharedGate, l.SharedUp, product{w: l.SharedDown, dst: dst, add: true}, in, n, NormParams{})
	}
	width := b.m.Hidden
	gates := b.ws.floats(&b.ws.sharedGate, n)
	if err := b.matmul(ph, in, n, product{w: l.SharedRouter, dst: gates}); err != nil {
		return err
	}
	y := b.ws.floats(&b.ws.shared, n*width)
	if err := b.dense(ph, l.SharedGate, l.SharedUp, product{w: l.SharedDown, dst: y}, in, n, NormParams{}); err != nil {
		return err
	}
	for r, g := range gates {
		kernels.Axpy(dst[r*width:(r+1)*width], sigmoid(g), y[r*width:(r+1)*width])
	}
	return nil
}
