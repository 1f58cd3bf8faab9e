package engine

import (
	"cmp"

	"terrace/kvmanager"
	"terrace/model"
	"terrace/policy"
)

// choose fills in the policy of a model that has one of its own, where none was named.
func (o *Options) choose(m *model.Model) (*policy.Spec, error) {
	if o.Policy == "" && m.TrainedIndex() != nil {
		o.Policy, o.WindowOnly = ownPolicy, false
	}
	return policy.Parse(o.Policy)
}

// TextBytes is what a text of n tokens takes of host memory under Options.Policy, all of them its prompt: KVBytes, and what the policy scans.
// known is false where that is not known of the policy before a model was decomposed for it: then it is KVBytes. What lies on tiers
// is planned there. Validate must have filled o.
func TextBytes(m *model.Model, o Options) (bytes func(n int) int64, known bool) {
	plain := func(n int) int64 { return KVBytes(m, o, n) }
	spec, err := o.choose(m)
	if err != nil || len(o.Tiers) > 0 || spec.Lossless() {
		return plain, true // Open says what is wrong
	}
	if len(spec.Needs().OfModel) > 0 {
		return plain, false
	}
	s, err := ledger(m, o, spec)
	if err != nil {
		return plain, true
	}
	return func(n int) int64 {
		most, _ := s.e.kv.Most(s.course(n, 0))
		return most
	}, true
}

// ledger is a session of an engine that computes nothing: it has the accounts alone.
func ledger(m *model.Model, o Options, spec *policy.Spec) (*Session, error) {
	if err := cmp.Or(o.resolveRotation(m), o.checkKV(m, spec)); err != nil {
		return nil, err
	}
	e := &Engine{m: m, cache: CacheOf(m, o), o: o, policy: spec}
	var err error
	if e.full, err = policy.Parse("full"); err != nil {
		return nil, err
	}
	if e.kv, err = kvmanager.New(e.cacheOptions()); err != nil {
		return nil, err
	}
	if err = e.openFloor(); err != nil {
		return nil, err
	}
	return e.NewSession(spec)
}

// cacheOptions are those of the engine's cache.
func (e *Engine) cacheOptions() kvmanager.Options {
	return kvmanager.Options{Layers: e.cache, BudgetBytes: e.o.KVBudgetBytes, Window: e.o.KVWindow, WindowSet: e.o.KVWindowSet,
		Layout: e.o.format(e.policy), Backing: e.backing(), Clock: e.o.Machine.Clock}
}
