package engine

import (
	"gorgonia.org/tensor"

	"terrace/attention"
	"terrace/internal/trace"
	"terrace/model"
)

// traced is a backend whose work is recorded, one span a call with the backend's name.
type traced struct {
	model.Backend
	t *trace.Recorder
}

// tracedGuesser is a traced backend that guesses queries.
type tracedGuesser struct {
	traced
	guesser model.QueryGuesser
}

// traceBackend records a backend's work; without a recorder it stays as it is.
func traceBackend(b model.Backend, t *trace.Recorder) model.Backend {
	if t == nil {
		return b
	}
	if g, ok := b.(model.QueryGuesser); ok {
		return tracedGuesser{traced{b, t}, g}
	}
	return traced{b, t}
}

// Embed implements model.Backend.
func (b traced) Embed(p *model.Pass, ids []int32) (*tensor.Dense, error) {
	defer b.t.Span(trace.Compute, "embed").By(b.Name()).End()
	return b.Backend.Embed(p, ids)
}

// Project implements model.Backend.
func (b traced) Project(p *model.Pass, layer int, hidden *tensor.Dense) (q, k, v *tensor.Dense, err error) {
	defer b.t.Layer(trace.Compute, "project", layer).By(b.Name()).End()
	return b.Backend.Project(p, layer, hidden)
}

// Attend implements model.Backend.
func (b traced) Attend(p *model.Pass, layer int, q *tensor.Dense, seqs []attention.Seq) (*tensor.Dense, error) {
	defer b.t.Layer(trace.Compute, "attend", layer).By(b.Name()).End()
	return b.Backend.Attend(p, layer, q, seqs)
}

// Finish implements model.Backend.
func (b traced) Finish(p *model.Pass, layer int, hidden, attended *tensor.Dense) (*tensor.Dense, error) {
	defer b.t.Layer(trace.Compute, "finish", layer).By(b.Name()).End()
	return b.Backend.Finish(p, layer, hidden, attended)
}

// Logits implements model.Backend.
func (b traced) Logits(p *model.Pass, hidden *tensor.Dense) (*tensor.Dense, error) {
	defer b.t.Span(trace.Compute, "logits").By(b.Name()).End()
	return b.Backend.Logits(p, hidden)
}

// GuessQuery implements model.QueryGuesser.
func (b tracedGuesser) GuessQuery(p *model.Pass, layer int, hidden *tensor.Dense) (*tensor.Dense, error) {
	defer b.t.Layer(trace.Score, "guess", layer).By(b.Name()).End()
	return b.guesser.GuessQuery(p, layer, hidden)
}
