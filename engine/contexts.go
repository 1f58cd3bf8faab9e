package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"

	"terrace/internal/kernels"
	"terrace/kvmanager/contexts"
	"terrace/policy"
)

// numerics is counted up with every change that gives other bits for the same weights and tokens: what was stored before is then
// not found any more (TestNumerics notices).
const numerics = 1

// contextTokens is how many tokens a block of a plain prefix has, at least.
const contextTokens = 64

// Contexts is an engine's part in a store of contexts: keys for what its sessions read, and records made from their KV.
//
// How a server uses it. In any goroutine, as soon as the prompt is known:
//
//	p := engine.Contexts().Find(ctx, ids, spec, salt)   // begins to fetch; never nil, never an error
//
// then, in the engine's turn, with a new session under the same spec:
//
//	reused, err := session.Resume(ctx, p)               // KV of the first reused.Tokens tokens is there; 0 = nothing was
//	err = session.Prefill(ctx, ids[reused.Tokens:], …)  // the rest; what is new is stored in the background
//
// At least one token is always left to compute. Text is what it would be without the store, bit for bit: a record holds what a
// prompt's pass computed, and only prompts are stored and found (tokens that were decoded are not: another arithmetic class).
// What was stored under a salt is found under that salt alone. Trouble of the store is its notice, never an error here.
type Contexts struct {
	e      *Engine
	store  *contexts.Store
	fields []contexts.Field
	info   string
	block  int    // tokens of a block
	unfit  string // why KV of this engine cannot be kept; empty = it can
}

// UseContexts gives the engine a store, which stays the caller's; name is what people call the model. It reads all weights once,
// for the fingerprint. An engine has one store at most.
func (e *Engine) UseContexts(store *contexts.Store, name string) error {
	c := &Contexts{e: e, store: store, info: name, unfit: e.unfitForContexts()}
	l := e.kv.Layout()
	c.block = (contextTokens + l.Tokens - 1) / l.Tokens * l.Tokens
	if c.quantised() {
		c.block = e.o.ChunkTokens // a row's arithmetic looks at the window, which moves by chunks
	}
	if c.unfit == "" {
		if err := c.fingerprint(); err != nil {
			return fmt.Errorf("engine: %w", err)
		}
	}
	e.contexts = c
	return nil
}

// Contexts is the engine's part in its store; nil = it has none.
func (e *Engine) Contexts() *Contexts { return e.contexts }

// Unfit says why the store is of no use to sessions under a policy; empty = it is of use.
func (c *Contexts) Unfit(under *policy.Spec) string {
	switch {
	case c.unfit != "":
		return c.unfit
	case !under.Lossless() && !c.e.PromptOnly(under):
		return fmt.Sprintf("the state of policy %s belongs to one text", under)
	}
	return ""
}

// unfitForContexts says what of an engine cannot be kept.
func (e *Engine) unfitForContexts() string {
	for _, r := range e.m.Ropes {
		if r.LongFreq != nil || r.DynamicBase > 0 {
			return "the model turns keys by the length of the whole prompt"
		}
	}
	l := e.kv.Layout()
	quantised := l.K.Quantised() || l.V.Quantised()
	switch {
	case e.m.File == nil:
		return "the model has no file"
	case e.device.keeper != nil:
		return "KV lies on a device"
	case e.floor.Tiered():
		return "KV lies on --tier below host memory"
	case e.o.WindowOnly:
		return "layers with a sliding window keep their windows only"
	case quantised && (l.Tokens > 16 || e.o.ChunkTokens%16 != 0 || e.o.ChunkTokens < e.o.KVWindow):
		return "quantised KV is kept with pages of 16 tokens, and chunks of a multiple of 16 that are no smaller than the window"
	}
	return ""
}

func (c *Contexts) quantised() bool {
	l := c.e.kv.Layout()
	return l.K.Quantised() || l.V.Quantised()
}

// fingerprint names all that shapes the bytes of KV but the policy.
func (c *Contexts) fingerprint() error {
	digest, err := c.e.m.File.Digest()
	if err != nil {
		return err
	}
	o, m := &c.e.o, c.e.m
	add := func(name string, value any) {
		c.fields = append(c.fields, contexts.Field{Name: name, Value: fmt.Sprint(value)})
	}
	add("numerics", numerics)
	add("weights", fmt.Sprintf("%x", digest))
	add("layers", m.Layers)
	add("kv heads", m.KVHeads)
	add("layout", c.e.kv.Layout().String())
	add("backend", o.Backend)
	add("kernels", runtime.GOARCH+" "+kernels.Path())
	add("dtype", o.DType)
	add("exact", o.Exact)
	add("rotate", o.Rotate)
	add("block", c.block)
	if c.quantised() {
		add("window", o.KVWindow)
		add("window set", o.KVWindowSet)
		add("chunk", o.ChunkTokens)
	}
	return nil
}

// root is the root of the keys of what is read under a policy and a salt.
func (c *Contexts) root(under *policy.Spec, salt string) contexts.Key {
	return contexts.Root(append(c.fields[:len(c.fields):len(c.fields)], contexts.Field{Name: "policy", Value: under.String()}), salt)
}

// PromptOnly reports whether a policy's whole effect is in the pages once the prompt is read: a context that it has compressed
// can be stored, and shared by questions that it does not compress.
func (e *Engine) PromptOnly(under *policy.Spec) bool {
	set, err := under.New(policyModel(e.m))
	return err == nil && actsOnPromptOnly(set)
}

// Prefix is what a store has of a prompt, on its way.
type Prefix struct {
	c       *Contexts
	ids     []int
	under   *policy.Spec
	root    contexts.Key
	keys    []contexts.Key // of the text's whole blocks, or of the first part of a compressed context
	whole   bool           // a compressed context: all or nothing
	context contexts.Key   // of a compressed context
	fetch   *contexts.Fetch
	salt    string
}

// Reused is what a session did not have to compute.
type Reused struct {
	Tokens int    // of the prompt, those that a policy has dropped included
	Tier   string // the slowest that they came from: host, ssd, valkey or s3; empty = none
}

// Find begins to fetch what the store has of ids as a session under a policy reads them; nil = full attention. A policy that
// compresses is asked for the whole of ids, a compressed context (ReadContext); other policies for nothing. May be called at any
// time, from any goroutine. Close the prefix, or give it to Resume.
func (c *Contexts) Find(ctx context.Context, ids []int, under *policy.Spec, salt string) *Prefix {
	p := &Prefix{c: c, ids: ids, under: under, salt: salt}
	if c == nil || c.store.Empty() {
		return p
	}
	if under == nil {
		p.under = c.e.full
	}
	if c.Unfit(p.under) != "" || len(ids) == 0 {
		return p
	}
	p.root = c.root(p.under, salt)
	if p.whole = !p.under.Lossless(); p.whole {
		p.context = contexts.ContextKey(p.root, ids)
		p.keys = []contexts.Key{contexts.PartKey(p.context, 0)}
		p.fetch = c.store.Fetch(ctx, p.keys)
		return p
	}
	p.keys = contexts.Chain(p.root, ids, c.block)
	p.fetch = c.store.Fetch(ctx, p.keys[:(len(ids)-1)/c.block])
	return p
}

// Keys are the keys of a plain prefix's whole blocks; nil where the store is of no use.
func (p *Prefix) Keys() []contexts.Key { return p.keys }

// Close gives up what was not taken.
func (p *Prefix) Close() {
	if p != nil && p.fetch != nil {
		p.fetch.Close()
		p.fetch = nil
	}
}

// kept is what of a session's prompt goes to the store.
type kept struct {
	p    *Prefix
	next int // block to store
}

// Resume gives an empty session the KV of the beginning of p's text, as far as it was stored and came in time, and has what
// Prefill computes behind it stored. A prefix that was found for another policy gives nothing. The error is of the session, not
// of the store: then it cannot be used.
func (s *Session) Resume(ctx context.Context, p *Prefix) (Reused, error) {
	if p == nil || p.fetch == nil {
		return Reused{}, nil
	}
	defer p.Close()
	if len(s.tokens) > 0 || p.whole || !s.text.Plain() || s.policy.String() != p.under.String() {
		return Reused{}, nil
	}
	var used []*contexts.Record
	for range p.keys {
		r := p.fetch.Next(ctx, p.c.store.Rule(), len(p.ids))
		if r == nil || r.Root != p.root || r.Parts != 0 || r.First != len(used)*p.c.block || r.Tokens != p.c.block {
			break
		}
		used = append(used, r)
	}
	n, err := p.c.restore(s, used)
	if err != nil {
		return Reused{}, err
	}
	s.kept = kept{p, n / p.c.block}
	if n == 0 {
		return Reused{}, nil
	}
	s.began(p.ids[:n])
	p.fetch.Used(n/p.c.block, used[:n/p.c.block])
	return Reused{n, p.fetch.Tier()}, nil
}

// began notes that a session holds the KV of ids, as a prompt's pass computes it.
func (s *Session) began(ids []int) {
	s.tokens = append(s.tokens, ids...)
	s.text.SetRead(int32(len(ids)))
	s.noteRead(len(ids), false)
}

// restore gives an empty session the records' KV; it returns the tokens. Records that do not fit are left out, with all behind
// them. Where memory does not reach, the session is empty again.
func (c *Contexts) restore(s *Session, records []*contexts.Record) (tokens int, err error) {
	var spans []*restored
	for _, r := range records {
		x, err := c.parse(r)
		if err != nil {
			break
		}
		spans = append(spans, x)
		tokens = r.First + r.Tokens
	}
	for layer := range c.e.m.Layers {
		for i, x := range spans {
			main, recent := x.layer(layer)
			if i < len(spans)-1 {
				recent = nil // of the last block alone
			}
			if err := s.Sequence().Restore(layer, main, recent); err != nil {
				if again := s.restart(); again != nil {
					return 0, errors.Join(err, again)
				}
				return 0, nil
			}
		}
	}
	return tokens, nil
}

// ReadContext returns a session that has read ids under a policy that acts on prompts alone, as Find found them or by computing,
// and that goes on without it: what is read next is not compressed (Fork). What was computed is stored as one compressed context.
func (e *Engine) ReadContext(ctx context.Context, ids []int, under *policy.Spec, p *Prefix, hooks PrefillHooks) (*Session, Reused, error) {
	if p != nil && p.fetch != nil && p.whole && p.under.String() == under.String() {
		defer p.Close()
		if s, reused, err := p.resumeWhole(ctx); s != nil || err != nil {
			return s, reused, err
		}
	}
	s, err := e.NewSession(under)
	if err != nil {
		return nil, Reused{}, err
	}
	defer s.Close()
	if err := s.Prefill(ctx, ids, hooks); err != nil {
		return nil, Reused{}, err
	}
	if p != nil && p.whole {
		p.c.storeWhole(s, p)
	}
	f, err := s.Fork(under)
	return f, Reused{}, err
}

// resumeWhole opens a session on a compressed context; nil where it is not stored, or not in time.
func (p *Prefix) resumeWhole(ctx context.Context) (*Session, Reused, error) {
	rule := p.c.store.Rule()
	first := p.fetch.Next(ctx, rule, len(p.ids))
	if first == nil || !p.fits(first, 0, 0) {
		return nil, Reused{}, nil
	}
	records := []*contexts.Record{first}
	if first.Parts > 1 {
		rest := make([]contexts.Key, first.Parts-1)
		for i := range rest {
			rest[i] = contexts.PartKey(p.context, i+1)
		}
		more := p.c.store.Fetch(ctx, rest)
		defer more.Close()
		for i := range rest {
			r := more.Next(ctx, rule, len(p.ids))
			if r == nil || !p.fits(r, i+1, first.Parts) {
				return nil, Reused{}, nil
			}
			records = append(records, r)
		}
		more.Used(len(rest), records[1:])
		p.fetch.Join(more)
	}
	p.fetch.Used(1, records[:1])
	s, err := p.c.e.NewSession(nil)
	if err != nil {
		return nil, Reused{}, err
	}
	if n, err := p.c.restore(s, records); n == 0 || err != nil {
		s.Close()
		return nil, Reused{}, err
	}
	s.began(p.ids)
	s.past.reads = []read{{tokens: len(p.ids), mixed: true}}
	return s, Reused{len(p.ids), p.fetch.Tier()}, nil
}

// fits reports whether a record is a part of the context.
func (p *Prefix) fits(r *contexts.Record, part, parts int) bool {
	return r.Root == p.root && r.Parent == p.context && r.First == 0 && r.Tokens == len(p.ids) && r.Part == part && r.Parts > 0 && r.Parts <= maxParts && (parts == 0 || r.Parts == parts)
}

// maxParts bounds what a compressed context is made of.
const maxParts = 1 << 16

// String is for messages.
func (r Reused) String() string { return strconv.Itoa(r.Tokens) + " tokens from " + r.Tier }

// PrefillStored is Prefill of an empty session's prompt through the engine's store, where there is one: Find, Resume and the rest.
func (s *Session) PrefillStored(ctx context.Context, ids []int, salt string, hooks PrefillHooks) (Reused, error) {
	reused, err := s.Resume(ctx, s.e.contexts.Find(ctx, ids, s.policy, salt))
	if err != nil {
		return reused, err
	}
	return reused, s.Prefill(ctx, ids[reused.Tokens:], hooks)
}
