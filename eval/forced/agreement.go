package forced

import (
	"context"
	"fmt"
	"maps"

	"terrace/eval"
)

// Prompts is a suite that gives its prompts without their answers (longbench, ruler).
type Prompts interface {
	eval.Suite
	// PromptIDs is what the model reads for a sample.
	PromptIDs(r eval.Runner, x eval.Sample) ([]int, error)
}

// Agreement runs another suite's prompts: full answers greedily, and each policy is forced along that answer.
type Agreement struct {
	prompts Prompts
	tokens  int
}

// NewAgreement compares the predictions of tokens tokens a prompt.
func NewAgreement(prompts Prompts, tokens int) (*Agreement, error) {
	if tokens < 1 {
		return nil, fmt.Errorf("forced: %d tokens a prompt, want 1 or more: %w", tokens, eval.ErrOption)
	}
	return &Agreement{prompts, tokens}, nil
}

// Name is agreement.
func (s *Agreement) Name() string { return "agreement" }

// Options are the prompts' own and the number of tokens.
func (s *Agreement) Options() any {
	return map[string]any{"prompts": s.prompts.Name(), "prompt_options": s.prompts.Options(), "tokens": s.tokens}
}

// Metric is the share of positions with the same likeliest token.
func (s *Agreement) Metric(string) eval.Metric {
	return eval.Metric{Name: "same_top", Kind: eval.Percent}
}

// Samples are those of the prompts.
func (s *Agreement) Samples(ctx context.Context, r eval.Runner) ([]eval.Sample, error) {
	return s.prompts.Samples(ctx, r)
}

// Evaluate compares each policy with full on one prompt.
func (s *Agreement) Evaluate(ctx context.Context, r eval.Runner, x eval.Sample, policies []string, emit func(eval.Outcome) error) error {
	ids, err := s.prompts.PromptIDs(r, x)
	if err != nil {
		return err
	}
	if c := r.Model().Context; c > 0 && len(ids)+s.tokens > c {
		return fmt.Errorf("forced: %d prompt tokens and %d to compare, the context holds %d: %w", len(ids), s.tokens, c, eval.ErrTooLong)
	}
	all, extra := withFull(policies)
	full, hash := newBase(r.Model().Vocab), eval.HashPrompt(ids, s.tokens)
	var answer []int // what full says
	var read float64 // bytes that a step of full reads
	return r.Prompt(ctx, ids, all, func(i int, session eval.Session, err error) error {
		o := eval.Outcome{Task: x.Task, ID: x.ID, Policy: all[i], PromptHash: hash, Prompt: len(ids)}
		if err == nil && i == 0 {
			answer, err = s.follow(ctx, session, full)
			read = session.Cost().StepKV
		}
		if err == nil {
			err = s.compare(ctx, session, answer, full, i == 0, &o)
			moved(&o, session.Cost(), read)
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case i == 0 && err != nil:
			return err // nothing to compare with
		case i == 0 && extra:
			return nil
		case err != nil:
			o = eval.Failed(x, all[i], err)
			o.PromptHash = hash
		}
		return emit(o)
	})
}

// moved notes what a decoded token costs in bytes: KV that is attended to and what is scanned to choose it; and both as a share of
// what full reads.
func moved(o *eval.Outcome, c eval.Cost, full float64) {
	if c.StepKV == 0 || full == 0 || o.Values == nil {
		return // one position is compared, the prompt's own: nothing was decoded
	}
	o.Values["kv_mib_per_token"], o.Values["scan_mib_per_token"] = c.StepKV/(1<<20), c.StepScanned/(1<<20)
	o.Values["bytes_share"] = (c.StepKV + c.StepScanned) / full
}

// follow decodes greedily and keeps every prediction.
func (s *Agreement) follow(ctx context.Context, session eval.Session, full *base) ([]int, error) {
	var answer []int
	var lp []float64
	keep := func(logits []float32) int {
		if lp == nil {
			lp = make([]float64, len(logits))
		}
		logProbs(lp, logits)
		full.add(lp)
		top := 0
		for k, v := range lp {
			if v > lp[top] {
				top = k
			}
		}
		return top
	}
	next := keep(session.Logits())
	for len(answer) < s.tokens-1 && len(full.rows) < full.room {
		answer = append(answer, next)
		err := session.Force(ctx, answer[len(answer)-1:], func(_ int, logits []float32) error { next = keep(logits); return nil })
		if err != nil {
			return nil, err
		}
	}
	return answer, nil
}

// compare forces a policy along full's answer; full itself agrees by definition.
func (s *Agreement) compare(ctx context.Context, session eval.Session, answer []int, full *base, isFull bool, o *eval.Outcome) error {
	c := comparison{base: full}
	if isFull {
		n := len(full.rows)
		c.n, c.same, c.prefix = n, n, n
	} else {
		lp := make([]float64, len(session.Logits()))
		logProbs(lp, session.Logits())
		c.add(0, lp)
		err := session.Force(ctx, answer, func(i int, logits []float32) error {
			logProbs(lp, logits)
			c.add(i+1, lp)
			return nil
		})
		if err != nil {
			return err
		}
	}
	score := float64(c.same) / float64(c.n)
	o.Score, o.Values, o.Generated = &score, maps.Clone(c.values()), c.n
	delete(o.Values, "same_top")
	o.Took(0, session.Cost(), nil)
	return nil
}
