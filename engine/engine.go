package engine

import (
	"errors"
	"fmt"
	"runtime"

	"terrace/internal/guard"
	"terrace/internal/kernels"
	"terrace/internal/kvpage"
	"terrace/internal/trace"
	"terrace/kvmanager"
	"terrace/model"
	"terrace/offload"
	"terrace/policy"
	"terrace/retrieval"
	"terrace/weights"
)

// DefaultChunkTokens is how many prompt tokens one prefill pass takes: enough to reuse each weight panel hundreds of times,
// few enough that activations stay small.
const DefaultChunkTokens = 512

// Options of an engine; the zero value is the default path.
type Options struct {
	Backend       string            // "" = native
	Threads       int               // 0 = one a CPU
	Exact         bool              // float32 activations and KV: the reference path
	KType, VType  kvpage.Elem       // element types of the cache; see KVTypeSet
	KVTypeSet     bool              // KType and VType were chosen; otherwise f16, f32 with Exact, and on other backends what they compute in
	PageTokens    int               // tokens a page; 0 = 16
	KVWindow      int               // newest tokens that quantised KV keeps in f16; see KVWindowSet
	KVWindowSet   bool              // KVWindow was chosen, so 0 keeps none but those that do not fill a tile of 16 yet; otherwise 0 = 128
	Rotate        bool              // turn queries and keys by a Hadamard matrix before keys are stored
	KVBudgetBytes int64             // hard limit of the cache in host memory; 0 = none
	WindowOnly    bool              // sessions without a policy keep of layers with a sliding window only what later rows read; Rewind reads again
	DeviceKVBytes int64             // KV that a backend with a device of its own may hold there; 0 = no limit
	DType         model.DType       // of weights and KV on a backend's device
	Context       int               // tokens a session may hold; 0 = what the model was trained for
	Policy        string            // KV policy, name:key=value,… joined by +; "" = full
	Calibration   []int             // ids of a sample text, for policies that decompose the model's queries
	CacheDir      string            // where such a decomposition is kept; "" = computed each time
	ChunkTokens   int               // prompt tokens a prefill pass takes; 0 = DefaultChunkTokens
	Tiers         []Tier            // where KV lies, fastest first; empty = host memory, up to KVBudgetBytes
	Store         offload.Store     // a lower tier that is open already, the caller's to close; nil = what Tiers names
	Host          offload.HostRates // this host's throughputs as measured, for policies that balance it with a drive; zero = not measured
	Trace         *trace.Recorder   // timeline of compute, transfers and waits; nil = none
}

// Validate fills defaults and names what is wrong.
func (o *Options) Validate(m *model.Model) error {
	if o.Backend == "" {
		o.Backend = "native"
	}
	if o.Threads == 0 {
		o.Threads = runtime.GOMAXPROCS(0)
	}
	if o.Threads < 1 || o.Threads > 1024 {
		return fmt.Errorf("engine: %d threads, want 1 to 1024: %w", o.Threads, ErrOption)
	}
	if o.Context == 0 {
		o.Context = m.Context
	}
	if o.Context < 1 {
		return fmt.Errorf("engine: context of %d tokens: %w", o.Context, ErrOption)
	}
	if o.ChunkTokens == 0 {
		o.ChunkTokens = DefaultChunkTokens
	}
	if o.ChunkTokens < 1 {
		return fmt.Errorf("engine: prefill chunks of %d tokens: %w", o.ChunkTokens, ErrOption)
	}
	if !o.KVTypeSet {
		o.KType, o.VType = kvpage.F16, kvpage.F16
		if o.Exact || o.Backend != "native" { // the other backends compute in float32
			o.KType, o.VType = kvpage.F32, kvpage.F32
		}
		if o.DType == model.BFloat16 {
			o.KType, o.VType = kvpage.BF16, kvpage.BF16
		}
	}
	if o.Exact && o.DType != model.Float32 {
		return fmt.Errorf("engine: the exact path computes in f32, not %v: %w", o.DType, ErrOption)
	}
	if o.Exact && (o.KType != kvpage.F32 || o.VType != kvpage.F32) {
		return fmt.Errorf("engine: the exact path keeps KV in f32, not %v and %v: %w", o.KType, o.VType, ErrOption)
	}
	return nil
}

// Engine runs one model.
type Engine struct {
	m       *model.Model
	o       Options
	policy  *policy.Spec // of sessions that name none of their own (Policy)
	full    *policy.Spec
	backend model.Backend
	pool    *kernels.Pool // the backend's threads, for work between its calls; nil = it lends none
	kv      *kvmanager.Manager
	tiers   *tiers // below host memory; nil = none
	floor   *retrieval.Floor
	device  device
	pass    pass // of one call, reused, so that a decode step allocates nothing
	keeping keeping
	replays int64 // texts that were read again because a tier had lost KV
}

// Open builds the backend and an empty cache for a model. The model stays the caller's to close.
func Open(m *model.Model, o Options) (*Engine, error) {
	if err := o.Validate(m); err != nil {
		return nil, err
	}
	spec, err := policy.Parse(o.Policy)
	if err != nil {
		return nil, err
	}
	if err := o.checkKV(m, spec); err != nil {
		return nil, err
	}
	e := &Engine{m: m, o: o, policy: spec}
	if e.full, err = policy.Parse("full"); err != nil {
		return nil, err
	}
	if err := e.openTiers(); err != nil {
		return nil, err
	}
	e.kv, err = kvmanager.New(kvmanager.Options{Layers: m.Layers, KVHeads: m.KVHeads, BudgetBytes: e.o.KVBudgetBytes, Window: o.KVWindow, WindowSet: o.KVWindowSet,
		Layout: o.layout(m, spec), Backing: e.backing(), Sliding: sliding(m)})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("engine: %w", err), e.tiers.close())
	}
	if e.backend, err = model.OpenBackend(o.Backend, m, e.o.backend()); err != nil {
		return nil, errors.Join(err, e.kv.Close(), e.tiers.close())
	}
	e.device.init(e)
	if e.device.keeper == nil && e.o.DeviceKVBytes > 0 {
		err := fmt.Errorf("engine: backend %s has no device for --tier device: %w", o.Backend, ErrOption)
		return nil, errors.Join(err, e.Close())
	}
	if lender, ok := e.backend.(model.PoolLender); ok {
		e.pool = lender.Pool()
	}
	e.backend = traceBackend(e.backend, o.Trace)
	e.openFloor()
	if spec.Needs().Decomposition {
		if err := e.decompose(); err != nil {
			e.Close()
			return nil, err
		}
	}
	return e, nil
}

// openFloor puts retrieval on the cache and the tiers.
func (e *Engine) openFloor() {
	o := retrieval.Options{KV: e.kv, Record: e.shape(), BudgetBytes: e.o.KVBudgetBytes, WindowOnly: e.o.WindowOnly && e.device.keeper == nil, ChunkTokens: e.o.ChunkTokens, Threads: e.o.Threads, Pool: e.pool, Host: e.o.Host, Trace: e.o.Trace,
		Shape: retrieval.Shape{Model: policyModel(e.m), Scale: e.m.Scale(), Rope: func(layer int) retrieval.Rope { return e.m.NewRotator(layer) }}}
	o.Shape.KVBytes = e.kvBytesPerToken()
	if e.tiers != nil {
		o.Store = e.tiers.store
	}
	e.floor = retrieval.NewFloor(o)
}

// policyModel is the part of a model that policies may look at.
func policyModel(m *model.Model) policy.Model {
	p := policy.Model{Name: m.Name, Layers: m.Layers, Heads: m.Heads, KVHeads: m.KVHeads, KeyDim: m.KeyDim, ValueDim: m.ValDim,
		Hidden: m.Hidden, Context: m.Context, Window: make([]int, m.Layers)}
	for i, l := range m.Layer {
		p.Window[i] = l.Window
	}
	return p
}

// Policy is the one that Options name, for sessions that have none of their own.
func (e *Engine) Policy() *policy.Spec { return e.policy }

// backend is what the backend is opened with.
func (o *Options) backend() model.BackendOptions {
	return model.BackendOptions{Threads: o.Threads, DeviceKVBytes: o.DeviceKVBytes, DType: o.DType, Trace: o.Trace}
}

// layout is the cache's: keys lie token by token where the policy picks single ones, unless they share scales.
func (o *Options) layout(m *model.Model, spec *policy.Spec) kvpage.Layout {
	return kvpage.Layout{K: o.KType, V: o.VType, KeyDim: m.KeyDim, ValueDim: m.ValDim, Tokens: o.PageTokens,
		TokenMajor: spec.Needs().Scattered && !o.KType.Quantised()}
}

// Close gives back threads and memory.
func (e *Engine) Close() error {
	err := e.backend.Close()
	return errors.Join(err, e.kv.Close(), e.tiers.close())
}

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

// Options are the options in force, defaults filled in.
func (e *Engine) Options() Options { return e.o }

// kvBytesPerToken is what one token takes in pages over all layers and KV heads, rounded down.
func (e *Engine) kvBytesPerToken() int {
	l := e.kv.Layout()
	return e.m.Layers * e.m.KVHeads * l.PageBytes() / l.Tokens
}

// KV are the byte accounts of the cache.
func (e *Engine) KV() kvmanager.Stats { return e.kv.Stats() }

// ResetKVPeak starts a new measurement of KV().PeakBytes from what is in use now.
func (e *Engine) ResetKVPeak() { e.kv.ResetPeak() }

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
