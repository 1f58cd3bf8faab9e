package model

import (
	"fmt"
	"math"

	"terrace/weights/stream"
)

// bias is what trades a model's text for fewer reads of its experts (StreamOptions.Bias).
type bias struct {
	stream.Bias
	own int // experts that a token used before
}

// Bias is what Stream was given.
func (m *Model) Bias() stream.Bias { return m.bias.Bias }

// CheckBias refuses a bias that the model has no use for; the error wraps stream.ErrBias.
func (m *Model) CheckBias(b stream.Bias) error {
	used := m.TopK
	if m.bias.own > 0 {
		used = m.bias.own
	}
	switch {
	case !b.On():
	case m.Experts == 0:
		return fmt.Errorf("model: expert bias: the model has no experts, leave it out: %w", stream.ErrBias)
	case m.Router.Score == SparseMixer:
		return fmt.Errorf("model: expert bias: this model's router takes two experts one after the other, and no bias: %w", stream.ErrBias)
	case !(b.Margin >= 0 && b.Margin < 1):
		return fmt.Errorf("model: expert bias: margin %g, want 0 to below 1: %w", b.Margin, stream.ErrBias)
	case b.Experts != 0 && (b.Experts < 1 || b.Experts >= used):
		return fmt.Errorf("model: expert bias: %d experts a token, want fewer than the model's %d: %w", b.Experts, used, stream.ErrBias)
	}
	return nil
}

// prefer has choices of a layer's rows prefer what is in memory, as far as the model's bias goes.
func (s *streaming) prefer(layer int, to *moeScratch) {
	if to.prefer, to.moved = nil, 0; s.choose != nil && s.b.m.bias.Margin > 0 {
		to.prefer, to.margin = s.choose.Preferred(layer), s.b.m.bias.Margin
	}
}

// biased counts what the bias has changed in a layer's n rows.
func (s *streaming) biased(n int) {
	if s.choose != nil {
		own := s.b.m.bias.own
		s.choose.Changed(stream.BiasUse{Choices: int64(n * own), Moved: int64(s.b.gather.moved), Dropped: int64(n * (own - s.b.m.TopK))})
	}
}

// giveWay has the chosen experts of a row, the first used of order, that are not preferred give way to preferred ones, the least of the
// former to the best of the latter, as long as what comes has at least 1 − margin of the weight of what goes.
func (s *moeScratch) giveWay(used int) {
	if s.prefer == nil {
		return
	}
	next := used
	for out := used - 1; out >= 0; out-- {
		e := s.order[out]
		if s.prefer[e] {
			continue
		}
		for next < len(s.order) && !s.prefer[s.order[next]] {
			next++
		}
		if next == len(s.order) || math.IsInf(s.scores[s.order[next]], -1) || s.weights[s.order[next]] < (1-s.margin)*s.weights[e] {
			return
		}
		s.order[out], s.order[next] = s.order[next], e
		s.moved++
		next++
	}
}
