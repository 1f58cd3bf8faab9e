package engine

import (
	"fmt"
	"slices"

	"terrace/policy"
)

// NewSessionUnder returns an empty session under another policy than the engine's own; nil = full. Close it.
func (e *Engine) NewSessionUnder(spec *policy.Spec) (*Session, error) {
	if spec != nil && spec.Needs().Decomposition && e.decomposition == nil {
		if err := e.decompose(); err != nil {
			return nil, err
		}
	}
	run, err := e.newRun(spec)
	if err != nil {
		return nil, err
	}
	return e.session(run, spec), nil
}

// ForkUnder returns a session at the same place that shares the KV so far and goes on under a policy, so that a prompt is
// read once for several. The policy sees only what comes now: the caller must leave it the last OwnRows tokens of the
// prompt. A session that is under a policy itself cannot be shared (ErrOption).
func (s *Session) ForkUnder(spec *policy.Spec) (*Session, error) {
	if s.policy != nil {
		return nil, fmt.Errorf("engine: fork of a session under policy %s: %w", s.policy.set, ErrOption)
	}
	logits, err := s.fetched()
	if err != nil {
		return nil, err
	}
	f, err := s.e.NewSessionUnder(spec)
	if err != nil {
		return nil, err
	}
	seq, err := s.seq.Fork()
	if err != nil {
		f.Close()
		return nil, err
	}
	f.seq.Free()
	f.seq, f.tokens, f.next, f.logits = seq, slices.Clone(s.tokens), s.next, slices.Clone(logits)
	f.history = s.sharedReads()
	return f, nil
}

// OwnRows is how many of a prompt's last tokens must be read under the policy itself; ok is false if it has to see all, or
// if KV lies on tiers: how it lies there, and what a drive makes of it, belongs to the policy that the engine was opened with.
func (e *Engine) OwnRows(spec *policy.Spec) (rows int, ok bool) {
	n := spec.Needs()
	if e.tiers != nil || n.PromptMass == policy.AllRows || n.Queries == policy.AllRows || n.Weights != 0 || n.QueryStats || n.WholePrompt {
		return 0, false
	}
	for _, r := range e.m.Ropes {
		if r.LongFreq != nil || r.DynamicBase > 0 {
			return 0, false // positions are rotated by the length of the prompt's passes
		}
	}
	return max(1, n.PromptMass, n.Queries), true
}
