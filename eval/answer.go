package eval

import (
	"context"
	"fmt"
	"time"
)

// Question is a prompt whose greedy answer is scored.
type Question struct {
	IDs    []int
	Encode time.Duration // what building the ids took: part of TTFT
	Cut    int           // tokens taken out of the middle
	Gen    Generate
	// Score fills Score, Values, Labels and Row of the outcome from its Pred.
	Score func(o *Outcome) error
}

// Ask runs a question under each policy and emits an outcome for each. A policy that fails alone gives a failed outcome.
func Ask(ctx context.Context, r Runner, s Sample, q Question, policies []string, emit func(Outcome) error) error {
	if c := r.Model().Context; c > 0 && len(q.IDs)+q.Gen.MaxTokens > c {
		return fmt.Errorf("eval: %d prompt tokens and %d to generate, the context holds %d (lower --max-context): %w",
			len(q.IDs), q.Gen.MaxTokens, c, ErrTooLong)
	}
	hash := HashPrompt(q.IDs, q.Gen)
	return r.Prompt(ctx, q.IDs, policies, func(i int, session Session, err error) error {
		o := Outcome{Task: s.Task, ID: s.ID, Policy: policies[i], PromptHash: hash, Prompt: len(q.IDs), Cut: q.Cut}
		if err == nil {
			err = q.answer(ctx, r, session, &o)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			o = Failed(s, policies[i], err)
			o.PromptHash = hash
		}
		return emit(o)
	})
}

func (q *Question) answer(ctx context.Context, r Runner, session Session, o *Outcome) error {
	g, err := session.Generate(ctx, q.Gen)
	if err != nil {
		return err
	}
	o.Pred = g.Text
	o.Took(q.Encode, session.Cost(), g)
	return q.Score(o)
}
