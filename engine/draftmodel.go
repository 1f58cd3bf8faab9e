package engine

import (
	"context"
	"fmt"

	"terrace/model"
)

// DraftModel guesses what a smaller model with the same vocabulary would choose greedily.
type DraftModel struct {
	name   string
	s      *Session
	tokens []int
	greedy *model.Sampler
}

// NewDraftModel returns a drafter on an engine of its own, which stays the caller's to close after it.
func NewDraftModel(name string, e *Engine) (*DraftModel, error) {
	s, err := e.NewSession(nil)
	if err != nil {
		return nil, err
	}
	return &DraftModel{name: name, s: s, greedy: model.NewSampler(model.SamplerOptions{})}, nil
}

// Name implements Drafter.
func (d *DraftModel) Name() string { return "draft=" + d.name }

// Close implements Drafter.
func (d *DraftModel) Close() error {
	d.s.Close()
	return nil
}

// Look implements Drafter: a model always has a guess, up to the end of its context.
func (d *DraftModel) Look(tokens []int) int {
	d.tokens = tokens
	if len(tokens) >= d.s.e.o.Context {
		return -1
	}
	return 0
}

// Draft implements Drafter.
func (d *DraftModel) Draft(dst []int, n int) ([]int, error) {
	n = min(n, d.s.e.o.Context-len(d.tokens))
	if err := d.follow(); err != nil {
		return dst, fmt.Errorf("engine: draft model %s: %w", d.name, err)
	}
	for i := range n {
		id, err := d.s.Choose(d.greedy)
		if err != nil {
			return dst, fmt.Errorf("engine: draft model %s: %w", d.name, err)
		}
		dst = append(dst, id)
		if i == n-1 {
			break
		}
		if err := d.s.Decode(id); err != nil {
			return dst, fmt.Errorf("engine: draft model %s: %w", d.name, err)
		}
	}
	return dst, nil
}

// follow brings the draft model's session to the text.
func (d *DraftModel) follow() error {
	same, have := 0, d.s.IDs()
	for same < min(len(have), len(d.tokens)-1) && have[same] == d.tokens[same] {
		same++
	}
	if err := d.s.Rewind(same); err != nil {
		return err
	}
	rest := d.tokens[same:]
	if len(rest) > 2*MaxDraft {
		return d.s.Prefill(context.Background(), rest, PrefillHooks{})
	}
	for _, id := range rest {
		if err := d.s.Decode(id); err != nil {
			return err
		}
	}
	return nil
}
