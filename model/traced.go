package model

import (
	"gorgonia.org/tensor"

	"terrace/attention"
	"terrace/internal/trace"
)

// traced is a backend whose work is recorded, one span a call with the backend's name.
type traced struct {
	Backend
	t *trace.Recorder
}

// tracedGuesser is a traced backend that guesses queries.
type tracedGuesser struct {
	traced
	guesser QueryGuesser
}

// Traced records a backend's work; without a recorder it stays as it is.
func Traced(b Backend, t *trace.Recorder) Backend {
	if t == nil {
		return b
	}
	if g, ok := b.(QueryGuesser); ok {
		return tracedGuesser{traced{b, t}, g}
	}
	return traced{b, t}
}

// Embed implements Backend.
func (b traced) Embed(p *Pass, ids []int32) (*tensor.Dense, error) {
	defer b.t.Span(trace.Compute, "embed").By(b.Name()).End()
	return b.Backend.Embed(p, ids)
}

// Project implements Backend.
func (b traced) Project(p *Pass, layer int, hidden *tensor.Dense) (q, k, v *tensor.Dense, err error) {
	defer b.t.Layer(trace.Compute, "project", layer).By(b.Name()).End()
	return b.Backend.Project(p, layer, hidden)
}

// Attend implements Backend.
func (b traced) Attend(p *Pass, layer int, q *tensor.Dense, seqs []attention.Seq) (*tensor.Dense, error) {
	defer b.t.Layer(trace.Compute, "attend", layer).By(b.Name()).End()
	return b.Backend.Attend(p, layer, q, seqs)
}

// Finish implements Backend.
func (b traced) Finish(p *Pass, layer int, hidden, attended *tensor.Dense) (*tensor.Dense, error) {
	defer b.t.Layer(trace.Compute, "finish", layer).By(b.Name()).End()
	return b.Backend.Finish(p, layer, hidden, attended)
}

// Logits implements Backend.
func (b traced) Logits(p *Pass, hidden *tensor.Dense) (*tensor.Dense, error) {
	defer b.t.Span(trace.Compute, "logits").By(b.Name()).End()
	return b.Backend.Logits(p, hidden)
}

// GuessQuery implements QueryGuesser.
func (b tracedGuesser) GuessQuery(p *Pass, layer int, hidden *tensor.Dense) (*tensor.Dense, error) {
	defer b.t.Layer(trace.Score, "guess", layer).By(b.Name()).End()
	return b.guesser.GuessQuery(p, layer, hidden)
}
