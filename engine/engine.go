package engine

import (
	"cmp"
	"errors"
	"fmt"

	"terrace/internal/cacheshape"
	"terrace/internal/guard"
	"terrace/internal/kernels"
	"terrace/kvmanager"
	"terrace/model"
	"terrace/offload"
	"terrace/policy"
	"terrace/retrieval"
	"terrace/weights"
)

// Engine runs one model: the one place where model, policy and cache meet, so that its methods ask each for the others.
type Engine struct {
	m         *model.Model
	cache     cacheshape.Model // what each layer keeps of a text
	o         Options
	policy    *policy.Spec // of sessions that name none of their own (Policy)
	full      *policy.Spec
	backend   model.Backend
	pool      *kernels.Pool   // the backend's threads, for work between its calls; nil = it lends none
	mixes     bool            // prompts and steps may share a pass (Advance)
	recurs    model.Recurrent // the backend, if it has recurrent layers
	rows      model.RowReader // the backend, if it says what of its rows a layer works on
	kv        *kvmanager.Manager
	indexes   model.Indexing   // the backend, if layers have a trained indexer
	tiers     *tiers           // below host memory; nil = none
	drives    offload.Attender // that attend; nil = none
	retrieval *retrieval.Shared
	device    device
	pass      pass  // of one call, reused, so that a decode step allocates nothing
	second    *pass // of a step in two mini-batches; nil until there is one
	keeping   keeping
	prefixes  PrefixCache // KV that outlives sessions; nil = there is none
	replays   int64       // texts that were read again because a tier had lost KV
}

// Open builds the backend and an empty cache for a model. The model stays the caller's to close.
func Open(m *model.Model, o Options) (*Engine, error) {
	if err := o.Validate(m); err != nil {
		return nil, err
	}
	spec, err := o.choose(m)
	if err != nil {
		return nil, err
	}
	if err := cmp.Or(o.resolveRotation(m), o.checkKV(m, spec)); err != nil {
		return nil, err
	}
	e := &Engine{m: m, cache: CacheOf(m, o), o: o, policy: spec}
	if e.full, err = policy.Parse("full"); err != nil {
		return nil, err
	}
	if err := e.openTiers(); err != nil {
		return nil, err
	}
	e.kv, err = kvmanager.New(e.cacheOptions())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("engine: %w", err), e.closeTiers())
	}
	if e.backend, err = model.OpenBackend(o.Backend, m, e.o.backend()); err != nil {
		return nil, errors.Join(err, e.kv.Close(), e.closeTiers())
	}
	e.backend = o.Machine.Wrapped(e.backend)
	e.device.init(e)
	if e.device.keeper == nil && e.o.DeviceKVBytes > 0 {
		err := fmt.Errorf("engine: backend %s has no device for --tier device: %w", o.Backend, ErrOption)
		return nil, errors.Join(err, e.Close())
	}
	if lender, ok := e.backend.(model.PoolLender); ok {
		e.pool = lender.Pool()
	}
	e.recurs, _ = e.backend.(model.Recurrent)
	e.indexes, _ = e.backend.(model.Indexing)
	e.rows, _ = e.backend.(model.RowReader)
	_, e.mixes = e.backend.(model.Mixer)
	e.mixes = e.mixes && e.tiers == nil && e.drives == nil
	e.backend = model.Traced(e.backend, o.Trace)
	if err := errors.Join(e.openIndexer(), e.openFloor()); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	if err := e.learn(spec.Needs()); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

// openFloor puts retrieval on the cache and the tiers.
func (e *Engine) openFloor() error {
	o := retrieval.Options{KV: e.kv, Record: e.shape(), BudgetBytes: e.o.KVBudgetBytes, WindowOnly: e.o.WindowOnly && e.device.keeper == nil, ChunkTokens: e.o.ChunkTokens, Threads: e.o.Threads, Sequences: e.o.Batch, Pool: e.pool, Host: e.o.Host, Trace: e.o.Trace, Clock: e.o.Machine.Clock, Scored: e.o.Machine.Scored,
		Shape: retrieval.Shape{Model: e.policyModel(), RowWidth: e.m.RowWidth(), Rope: func(layer int, long bool) retrieval.Rope { return e.m.NewRotator(layer, long) }}}
	o.Shape.Output = func(layer int) ([]float32, error) { return e.outputOfValues(layer) }
	o.Shape.Turned = e.o.Rotate.Values()
	o.Shape.KVBytes, o.Exact, o.Drives = e.ActingBytesPerToken(), e.o.Exact, e.drives
	for i := range e.m.Layer {
		a := &e.m.Layer[i]
		sinks, err := e.m.Params.Layers[i].Sinks.Values()
		if err != nil {
			return fmt.Errorf("engine: sinks of layer %d: %w", i, err)
		}
		o.Shape.Scores = append(o.Shape.Scores, retrieval.Score{Scale: a.ScoreScale(), Softcap: a.Softcap, Sinks: sinks})
	}
	if e.tiers != nil {
		o.Store = e.tiers.store
	}
	e.retrieval = retrieval.NewShared(o)
	return nil
}

// policyModel is the part of a model that policies may look at.
func (e *Engine) policyModel() policy.Model {
	return policy.Model{Index: e.trainedIndex(), Name: e.m.Name, Layers: e.cache, Hidden: e.m.Hidden, Context: e.m.Context, Interlaced: len(e.m.Ropes) > 0 && e.m.Ropes[0].Interlaced, Filters: e.o.Filters}
}

// Policy is the one that Options name, for sessions that have none of their own.
func (e *Engine) Policy() *policy.Spec { return e.policy }

// Close gives back threads and memory.
func (e *Engine) Close() error {
	err := e.backend.Close()
	return errors.Join(err, e.kv.Close(), e.closeTiers())
}

// closeTiers closes what lies below host memory.
func (e *Engine) closeTiers() error {
	err := e.tiers.close()
	if e.drives != nil {
		err = errors.Join(err, e.drives.Close())
	}
	return err
}

// ReadWeights reads the weights of a decode step without computing and returns their bytes; 0 where the backend has them elsewhere.
func (e *Engine) ReadWeights() (int64, error) { return e.m.ReadWeights(e.pool) }

// Model is the model the engine runs.
func (e *Engine) Model() *model.Model { return e.m }

// CheckModel compares the model's files with what they were when opened. Weights are read where they lie, so that a file
// that was written over changes results without a sign: whoever drives sessions step by step asks at the end of a text (what
// Prefill, Generate, Perplexity and Bench do themselves). Errors wrap weights.ErrFileChanged.
func (e *Engine) CheckModel() error {
	if e.m.File == nil {
		return nil
	}
	return e.m.File.CheckUnchanged()
}

// CheckAfter is CheckModel after work that ended with err. Weights that were written over may well give logits that are not
// finite, so ErrNotFinite gives way to weights.ErrFileChanged; other errors stay.
func (e *Engine) CheckAfter(err error) error {
	if err == nil || errors.Is(err, ErrNotFinite) {
		return cmp.Or(e.CheckModel(), err)
	}
	return err
}

// Options are the options in force, defaults filled in.
func (e *Engine) Options() Options { return e.o }

// ActingBytesPerToken is KVBytesPerToken of the layers that policies act on: what budgets in bytes count, and what may be dropped.
func (e *Engine) ActingBytesPerToken() int {
	acting, m := make(cacheshape.Model, len(e.cache)), policy.Model{Layers: e.cache}
	for i := range e.cache {
		if m.Acts(i) {
			acting[i] = e.cache[i]
		}
	}
	return TokenBytes(acting, e.kv.Format())
}

// KVBytesPerToken is what one token takes in pages over all layers and KV heads, rounded down.
func (e *Engine) KVBytesPerToken() int {
	return TokenBytes(e.cache, e.kv.Format())
}

// KV are the byte accounts of the cache.
func (e *Engine) KV() kvmanager.Stats { return e.kv.Stats() }

// phase is the arithmetic class of a pass.
func (e *Engine) phase(prefill bool) kernels.Phase {
	switch {
	case e.o.Exact:
		return kernels.Exact
	case prefill:
		return kernels.Prefill
	}
	return kernels.Decode
}

// guarded is the safety net of a pass: a panic is a Crash, a fault in a model file that was cut while in use is
// weights.ErrFileChanged.
func guarded(pass func() error) error {
	return guard.Run(func() error { return weights.Guard(pass) })
}
