package engine

import (
	"cmp"
	"fmt"
	"slices"

	"terrace/model"
	"terrace/policy"
	"terrace/retrieval"
)

// Fork returns a session at the same place that shares the KV so far and goes on under a policy; nil = full attention. Close
// it.
//
// A session under full attention, or under the model's own indexer, can go on under any policy, which sees only what comes now: the caller must leave it the
// last OwnRows tokens of the prompt, and have let a policy that watches do so (Watch). A session whose policy acted on its prompt alone (it keeps tokens after the prompt, and
// does nothing while decoding) can go on under the same policy or under full attention: the context was compressed once, and
// what is read now is not compressed. Others are refused with ErrOption: their policy's state belongs to one text.
func (s *Session) Fork(under *policy.Spec) (*Session, error) {
	under, err := s.e.permit(under)
	if s.arriving != nil {
		err = errArriving
	}
	if err != nil {
		return nil, err
	}
	set, started := s.text.Policy(), len(s.tokens) > 0
	compressed := started && !s.text.Causal()
	if compressed && (!set.PromptOnly() || !under.Lossless() && under.String() != s.policy.String()) {
		return nil, fmt.Errorf("engine: fork of a session under policy %s to %s: the policy's state belongs to one text: %w", s.policy, under, ErrOption)
	}
	if started && s.e.o.WindowOnly && !under.Lossless() {
		return nil, fmt.Errorf("engine: fork under policy %s of a session that keeps windows only: %w", under, ErrOption)
	}
	logits, err := s.fetched()
	if err != nil {
		return nil, err
	}
	runs := under
	if compressed {
		runs = s.e.full
	}
	text, err := s.text.Fork(retrieval.SequenceOptions{Policy: runs})
	if err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	f, err := s.e.session(text, runs)
	if err != nil {
		return nil, err
	}
	f.setLong(s.long)
	if compressed {
		f.Sequence().States().Pin()
	}
	f.tokens, f.logits, f.past = slices.Clone(s.tokens), slices.Clone(logits), s.past.Forked(len(s.tokens), runs.String() == s.policy.String() && !compressed, compressed)
	return f, nil
}

// PromptOnly reports whether a policy's whole effect is in the pages once the prompt is read: a context that it has compressed
// can be stored, and shared by questions that it does not compress.
func (e *Engine) PromptOnly(under *policy.Spec) bool {
	set, err := under.New(e.retrieval.Shape().Model)
	return err == nil && set.PromptOnly()
}

// Watch shows a policy the queries of all rows that an empty session under full reads: one Fork goes on under it as if it had read them.
func (s *Session) Watch(under *policy.Spec) error {
	under, err := s.e.permit(under)
	if err != nil {
		return err
	}
	return s.text.Watch(under)
}

// OwnRows is how many of a prompt's last tokens must be read under the policy itself; ok is false if it has to see all, or
// if KV lies on tiers: how it lies there, and what a drive makes of it, belongs to the policy that the engine was opened with.
// A policy.Watcher must have watched those before (Watch).
func (e *Engine) OwnRows(spec *policy.Spec) (rows int, ok bool) {
	if e.retrieval.Tiered() || slices.ContainsFunc(e.m.Ropes, model.Rope.ByLength) {
		return 0, false
	}
	return spec.OwnRows()
}

// checkPolicy refuses policies that need what nothing here gives.
func checkPolicy(text *retrieval.Sequence) error {
	set := text.Policy()
	if set.Masker != nil && text.Needs().PromptSums == policy.AllRows {
		return fmt.Errorf("engine: policy %s wants the attention of all prompt queries, most of which %s leaves out: %w", set, set.Masker.Name(), model.ErrUnsupported)
	}
	return nil
}

// Permits refuses a policy that the engine's options and tiers do not allow a session. It may be called at any time.
func (e *Engine) Permits(under *policy.Spec) error {
	if under == nil || under.String() == e.policy.String() {
		return nil
	}
	err := e.o.checkKV(e.m, under)
	if err == nil && len(under.Needs().OfModel) == 0 { // which is made where a session begins
		_, err = under.New(e.policyModel())
	}
	return cmp.Or(err, e.tiers.permit(under, e.policy))
}

// permit is a session's policy, nil meaning full attention, if the engine's options permit it.
func (e *Engine) permit(under *policy.Spec) (*policy.Spec, error) {
	if under == nil {
		return e.full, nil
	}
	if under.String() == e.policy.String() {
		return under, nil
	}
	if err := e.Permits(under); err != nil {
		return nil, err
	}
	return under, e.learn(under.Needs())
}
