package prefixcache

import (
	"context"
	"fmt"
	"runtime"

	"terrace/engine"
	"terrace/internal/cacheshape"
	"terrace/internal/kernels"
	"terrace/kvmanager"
	"terrace/kvmanager/contexts"
	"terrace/policy"
)

// numerics is counted up with every change that gives other bits for the same weights and tokens: what was stored before is then
// not found any more (TestNumerics notices).
const numerics = 2

// blockTokens is how many tokens a block of a plain prefix has, at least.
const blockTokens = 64

// Cache is an engine's part in a store of contexts: keys for what its sessions read, and records made from their KV. Its methods
// may be called on nil: nothing is found.
type Cache struct {
	recordForm
	store  *contexts.Store
	full   *policy.Spec
	fields []contexts.Field
	unfit  string // why KV of this engine cannot be kept; empty = it can
	answer bool   // decoded tokens are kept and found too
}

// recordForm is what records of an engine's KV hold.
type recordForm struct {
	e     *engine.Engine
	info  string
	shape cacheshape.Model
	lists []list // of the tokens of a text, in the order of records
	first []int  // each layer's first list, [layers+1]
	state int    // bytes of the state of recurrent layers, which a block has of its end; 0 = there are none
	block int    // tokens of a block
}

// list is the tokens of a layer and KV head.
type list struct{ layer, head int }

// Use gives an engine a store, which stays the caller's; name is what people call the model. It reads all weights once, for the
// fingerprint. An engine has one store at most. A store in the memory of running texts gets it here (Engine.Lend).
func Use(e *engine.Engine, store *contexts.Store, name string) (*Cache, error) {
	c := &Cache{recordForm: recordForm{e: e, info: name, shape: e.Cache(), first: e.Cache().HeadsBefore()}, store: store, unfit: unfit(e)}
	for layer := range c.shape {
		for head := range c.shape[layer].KV.Heads {
			c.lists = append(c.lists, list{layer, head})
		}
	}
	l, _ := e.Layouts()
	c.state = int(c.shape.StateBytes())
	c.block = (blockTokens + l.Tokens - 1) / l.Tokens * l.Tokens
	switch chunk := e.Options().ChunkTokens; {
	case c.quantised():
		c.block = chunk // a row's arithmetic looks at the window, which moves by chunks
	case c.state > 0:
		for c.block = chunk; c.block%l.Tokens != 0; c.block += chunk { // a state is that of a chunk's end
		}
	}
	var err error
	if c.full, err = policy.Parse("full"); err != nil {
		return nil, err
	}
	if c.unfit == "" {
		if err := c.fingerprint(); err != nil {
			return nil, fmt.Errorf("prefixcache: %w", err)
		}
		if b, forGood := contexts.Borrower(store); b != nil {
			if err := e.Lend(b, forGood); err != nil {
				return nil, fmt.Errorf("prefixcache: what keeps prompts in host memory: %w", err)
			}
		}
	}
	e.SetPrefixCache(c)
	return c, nil
}

// KeepAnswers has the cache keep and find tokens that were decoded too, where pages hold floats. The numbers of their KV differ in
// their last bits from those of the same tokens read as a prompt, so a text that goes on from them may part from the one that is
// computed without. Call it before the first Find.
func (c *Cache) KeepAnswers() {
	if c != nil {
		c.answer = !c.quantised()
	}
}

// Unfit implements engine.PrefixCache: why the store is of no use to sessions under a policy; empty = it is of use.
func (c *Cache) Unfit(under *policy.Spec) string {
	switch {
	case c.unfit != "":
		return c.unfit
	case c.e.KVBelowHost() && !under.Causal():
		return "a compressed context lies on --tier below host memory"
	case !under.Causal() && !c.e.PromptOnly(under):
		return fmt.Sprintf("the state of policy %s belongs to one text", under)
	}
	return ""
}

// unfit says what of an engine cannot be kept.
func unfit(e *engine.Engine) string {
	m, o := e.Model(), e.Options()
	for _, r := range m.Ropes {
		if r.DynamicBase > 0 {
			return "the model turns keys by the exact length of the text (dynamic NTK)"
		}
	}
	l, _ := e.Layouts()
	quantised := l.K.Quantised() || l.V.Quantised()
	switch {
	case m.File == nil:
		return "the model has no file"
	case e.KVOnDevice():
		return "KV lies on a device"
	case e.KVBelowHost() && !e.KVOnSSD():
		return "KV lies on a drive"
	case e.KVBelowHost() && (quantised || e.Cache().StateBytes() > 0):
		return "quantised KV, or that of recurrent layers, lies on --tier below host memory"
	case o.WindowOnly:
		return "layers with a sliding window keep their windows only"
	case quantised && (l.Tokens > l.K.KeyGroup() || o.ChunkTokens%l.Tokens != 0 || o.ChunkTokens < o.KVWindow):
		return fmt.Sprintf("quantised KV is kept with pages of %[1]d tokens, and chunks of a multiple of %[1]d that are no smaller than the window", l.K.KeyGroup())
	}
	return ""
}

func (c *recordForm) quantised() bool {
	l, _ := c.e.Layouts()
	return l.K.Quantised() || l.V.Quantised()
}

// fingerprint names all that shapes the bytes of KV but the policy.
func (c *Cache) fingerprint() error {
	digest, err := c.e.Model().File.Digest()
	if err != nil {
		return err
	}
	o := c.e.Options()
	layout, _ := c.e.Layouts()
	add := func(name string, value any) {
		c.fields = append(c.fields, contexts.Field{Name: name, Value: fmt.Sprint(value)})
	}
	add("numerics", numerics)
	add("weights", fmt.Sprintf("%x", digest))
	add("layers", c.shape)
	add("layout", layout.String())
	add("backend", o.Backend)
	add("kernels", runtime.GOARCH+" "+kernels.Path())
	add("dtype", o.DType)
	add("exact", o.Exact)
	add("rotate", o.Rotate)
	if b := c.e.Model().Bias(); b.On() {
		add("expert bias", b)
	}
	add("block", c.block)
	if c.quantised() {
		add("window", o.KVWindow)
		add("window set", o.KVWindowSet)
		add("chunk in f16", o.ChunkTokens) // its rows read it so
	}
	return nil
}

// root is the root of the keys of what is read of a prompt of so many tokens under a policy and a salt; with decoded, that of blocks
// that have decoded tokens in them or before them.
func (c *Cache) root(tokens int, under *policy.Spec, salt string, decoded bool) contexts.Key {
	fields := append(c.fields[:len(c.fields):len(c.fields)], contexts.Field{Name: "policy", Value: under.String()})
	if at := c.e.Model().LongRopeAt(); at > 0 {
		fields = append(fields, contexts.Field{Name: "long rope", Value: fmt.Sprint(tokens > at)}) // all of a prompt is turned by its length
	}
	if decoded {
		fields = append(fields, contexts.Field{Name: "decoded", Value: "true"})
	}
	return contexts.Root(fields, salt)
}

// Prefix is what a store has of a prompt, on its way.
type Prefix struct {
	c       *Cache
	ids     []int
	under   *policy.Spec
	root    contexts.Key
	decoded contexts.Key   // the root of blocks with decoded tokens in them or before them
	read    int            // keys before this one are of blocks that were read as a prompt, under root; the others under decoded
	keys    []contexts.Key // of the text's whole blocks, or of the first part of a compressed context
	whole   bool           // a compressed context: all or nothing
	context contexts.Key   // of a compressed context
	fetch   *contexts.Fetch
	arrival *contexts.Arrival // instead of fetch, where layers are used while others come
	reused  engine.Reused
	salt    string
}

// Lookup implements engine.PrefixCache.
func (c *Cache) Lookup(ctx context.Context, ids []int, under *policy.Spec, salt string) engine.Prefix {
	return c.Find(ctx, ids, under, salt)
}

// Stored implements engine.PrefixCache, of prompts alone.
func (c *Cache) Stored(ids []int, n int, under *policy.Spec, salt string) bool {
	if c == nil || c.Unfit(under) != "" || !under.Causal() {
		return true
	}
	keys := contexts.Chain(c.root(len(ids), under, salt, false), ids[:n], c.block)
	return len(keys) == 0 || c.store.Has(keys[len(keys)-1]) || !c.store.Busy()
}

// Find begins to fetch what the store has of ids as a session under a policy reads them; nil = full attention. A policy that
// compresses is asked for the whole of ids, a compressed context (ReadContext); other policies for nothing. May be called at any
// time, from any goroutine. Close the prefix, or give it to Resume.
func (c *Cache) Find(ctx context.Context, ids []int, under *policy.Spec, salt string) *Prefix {
	p := &Prefix{c: c, ids: ids, under: under, salt: salt}
	if c == nil || c.store.Empty() {
		return p
	}
	if under == nil {
		p.under = c.full
	}
	if c.Unfit(p.under) != "" || len(ids) == 0 {
		return p
	}
	p.root = c.root(len(ids), p.under, salt, false)
	if p.whole = !p.under.Causal(); p.whole {
		p.context = contexts.ContextKey(p.root, ids)
		p.keys = []contexts.Key{contexts.PartKey(p.context, 0)}
		if c.fetches() {
			p.fetch = c.store.Fetch(ctx, p.keys)
		} else {
			p.arrival = c.store.ArriveContext(ctx, p.keys[0], p.others, c.store.Rule(), len(ids))
		}
		return p
	}
	p.chain()
	if keys := p.keys[:(len(ids)-1)/c.block]; c.fetches() {
		p.fetch = c.store.Fetch(ctx, keys)
	} else {
		p.arrival = c.store.Arrive(ctx, keys, c.store.Rule(), len(ids))
	}
	return p
}

// chain names the prompt's whole blocks. From the first on that the store does not have as a prompt's, they are those of an answer,
// if it has that block so.
func (p *Prefix) chain() {
	c := p.c
	p.keys = contexts.Chain(p.root, p.ids, c.block)
	if p.read = len(p.keys); !c.answer {
		return
	}
	p.decoded = c.root(len(p.ids), p.under, p.salt, true)
	most := (len(p.ids) - 1) / c.block
	at := 0
	for at < most && c.store.Has(p.keys[at]) {
		at++
	}
	if at == most {
		return
	}
	if answered := contexts.Chain(p.decoded, p.ids, c.block); c.store.Has(answered[at]) {
		p.read = at
		copy(p.keys[at:], answered[at:])
	}
}

// rootOf is the root of block i.
func (p *Prefix) rootOf(i int) contexts.Key {
	if i < p.read {
		return p.root
	}
	return p.decoded
}

// border is where the chunks of a prompt have to end for blocks to be made of it.
func (c *Cache) border() int {
	if c.state == 0 {
		return 0
	}
	return c.block
}

// fetches reports whether whole records are read, one after another.
func (c *Cache) fetches() bool {
	return c.quantised() || c.state > 0 || c.e.KVBelowHost() || c.store.Rule() == contexts.BestEffort
}

// others are the keys of a compressed context's parts behind the first.
func (p *Prefix) others(parts int) []contexts.Key {
	var keys []contexts.Key
	for i := 1; i < min(parts, maxParts+1); i++ {
		keys = append(keys, contexts.PartKey(p.context, i))
	}
	return keys
}

// Reused implements engine.Prefix.
func (p *Prefix) Reused() engine.Reused {
	if p == nil {
		return engine.Reused{}
	}
	return p.reused
}

// Keys are the keys of a plain prefix's whole blocks; nil where the store is of no use.
func (p *Prefix) Keys() []contexts.Key { return p.keys }

// Close gives up what was not taken.
func (p *Prefix) Close() {
	if p != nil && p.fetch != nil {
		p.fetch.Close()
		p.fetch = nil
	}
	if p != nil && p.arrival != nil {
		p.arrival.Close()
		p.arrival = nil
	}
}

// Resume implements engine.Prefix: it gives an empty session the KV of the beginning of p's text, as far as it was stored and came
// in time, and has what Prefill computes behind it stored. A prefix that was found for another policy gives nothing. The error is
// of the session, not of the store: then it cannot be used.
func (p *Prefix) Resume(ctx context.Context, s *engine.Session) (engine.Reused, error) {
	if p == nil || p.fetch == nil && p.arrival == nil {
		return engine.Reused{}, nil
	}
	if s.Tokens() > 0 || p.whole || !s.Causal() || s.Policy().String() != p.under.String() {
		p.Close()
		return engine.Reused{}, nil
	}
	k := &keeping{p: p}
	if !p.c.store.Placed() {
		s.AfterChunks(p.c.border(), func() { k.keep(s) })
	}
	if p.arrival != nil {
		return p.expect(ctx, s, k)
	}
	defer p.Close()
	var used []*contexts.Record
	for range p.keys {
		r := p.fetch.Next(ctx, p.c.store.Rule(), len(p.ids))
		if r == nil {
			break
		}
		used = append(used, r)
	}
	n, err := p.adopt(s, used, k)
	if err == nil && n > 0 {
		p.fetch.Used(n/p.c.block, used[:n/p.c.block])
		p.reused = engine.Reused{Tokens: n, Tier: p.fetch.Tier()}
	}
	return p.reused, err
}

// adopt gives an empty session the KV of the first of some records; it returns the tokens.
func (p *Prefix) adopt(s *engine.Session, records []*contexts.Record, k *keeping) (int, error) {
	for i, r := range records {
		if !p.continues(r, i) {
			records = records[:i]
			break
		}
	}
	n, err := p.c.restore(s, p.ids, records, false)
	k.next = n / p.c.block
	return n, err
}

// continues reports whether a record is block i of the prefix.
func (p *Prefix) continues(r *contexts.Record, i int) bool {
	return r.Root == p.rootOf(i) && r.Parts == 0 && r.First == i*p.c.block && r.Tokens == p.c.block
}

// restore gives an empty session the records' KV: that of the first tokens of ids, or of all of them where a policy has compressed
// it. It returns the tokens. Records that do not fit are left out, with all behind them. Where memory does not reach, the session
// is empty again.
func (c *Cache) restore(s *engine.Session, ids []int, records []*contexts.Record, compressed bool) (tokens int, err error) {
	spans, tokens := c.parseAll(records)
	if tokens == 0 || compressed && len(spans) < len(records) {
		return 0, nil
	}
	s.OfLength(len(ids))
	ok, err := s.Adopt(ids[:tokens], compressed, func(seq *kvmanager.Sequence) error {
		for layer := range c.e.Model().Layers {
			for i, x := range spans {
				main, recent := x.layer(layer, records[i].Section(1+layer))
				if i < len(spans)-1 {
					recent = nil // of the last block alone
				}
				if err := seq.Restore(layer, main, recent); err != nil {
					return err
				}
			}
			if err := seq.Release(layer); err != nil { // on tiers what is whole goes down
				return err
			}
		}
		if c.state == 0 {
			return nil
		}
		return seq.States().Restore(int32(tokens), records[len(spans)-1].Section(1+len(c.shape)))
	})
	if !ok {
		tokens = 0
	}
	return tokens, err
}

// parseAll takes the directories of records apart, up to the first that does not fit; tokens is what they reach to.
func (c *Cache) parseAll(records []*contexts.Record) (spans []*restored, tokens int) {
	for _, r := range records {
		x, err := c.parse(r)
		if err != nil {
			break
		}
		spans, tokens = append(spans, x), r.First+r.Tokens
	}
	return spans, tokens
}

// ReadContext returns a session that has read ids under a policy that acts on prompts alone, as Find found them or by computing,
// and that goes on without it: what is read next is not compressed (Fork). What was computed is stored as one compressed context.
func ReadContext(ctx context.Context, e *engine.Engine, ids []int, under *policy.Spec, p *Prefix, hooks engine.PrefillHooks) (*engine.Session, engine.Reused, error) {
	return readContext(ctx, e, ids, under, p, hooks, false)
}

// OpenContext is ReadContext of a session that reads on before it is forked: layers of what was found may still be on their way, and
// come behind the layers computed. p.Reused() says after that pass what was not computed.
func OpenContext(ctx context.Context, e *engine.Engine, ids []int, under *policy.Spec, p *Prefix, hooks engine.PrefillHooks) (*engine.Session, engine.Reused, error) {
	return readContext(ctx, e, ids, under, p, hooks, true)
}

func readContext(ctx context.Context, e *engine.Engine, ids []int, under *policy.Spec, p *Prefix, hooks engine.PrefillHooks, early bool) (s *engine.Session, reused engine.Reused, err error) {
	if p != nil && p.whole && p.under.String() == under.String() {
		if p.fetch != nil || p.arrival != nil {
			s, reused, err = p.openWhole(ctx, early)
		}
		if s == nil || p.fetch != nil {
			p.Close()
		}
		if s != nil || err != nil {
			return s, reused, err
		}
	}
	if s, err = e.NewSession(under); err != nil {
		return nil, engine.Reused{}, err
	}
	defer s.Close()
	if p != nil && p.whole {
		NoteRanks(s)
	}
	if err := s.Prefill(ctx, ids, hooks); err != nil {
		return nil, engine.Reused{}, err
	}
	if p != nil && p.whole {
		p.c.storeWhole(s, p)
	}
	f, err := s.Fork(under)
	return f, engine.Reused{}, err
}

// records is how many of an arrival's records n tokens are.
func (p *Prefix) records(n int) int {
	if p.whole {
		return p.arrival.Records()
	}
	return n / p.c.block
}

// fits reports whether a record is a part of the context.
func (p *Prefix) fits(r *contexts.Record, part, parts int) bool {
	return r.Root == p.root && r.Parent == p.context && r.First == 0 && r.Tokens == len(p.ids) && r.Part == part && r.Parts > 0 && r.Parts <= maxParts && (parts == 0 || r.Parts == parts)
}

// maxParts bounds what a compressed context is made of.
const maxParts = 1 << 16
