package local

import (
	"context"
	"time"

	"terrace/engine"
	"terrace/eval"
	"terrace/policy"
)

// plan says which policies of a prompt share its reading.
type plan struct {
	specs  []*policy.Spec // nil = reads the prompt itself
	common int            // tokens read once
}

// planShared finds the policies that may share all but the last tokens of a prompt. Fewer than two share nothing. What a store has of
// a prompt is not read again, so nothing can be watched there.
func planShared(e *engine.Engine, policies []string, promptTokens int) plan {
	p := plan{specs: make([]*policy.Spec, len(policies))}
	own, sharing := 1, 0
	for i, text := range policies {
		spec, err := policy.Parse(text)
		if err != nil {
			continue // it fails alone, when its turn comes
		}
		if rows, ok := e.OwnRows(spec); ok && rows < promptTokens && !(spec.Watches() && e.PrefixCache() != nil) {
			p.specs[i], own = spec, max(own, rows)
			sharing++
		}
	}
	p.common = promptTokens - own
	if sharing < 2 || p.common < 1 {
		p.specs, p.common = make([]*policy.Spec, len(policies)), 0
	}
	return p
}

// base is the part of a prompt that several policies share.
type base struct {
	e    *engine.Engine
	s    *engine.Session
	took time.Duration
}

// readBase reads the common part once, under no policy; those that watch do so.
func (r *Runner) readBase(ctx context.Context, e *engine.Engine, ids []int, specs []*policy.Spec) (*base, error) {
	begun := time.Now()
	s, err := e.NewSession(e.Policy())
	if err != nil {
		return nil, err
	}
	for i, spec := range specs {
		if spec != nil && spec.Watches() && s.Watch(spec) != nil {
			specs[i] = nil // it fails alone, when its turn comes
		}
	}
	if _, err := s.PrefillStored(ctx, ids, "", engine.PrefillHooks{}); err != nil {
		s.Close()
		return nil, err
	}
	return &base{e: e, s: s, took: time.Since(begun)}, nil
}

// promptOn reads the rest of a prompt under a policy, on what was read already. The time is that of both parts: what the
// policy would have taken alone, and what others took to watch.
func (r *Runner) promptOn(ctx context.Context, b *base, ids []int, spec *policy.Spec, name string) (*engineSession, error) {
	begun := time.Now()
	s, err := b.s.Fork(spec)
	if err != nil {
		return nil, err
	}
	es := &engineSession{r: r, e: b.e, s: s, prompt: ids, policy: name, on: b, spec: spec, base: b.s.Sequence().Bytes()}
	if err := s.Prefill(ctx, ids[b.s.Tokens():], engine.PrefillHooks{}); err != nil {
		s.Close()
		return nil, err
	}
	es.prefill = b.took + time.Since(begun)
	es.note()
	return es, nil
}

// Prompt implements eval.Runner.
func (r *Runner) Prompt(ctx context.Context, ids []int, policies []string, use func(int, eval.Session, error) error) error {
	p := plan{specs: make([]*policy.Spec, len(policies))}
	var full *engine.Engine
	var err error
	if !r.onTiers {
		if full, err = r.engine("full"); err != nil {
			return err
		}
		p = planShared(full, policies, len(ids))
	}
	var b *base
	if p.common > 0 {
		if b, err = r.readBase(ctx, full, ids[:p.common], p.specs); err != nil {
			return err
		}
		defer b.s.Close()
	}
	for i, name := range policies {
		var s *engineSession
		if p.specs[i] != nil {
			s, err = r.promptOn(ctx, b, ids, p.specs[i], name)
		} else {
			s, err = r.prompt(ctx, ids, name)
		}
		if ctx.Err() != nil {
			if err == nil {
				s.s.Close()
			}
			return ctx.Err()
		}
		if err != nil {
			err = use(i, nil, err)
		} else {
			err = lend(s, func() error { return use(i, s, nil) })
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// lend closes the session after use, also where that panics.
func lend(s *engineSession, use func() error) error {
	defer s.s.Close()
	return use()
}
