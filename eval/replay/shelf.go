package replay

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"terrace/engine"
	"terrace/engine/prefixcache"
	"terrace/kvmanager/contexts"
	"terrace/policy"
)

// Rates of tiers that are not held to one, for the placement's estimate of load times; what a request takes is measured.
var tierRates = map[string]float64{"host": 8e9, "ssd": 1.5e9, "valkey": 0.5e9, "s3": 0.1e9}

// shelf keeps contexts on a store as a placement says.
type shelf struct {
	b         *Bench
	store     *contexts.Store
	cx        *prefixcache.Cache
	placement policy.Placement
	layout    *policy.Layout
	tiers     int // of the store; the layout has one more, where nothing is stored
	profile   *Profile
	items     map[string]*item
	salt      string
	moved     int // operations carried out
	shrunk    int // of them, contexts made smaller from what was stored
}

// item is a context that the layout knows.
type item struct {
	c   *Context
	ids []int
	// what is stored, and where
	tier   int // -1: nothing is
	config policy.Config
	keys   []contexts.Key // of all records
	// base has read the context but for its last rows, where it was computed just now
	base *engine.Session
}

// computedBytesPerS is how fast KV comes to be by computing it, where no request has been measured yet.
const computedBytesPerS = 40e6

// newShelf puts a placement over a store. configs are what evicpress may choose from.
func newShelf(b *Bench, store *contexts.Store, p policy.Placement, configs []policy.Config, profile *Profile, salt string) (*shelf, error) {
	in := &policy.Instance{Alpha: max(0, p.Alpha)}
	if p.Alpha < 0 {
		in.Alpha = 1
	}
	for i, t := range store.Tiers() {
		rate := float64(t.RateBytes)
		if rate == 0 {
			rate = tierRates[t.Kind]
		}
		in.Tiers = append(in.Tiers, policy.PlaceTier{Name: fmt.Sprintf("%d-%s", i, t.Kind), CapacityBytes: float64(t.CapacityBytes), BytesPerS: rate})
	}
	in.Tiers = append(in.Tiers, policy.PlaceTier{Name: "computed", CapacityBytes: math.Inf(1), BytesPerS: computedBytesPerS, Computed: true})
	for _, c := range configs {
		if !slices.Contains(in.Methods, c.Method) {
			in.Methods = append(in.Methods, c.Method)
		}
		if !slices.Contains(in.Keeps, c.Keep) {
			in.Keeps = append(in.Keeps, c.Keep)
		}
	}
	if !p.PerByteSet {
		p.PerByte = true // nearer to the optimum, and fewer moves, where contexts are used and come up again
	}
	l, err := p.Layout(in)
	if err != nil {
		return nil, err
	}
	return &shelf{b: b, store: store, cx: b.Cache, placement: p, layout: l, tiers: len(in.Tiers) - 1, profile: profile, items: map[string]*item{}, salt: salt}, nil
}

// options are the configurations of a context with their qualities and the bytes that they take.
func (s *shelf) options(c *Context, tokens int) (out []policy.Option) {
	switch s.placement.Kind {
	case policy.PlaceFixed:
		config := policy.Config{Method: s.placement.Method, Keep: s.placement.Keep}
		return []policy.Option{{Config: config, Quality: 1, Bytes: s.bytes(config, tokens)}} // its quality decides nothing
	case policy.PlaceEvicPress:
		p := s.profile.Of(c.ID)
		if p == nil {
			return nil
		}
		for _, config := range Configs(s.placement) {
			if q, ok := p.Of(config); ok {
				out = append(out, policy.Option{Config: config, Quality: q, Bytes: s.bytes(config, tokens)})
			}
		}
	}
	return out
}

// bytes of a context of so many tokens in a configuration, as records.
func (s *shelf) bytes(c policy.Config, tokens int) float64 {
	under, err := keptAs(c)
	if err != nil {
		return math.Inf(1)
	}
	return float64(s.cx.PackedBytes(keptTokens(c, tokens), under))
}

// important is the part that impress loads: what snapkv, which scores by attention as it does, keeps.
func (s *shelf) important() policy.Config {
	return policy.Config{Method: "snapkv", Keep: s.placement.Keep}
}

// wholeBytes is what a context takes uncompressed; under impress its important part lies beside it.
func (s *shelf) wholeBytes(tokens int) float64 {
	n := s.bytes(policy.Uncompressed, tokens)
	if s.placement.Kind == policy.PlaceImpress {
		n += s.bytes(s.important(), tokens)
	}
	return n
}

// used tells the placement of a request: a context that it does not know arrives. base may be nil.
func (s *shelf) used(c *Context, ids []int, base *engine.Session) error {
	if s.placement.Kind == policy.PlaceNone {
		return nil
	}
	it := s.items[c.ID]
	if it != nil {
		if it.base == nil {
			it.base = base
		} else if base != nil {
			base.Close()
		}
		_, err := s.layout.Use(c.ID)
		return err
	}
	s.items[c.ID] = &item{c: c, ids: ids, tier: -1, base: base}
	_, err := s.layout.Arrive(policy.PlaceContext{ID: c.ID, Bytes: s.wholeBytes(len(ids)), Options: s.options(c, len(ids))})
	return err
}

// settle carries out what the layout has decided since: first everything that leaves its place is taken up, then everything is
// put down, so that no tier is ever over its capacity. What cannot be put is not stored; it is computed when it is asked for.
func (s *shelf) settle(ctx context.Context) error {
	type change struct {
		it      *item
		tier    int
		config  policy.Config
		records []*contexts.Record
	}
	s.layout.Improve()
	var changes []change
	for _, p := range s.layout.Placed() {
		it, tier := s.items[p.ID], p.Tier
		if tier == s.tiers {
			tier = -1
		}
		if it.tier != tier || tier >= 0 && it.config != p.Config {
			changes = append(changes, change{it: it, tier: tier, config: p.Config})
		}
	}
	var errs []error
	for i := range changes {
		c := &changes[i]
		var err error
		if c.tier >= 0 {
			if c.records, err = s.take(ctx, c.it, c.config); err != nil {
				errs = append(errs, err)
			}
		}
		if c.it.tier >= 0 {
			errs = append(errs, s.store.Drop(ctx, c.it.tier, c.it.keys))
			c.it.tier, c.it.keys = -1, nil
		}
		if err != nil {
			c.tier = -1
		}
	}
	for _, c := range changes {
		if c.tier < 0 {
			continue
		}
		if err := s.store.PutOn(ctx, c.tier, c.records); err != nil {
			errs = append(errs, err)
			continue
		}
		c.it.tier, c.it.config, c.it.keys = c.tier, c.config, nil
		for _, r := range c.records {
			c.it.keys = append(c.it.keys, r.Key)
		}
		s.moved++
	}
	for _, it := range s.items { // what was computed has been put away
		if it.base != nil {
			it.base.Close()
			it.base = nil
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return errors.Join(errs...)
}

// take gives a context's records in a configuration: those that lie there, or a part of them, or new ones from what was computed, or
// from the text.
func (s *shelf) take(ctx context.Context, it *item, config policy.Config) ([]*contexts.Record, error) {
	if it.tier >= 0 && it.config == config {
		return s.store.ReadFrom(ctx, it.tier, it.keys)
	}
	if records, err := s.smaller(ctx, it, config); records != nil || err != nil {
		return records, err
	}
	configs := []policy.Config{config}
	if s.placement.Kind == policy.PlaceImpress {
		configs = append(configs, s.important())
	}
	base := it.base
	if base == nil {
		var err error
		if base, err = s.b.base(ctx, it.ids, configs); err != nil {
			return nil, err
		}
		defer base.Close()
	}
	var out []*contexts.Record
	for _, c := range configs {
		under, err := keptAs(c)
		if err != nil {
			return nil, err
		}
		session, err := s.b.compress(ctx, base, it.ids, c)
		if err != nil {
			return nil, err
		}
		records, err := s.cx.Pack(session, it.ids, under, s.salt)
		session.Close()
		if err != nil {
			return nil, err
		}
		out = append(out, records...)
	}
	return out, nil
}

// smaller makes a context's records in a configuration from those that lie there of a larger share by the same method. They are nil
// where there are none such, or where those are damaged or were made without ranks.
func (s *shelf) smaller(ctx context.Context, it *item, config policy.Config) ([]*contexts.Record, error) {
	if s.placement.Kind == policy.PlaceImpress || it.tier < 0 || config.Method != it.config.Method || config.Keep >= it.config.Keep {
		return nil, nil
	}
	from, err := keptAs(it.config)
	if err != nil {
		return nil, err
	}
	to, err := keptAs(config)
	if err != nil {
		return nil, err
	}
	records, err := s.store.ReadFrom(ctx, it.tier, it.keys)
	if err == nil {
		records, err = s.cx.Shrink(records, it.ids, from, to, s.salt)
	}
	switch {
	case err == nil:
		s.shrunk++
		return records, nil
	case errors.Is(err, contexts.ErrNoRanks) || errors.Is(err, contexts.ErrDamaged) || errors.Is(err, contexts.ErrMiss):
		return nil, nil
	}
	return nil, err
}

// close forgets everything.
func (s *shelf) close() {
	for _, it := range s.items {
		if it.base != nil {
			it.base.Close()
		}
	}
}

// Configs are the configurations that a placement of kind evicpress chooses from, by default three methods and three shares.
func Configs(p policy.Placement) (out []policy.Config) {
	methods, keeps := p.Methods, p.Keeps
	if len(methods) == 0 {
		methods = []string{"keydiff", "knorm", "snapkv"}
	}
	if len(keeps) == 0 {
		keeps = []float64{0.75, 0.5, 0.25}
	}
	for _, m := range methods {
		for _, k := range keeps {
			out = append(out, policy.Config{Method: m, Keep: k})
		}
	}
	return out
}

// reprofiled gives a context new qualities: it arrives again, with the accesses that it had.
func (s *shelf) reprofiled(c *Context, now *ContextProfile) {
	own := *s.profile
	own.Contexts = slices.Clone(own.Contexts) // other placements keep theirs
	*own.Of(c.ID) = *now
	s.profile = &own
	it := s.items[c.ID]
	if it == nil {
		return
	}
	freq := s.layout.Remove(c.ID)
	if _, err := s.layout.Arrive(policy.PlaceContext{ID: c.ID, Bytes: s.wholeBytes(len(it.ids)), Freq: freq, Options: s.options(c, len(it.ids))}); err != nil {
		panic("replay: the tier that has no end is full: " + err.Error())
	}
}
