package shelf

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"terrace/engine"
	"terrace/engine/prefixcache"
	"terrace/kvmanager/contexts"
	"terrace/policy"
)

const (
	// packedBytes is how much KV of contexts that wait for their place is held beside the store; what comes beyond it is computed again.
	packedBytes = 64 << 20
	// maxContexts is how many are known at a time; those asked longest ago are forgotten first.
	maxContexts = 4096
	// maxQuestions is how many of the last questions a context is profiled on.
	maxQuestions = 8
	// questionTokens is how much of a question is remembered, of its end.
	questionTokens = 256
)

// KeeperOptions of a Keeper; Reader, Store and Placement are needed.
type KeeperOptions struct {
	Reader    *Reader
	Store     *contexts.Store // under contexts.WritePlaced, of host memory and ssd
	Placement policy.Placement
	Index     string            // folder of the file by which what lies on ssd is found again; empty = there is none
	Notice    func(line string) // nil = none
}

// Keeper finds contexts in the prompts that come, and has a shelf keep them. It is an engine's prefix cache: a prompt that begins with a
// context finds it, whole or compressed, whichever reaches further.
type Keeper struct {
	r       *Reader
	store   *contexts.Store
	shelf   *Shelf
	seen    *prompts
	kept    keptContexts
	uses    int64
	file    string
	saved   time.Time
	dirty   bool
	notice  func(string)
	said    map[string]bool
	figures Figures
	placed  int // version of the shelf's layout that was last placed again
}

// keptContexts are those of a Keeper, by their last block's key.
type keptContexts map[string]*kept

// kept is a context of a Keeper's.
type kept struct {
	Context
	keys      []contexts.Key // of its blocks
	shared    bool           // prompts have parted behind it: it does not grow
	asked     int
	used      int64   // order of the last access
	questions [][]int // the last, newest last
	profile   *Profiling
	fails     bool  // it could not be profiled
	stale     bool  // its profile is not true any more
	unchecked []int // a question that was answered from its compressed form, whose quality nobody has measured
}

// NewKeeper gives an engine a keeper as its prefix cache. Contexts that lie on the store's ssd, by the index, are known again. Errors are those of
// the placement; they wrap engine.ErrOption where the engine's KV cannot be placed.
func NewKeeper(o KeeperOptions) (*Keeper, error) {
	if why := o.Reader.Cache.Unplaced(); why != "" {
		return nil, fmt.Errorf("shelf: placement %s: %s: %w", o.Placement, why, engine.ErrOption)
	}
	s, err := New(Options{Reader: o.Reader, Store: o.Store, Placement: o.Placement, Blocks: true})
	if err != nil {
		return nil, err
	}
	k := &Keeper{r: o.Reader, store: o.Store, shelf: s, seen: newPrompts(), kept: keptContexts{}, notice: o.Notice, said: map[string]bool{}}
	if o.Index != "" {
		k.file = indexFile(o.Index, o.Reader.Cache.Stands())
		k.load()
	}
	o.Reader.Engine.SetPrefixCache(k)
	return k, nil
}

// Unfit implements engine.PrefixCache.
func (k *Keeper) Unfit(under *policy.Spec) string {
	if !under.Lossless() {
		return "contexts are kept under full attention"
	}
	return k.r.Cache.Unfit(under)
}

// Stored implements engine.PrefixCache: what is kept of a prompt is kept when it was read, or later.
func (k *Keeper) Stored([]int, int, *policy.Spec, string) bool { return true }

// Lookup implements engine.PrefixCache.
func (k *Keeper) Lookup(ctx context.Context, ids []int, under *policy.Spec, salt string) engine.Prefix {
	if under != nil && !under.Lossless() {
		return k.r.Cache.Find(ctx, ids, under, salt)
	}
	p := &placedPrefix{k: k, ids: ids, salt: salt, config: policy.Uncompressed}
	keys := k.blocks(ids, salt)
	whole := 0
	for whole < len(keys) && k.store.Has(keys[whole]) {
		whole++
	}
	for i := len(keys) - 1; i >= whole; i-- {
		c := k.kept[keys[i].String()]
		if c == nil {
			continue
		}
		config, ok := k.shelf.Where(c.ID)
		if !ok || config == policy.Uncompressed {
			continue
		}
		if as, err := KeptAs(config); err == nil {
			p.config, p.inner, p.of = config, k.r.Cache.Find(ctx, c.IDs, as, salt), c
			return p
		}
	}
	p.inner = k.r.Cache.Find(ctx, ids, nil, salt)
	return p
}

// blocks are the keys of a prompt's whole blocks; its last token is always computed.
func (k *Keeper) blocks(ids []int, salt string) []contexts.Key {
	n := k.r.Cache.BlockTokens()
	return k.r.Cache.Blocks(ids[:max(0, len(ids)-1)/n*n], salt)
}

// placedPrefix is what a Keeper has of a prompt, on its way.
type placedPrefix struct {
	k      *Keeper
	inner  *prefixcache.Prefix
	of     *kept // the compressed context; nil = whole blocks
	config policy.Config
	ids    []int
	salt   string
}

// Resume implements engine.Prefix.
func (p *placedPrefix) Resume(ctx context.Context, s *engine.Session) (engine.Reused, error) {
	var err error
	if p.of != nil {
		_, err = p.inner.ResumeContext(ctx, s)
	} else {
		_, err = p.inner.Resume(ctx, s)
	}
	return p.Reused(), err
}

// Reused implements engine.Prefix.
func (p *placedPrefix) Reused() engine.Reused {
	r := p.inner.Reused()
	if p.of != nil && r.Tokens > 0 {
		r.Method, r.Keep = p.config.Method, p.config.Keep
	}
	return r
}

// Keep implements engine.Prefix: answers are not kept.
func (p *placedPrefix) Keep(*engine.Session) {}

// Close implements engine.Prefix.
func (p *placedPrefix) Close() { p.inner.Close() }

// Read implements engine.Reader: the prompt was read, by a session that has it.
func (p *placedPrefix) Read(s *engine.Session) {
	if r := p.Reused(); r.Method != "" {
		p.of.unchecked = p.ids[len(p.of.IDs):]
		s = nil // it has no whole KV
	}
	p.k.saw(p.ids, p.salt, s)
}

// saw takes a prompt into account: which context it has used, and which there are by it. s has read it whole; nil = nobody has.
func (k *Keeper) saw(ids []int, salt string, s *engine.Session) {
	keys := k.blocks(ids, salt)
	if len(keys) == 0 {
		return
	}
	k.uses++
	n := k.seen.shared(keys)
	if n == 0 {
		k.arrive(ids, salt, keys, s, &kept{}, Have{})
	} else if last := keys[n-1]; n < len(keys) && k.seen.leaf(last) {
		k.goesOn(ids, salt, keys, n, s)
		k.seen.forget(last)
	} else {
		k.parts(ids, salt, keys[:n], s)
	}
	k.seen.remember(keys)
	k.dirty = true
	k.trouble(k.shelf.ready(context.Background()))
}

// goesOn has a context grow to the end of a prompt that goes on where an earlier one ended, behind n blocks. One behind which others
// have parted stays as it is, and so does for now one that the prompt has read compressed, since to grow it is computed.
func (k *Keeper) goesOn(ids []int, salt string, keys []contexts.Key, n int, s *engine.Session) {
	old := k.kept.deepest(keys[:n])
	switch {
	case old == nil || old.shared && len(old.keys) < n: // the end of a text that others have parted from
		k.arrive(ids, salt, keys, s, &kept{asked: 1}, Have{Freq: 1})
	case old.shared || s == nil && 4*len(keys) < 5*len(old.keys):
		k.use(old, ids)
	default:
		have := Have{Quality: k.qualityOf(old)}
		if len(keys) >= 2*len(old.keys) { // another text by now
			have.Quality = nil
		}
		have.Freq = k.forget(old) + 1
		k.arrive(ids, salt, keys, s, &kept{asked: old.asked + 1, questions: old.questions}, have)
	}
}

// deepest is the longest context that is a beginning of a prompt; nil = none is.
func (all keptContexts) deepest(keys []contexts.Key) *kept {
	for _, key := range slices.Backward(keys) {
		if c := all[key.String()]; c != nil {
			return c
		}
	}
	return nil
}

// parts has the beginning that a prompt shares with others be a context, and used. Prompts that nobody has asked for again, whose beginning it is, are
// none any more.
func (k *Keeper) parts(ids []int, salt string, keys []contexts.Key, s *engine.Session) {
	n := len(keys)
	if c := k.kept[keys[n-1].String()]; c != nil {
		c.shared = true
		k.use(c, ids)
		return
	}
	for _, c := range k.kept {
		if c.asked == 0 && !c.shared && len(c.keys) > n && c.keys[n-1] == keys[n-1] {
			k.forget(c)
		}
	}
	c := &kept{shared: true, asked: 1}
	k.arrive(ids, salt, keys, s, c, Have{Freq: 1})
	c.ask(ids)
}

func (k *Keeper) use(c *kept, ids []int) {
	c.asked++
	c.used = k.uses
	c.fails = false
	c.ask(ids)
	k.trouble(k.shelf.Use(c.ID, nil))
}

// ask remembers what a prompt has behind a context.
func (c *kept) ask(ids []int) {
	q := ids[len(c.IDs):]
	c.questions = append(c.questions, slices.Clone(q[max(0, len(q)-questionTokens):]))
	c.questions = c.questions[max(0, len(c.questions)-maxQuestions):]
}

// arrive has a prompt's first blocks be a context.
func (k *Keeper) arrive(ids []int, salt string, keys []contexts.Key, s *engine.Session, c *kept, have Have) {
	n := len(keys) * k.r.Cache.BlockTokens()
	c.Context, c.keys, c.used = Context{ID: keys[len(keys)-1].String(), IDs: slices.Clone(ids[:n]), Salt: salt}, keys, k.uses
	if s != nil && k.shelf.packed() < packedBytes {
		have.Packed, _ = k.r.Cache.Pack(s, c.IDs, nil, salt) // else it is computed when it is put
	}
	if have.Quality != nil {
		c.profile = &Profiling{Quality: have.Quality}
	}
	if len(k.kept) >= maxContexts {
		k.forget(k.kept.oldest())
	}
	k.kept[c.ID] = c
	k.trouble(k.shelf.Arrive(c.Context, have))
}

// oldest is the context that was asked longest ago.
func (all keptContexts) oldest() (oldest *kept) {
	for _, c := range all {
		if oldest == nil || c.used < oldest.used {
			oldest = c
		}
	}
	return oldest
}

// forget has a context be none any more, and returns its accesses.
func (k *Keeper) forget(c *kept) float64 {
	delete(k.kept, c.ID)
	return k.shelf.Forget(c.ID)
}

// qualityOf is what was measured of a context, once all of it was.
func (k *Keeper) qualityOf(c *kept) Qualities {
	if it := k.shelf.items[c.ID]; it != nil {
		return it.quality
	}
	return nil
}

// trouble says what is wrong, each kind once.
func (k *Keeper) trouble(err error) {
	if err == nil || k.notice == nil || k.said[err.Error()] || len(k.said) > 20 {
		return
	}
	k.said[err.Error()] = true
	k.notice("placement: " + err.Error() + ": such contexts are computed")
}

// Close puts away what needs no computing, and writes the index. The engine may be closed.
func (k *Keeper) Close() error {
	for k.Between(context.Background()) {
	}
	k.shelf.Close()
	if !k.dirty {
		return nil
	}
	return k.save()
}

// inUse are the contexts in the order of their last accesses.
func (all keptContexts) inUse() []*kept {
	list := slices.Collect(maps.Values(all))
	slices.SortFunc(list, func(a, b *kept) int { return cmp.Or(cmp.Compare(a.used, b.used), cmp.Compare(a.ID, b.ID)) })
	return list
}
