package terrace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"

	"terrace/engine"
	"terrace/engine/prefixcache"
	"terrace/engine/tier"
	"terrace/hub"
	"terrace/internal/tierspec"
	"terrace/kvmanager/contexts"
	"terrace/kvmanager/values"
	"terrace/model"
	"terrace/serve"
	"terrace/serve/meter"
	"terrace/tokenizer"
)

// Options of Open. The zero value is every default.
type Options struct {
	Policy       string   // KV policy of answers and sessions that name none, as --policy of infer: "h2o:budget=20%"; "" = full attention
	Tiers        []string // where KV lies, fastest first: "host=256MiB", "ssd=/path,8GiB", "csd=unix:/socket"; none = host memory without a limit. ",prompts=SIZE" behind ssd (a part of it) or host (what running texts leave, at most so much), and valkey and s3, keep prompts as Store does
	Weights      string   // of the model's weights at most so much lies in memory, the rest is read from its file as it is needed: "host=8GiB"; "" = all that is used
	Memory       string   // one bound for the process, such as "8GiB": weights and KV are planned within it, said by Notice; "" = none, but that a model larger than what is free is bounded by that
	ExpertBias   string   // trades the text for fewer reads of experts where Weights or Memory bounds them: "margin=20%", "experts=3" or both (docs/weights.md); "" = the text of all weights in memory
	MemoryBeside int64    // of Memory, bytes that are the caller's, not the model's
	Context      int      // tokens of a text at most; 0 = what the model was trained for
	Threads      int      // that compute; 0 = one a CPU
	Exact        bool     // float32 activations and KV: the slow reference

	Backend  string // what computes: a name of model.Backends; "" = native
	DType    string // of weights, KV and products on another backend's device: "f32" or "bf16"; "" = f32
	KVType   string // element types of KV: "f32", "f16", "bf16", "int8", "int4", "int3", "int2", or "k=TYPE,v=TYPE", and behind quantised ones "LAYERS=TYPE" for some ("int3,0-1+29=int8", "int4,sliding=f16"); "" = f16, f32 with Exact, DType on other backends
	KVWindow int    // newest tokens that quantised KV keeps in f16; 0 = 128, less than 0 = none but those that do not fill a group yet (16, of int3 and int2 keys 128)
	KVRotate string // outliers are spread by a Hadamard rotation before KV is stored: "none", "k", "v", "kv" or "auto" (values of 4 bits and fewer); "" = auto

	// DeviceLayers is how many layers a Backend with a device computes there, the last ones: "auto" (those that it has kernels and room for; the CPU
	// computes the others), a number, or "all": ErrModel or the device's error where it cannot; "" = all. Behind it ",cpu-moe" leaves experts to the
	// CPU, ",cpu-moe=N" those of the first N layers.
	DeviceLayers string

	WindowOnly bool         // of texts without a policy, layers with a sliding window keep only what later tokens read: such texts cannot be forked under a policy
	Chunk      int          // prompt tokens that are read in one pass; 0 = 512
	Page       int          // tokens of a page of KV, a multiple of 16; 0 = 16, of int3 and int2 keys 128
	Timeline   *Timeline    // where times of compute, transfers and waits are recorded; nil = nowhere
	Machine    tier.Machine // what the engine runs on, for simulations; zero = this one

	Filters  []string  // files of q-filters that policies of sessions and requests may name (qfilter:filters=@FILE), beside those that Policy names
	Adapters []Adapter // LoRA, merged into the weights
	Template string    // chat template (Jinja); "" = the model's own

	Batch int                // texts that are made at a time; 0 = 8
	Queue int                // requests of Generate, Chat and Handler that wait beside them; 0 = 64
	Keys  []string           // of Handler: one of which each HTTP request needs; none = no keys
	Hosts bool               // of Handler: requests for any Host are served, not those for this machine's loopback names alone
	Names []string           // of the model, for Handler's clients; none = as given to Open
	Log   *slog.Logger       // of Handler; nil = none
	Meter func() meter.Meter // of Handler's /metrics: prom.New of serve/meter/prom; nil = none are kept

	// Store is where KV of prompts is kept for later texts and runs, fastest first: "host=256MiB", "ssd=/path,8GiB", "valkey=HOST:PORT,SIZE"
	// and "s3=URL/BUCKET,SIZE" where the program imports terrace/kvmanager/values/remote; none = nowhere. Texts stay the same. One that
	// fails, or is of no use, costs a Notice.
	Store       []string
	StoreAccess values.Access // names and passwords of Store's servers
	Encoder     *Encoder      // of Handler's /v1/embeddings, the caller's to close after the Model; nil = there is none

	Hub    hub.Options       // where models, and what is measured of them, are kept, and where they are fetched from
	Notice func(line string) // is told what the user should know, in one line; nil = nobody is
}

// Model is an open model. Close it.
type Model struct {
	file   *File
	tok    *tokenizer.Tokenizer
	engine *engine.Engine
	server *serve.Server
	store  *contexts.Store // nil = none

	mu       sync.Mutex
	closed   bool
	sessions map[*Session]struct{}
}

// Open opens a model by its name (as infer pull takes it: "smollm2:135m", "hf:ORG/REPO", a path of a GGUF file or of a folder
// with safetensors), which is fetched where it is not here yet. Errors are those of errors.go, and of the model's files.
func Open(ctx context.Context, name string, o Options) (*Model, error) {
	m := &Model{sessions: map[*Session]struct{}{}}
	if err := m.open(ctx, name, o); err != nil {
		return nil, errors.Join(err, m.release())
	}
	return m, nil
}

func (m *Model) open(ctx context.Context, name string, o Options) (err error) {
	if _, err = o.engine(); err != nil { // before anything is fetched
		return err
	}
	if specs, err := storesOf(&o); err != nil {
		return err
	} else if o.Memory != "" {
		for _, s := range specs {
			if s.Kind == tierspec.Host && !s.Lent {
				o.MemoryBeside += s.CapacityBytes
			}
		}
	}
	if m.file, err = OpenFile(ctx, name, o); err != nil {
		return err
	}
	if _, err = m.file.Model(); err != nil {
		return err
	}
	if m.tok, err = m.file.Tokenizer(o.Template); err != nil {
		return err
	}
	for _, w := range m.tok.Warnings() {
		o.notice("%s", w)
	}
	for _, line := range m.file.Weights().Notices() {
		o.notice("%s", line)
	}
	o.Batch = cmp.Or(o.Batch, serve.DefaultBatch)
	if m.engine, err = m.file.Engine(ctx, o); err != nil {
		return err
	}
	so := serve.Options{Engine: m.engine, Tokenizer: m.tok, Names: o.Names, ModelPath: m.file.Path(), Batch: o.Batch, Queue: o.Queue, Keys: o.Keys, AnyHost: o.Hosts, Log: o.Log, Meter: o.Meter}
	var wrong error
	if so.Sampling, wrong = model.OwnSampling(m.file.Weights()); wrong != nil {
		o.notice("%v: not taken", wrong)
	}
	if o.Encoder != nil {
		so.Encoders = &serve.Encoders{Encoder: o.Encoder.enc, Name: o.Encoder.file.name}
	}
	if err := m.keepPrompts(ctx, &o, name); err != nil {
		return err
	}
	if len(so.Names) == 0 {
		so.Names = []string{name}
	}
	if so.Queue == 0 {
		so.Queue = 64
	}
	m.server, err = serve.New(so)
	return err
}

// keepPrompts gives the engine its store.
func (m *Model) keepPrompts(ctx context.Context, o *Options, name string) error {
	specs, err := storesOf(o)
	if err != nil || len(specs) == 0 {
		return err
	}
	var trouble error
	m.store, trouble = contexts.Open(ctx, specs, contexts.Options{Notice: o.Notice, Access: o.StoreAccess})
	if trouble != nil {
		o.notice("%v: going on without it", trouble)
	}
	cache, err := prefixcache.Use(m.engine, m.store, name)
	if err != nil {
		return err
	}
	if why := cache.Unfit(m.engine.Policy()); why != "" && !m.store.Empty() {
		o.notice("the store is not used: %s", why)
	}
	return nil
}

// storesOf reads Options.Store, and what Options.Tiers keeps of prompts, which comes after it.
func storesOf(o *Options) (specs []contexts.Spec, err error) {
	for _, text := range o.Store {
		s, err := tierspec.Parse(text)
		if err != nil {
			return nil, fmt.Errorf("terrace: Store: %w", marked{err, ErrOption})
		}
		specs = append(specs, s)
	}
	_, stored, err := tiersOf(o)
	if err != nil {
		return nil, err
	}
	specs = append(specs, stored...)
	if err := contexts.CheckSpecs(specs); err != nil {
		return nil, fmt.Errorf("terrace: Store: %w", marked{err, ErrOption})
	}
	return specs, nil
}

// Name is what the model was opened by.
func (m *Model) Name() string { return m.file.name }

// Context is how many tokens a text holds at most, the prompt's included.
func (m *Model) Context() int { return m.engine.Options().Context }

// Tokens is how many tokens a text has.
func (m *Model) Tokens(text string) (int, error) {
	ids, err := m.tok.Encode(text, false, false)
	return len(ids), err
}

// Handler is the model as an HTTP server: the APIs and the web page of infer serve (docs/server.md), with the model's own batch.
// Whoever listens with it sets the limits of headers, by [serve.Limit].
func (m *Model) Handler() http.Handler { return m.server.Handler() }

// Close ends every answer and session, and unmaps the model.
func (m *Model) Close() error {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return nil
	}
	m.closed = true
	open := m.sessions
	m.sessions = nil
	m.mu.Unlock()
	for s := range open {
		s.end()
	}
	return m.release()
}

// release gives back what was opened.
func (m *Model) release() (err error) {
	if m.server != nil {
		m.server.Close()
	}
	if m.engine != nil {
		err = m.engine.Close()
	}
	if m.store != nil {
		err = errors.Join(err, m.store.Close())
	}
	if m.file != nil {
		err = errors.Join(err, m.file.Close())
	}
	return err
}
