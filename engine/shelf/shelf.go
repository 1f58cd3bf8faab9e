package shelf

import (
	"context"
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

// ComputedBytesPerS is how fast KV comes to be by computing it, where no request has been measured yet.
const ComputedBytesPerS = 40e6

// Options of a shelf; all but Blocks are needed.
type Options struct {
	Reader    *Reader
	Store     *contexts.Store // under contexts.WritePlaced
	Placement policy.Placement
	Blocks    bool // whole contexts are blocks of a plain prefix, not compressed contexts of which nothing was dropped
}

// Shelf keeps contexts on a store as a placement says.
type Shelf struct {
	forms
	lying
	layout  *policy.Layout
	names   []string // of the tiers, and of where nothing is stored
	tiers   int      // of the store
	items   map[string]*item
	gone    []*item // that are forgotten, and still lie on a tier
	version int     // of what the layout was told

	Moved  int // operations carried out
	Shrunk int // of them, contexts made smaller from what was stored
}

// forms are those in which a placement keeps contexts, and what makes them.
type forms struct {
	r         *Reader
	cx        *prefixcache.Cache
	placement policy.Placement
	configs   []policy.Config
	blocks    bool
}

// lying is which records lie where, and how many contexts have each.
type lying struct {
	store *contexts.Store
	count map[place]int
}

// lying is a record on a tier; whole contexts may share it.
type place struct {
	tier int
	key  contexts.Key
}

// Context is a beginning that prompts share.
type Context struct {
	ID   string
	IDs  []int
	Salt string
}

// Have is what is there of a context that arrives.
type Have struct {
	Base    *engine.Session    // has read it but for its last rows; the shelf closes it
	Packed  []*contexts.Record // it is whole, as the shelf keeps it
	Freq    float64            // accesses that it has had
	Quality Qualities          // of its configurations; nil = not profiled
}

// item is a context that the layout knows.
type item struct {
	Context
	quality Qualities
	base    *engine.Session
	packed  []*contexts.Record
	failed  int // version of the layout in which it could not be put; 0 = it could
	// what is stored, and where
	tier   int // -1: nothing is
	config policy.Config
	keys   []contexts.Key // of all records
	bytes  int64
	// what was taken up and is to be put elsewhere
	held   []*contexts.Record
	heldAs policy.Config
}

// New puts a placement over a store. Errors wrap policy.ErrInstance or policy.ErrParam.
func New(o Options) (*Shelf, error) {
	p := o.Placement
	in := &policy.Instance{Alpha: max(0, p.Alpha)}
	if p.Alpha < 0 {
		in.Alpha = 1
	}
	s := &Shelf{forms: forms{o.Reader, o.Reader.Cache, p, Configs(p), o.Blocks}, lying: lying{o.Store, map[place]int{}}, items: map[string]*item{}, version: 1}
	for i, t := range o.Store.Tiers() {
		rate := float64(t.RateBytes)
		if rate == 0 {
			rate = tierRates[t.Kind]
		}
		in.Tiers = append(in.Tiers, policy.PlaceTier{Name: fmt.Sprintf("%d-%s", i, t.Kind), CapacityBytes: float64(t.CapacityBytes), BytesPerS: rate})
		s.names = append(s.names, t.Kind)
	}
	s.tiers = len(in.Tiers)
	s.names = append(s.names, "computed")
	in.Tiers = append(in.Tiers, policy.PlaceTier{Name: "computed", CapacityBytes: math.Inf(1), BytesPerS: ComputedBytesPerS, Computed: true})
	for _, c := range s.configs {
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
	var err error
	s.layout, err = p.Layout(in)
	return s, err
}

// Where says how a context that is stored can be read; false = it is not stored.
func (s *Shelf) Where(id string) (policy.Config, bool) {
	it := s.items[id]
	if it == nil || it.tier < 0 {
		return policy.Uncompressed, false
	}
	if s.placement.Kind == policy.PlaceImpress {
		return important(s.placement), true
	}
	return it.config, true
}

// Knows reports whether a context has arrived.
func (s *Shelf) Knows(id string) bool { return s.items[id] != nil }

// options are the configurations of a context with their qualities and the bytes that they take.
func (f *forms) options(quality Qualities, tokens int) (out []policy.Option) {
	switch f.placement.Kind {
	case policy.PlaceFixed:
		config := f.configs[0]
		return []policy.Option{{Config: config, Quality: 1, Bytes: f.size(config, tokens)}} // its quality decides nothing
	case policy.PlaceEvicPress:
		if quality == nil {
			return nil
		}
		for _, config := range f.configs {
			if q, ok := quality.Of(config); ok {
				out = append(out, policy.Option{Config: config, Quality: q, Bytes: f.size(config, tokens)})
			}
		}
	}
	return out
}

// size is what a context of so many tokens takes in a configuration, as records.
func (f *forms) size(c policy.Config, tokens int) float64 {
	under, err := f.keptAs(c)
	if err != nil {
		return math.Inf(1)
	}
	return float64(f.cx.PackedBytes(keptTokens(c, tokens), under))
}

// keptAs is the policy under which a configuration is kept; nil = as blocks of a plain prefix.
func (f *forms) keptAs(c policy.Config) (*policy.Spec, error) {
	if f.blocks && c == policy.Uncompressed {
		return nil, nil
	}
	return KeptAs(c)
}

// wholeBytes is what a context takes uncompressed; under impress its important part lies beside it.
func (f *forms) wholeBytes(tokens int) float64 {
	n := f.size(policy.Uncompressed, tokens)
	if f.placement.Kind == policy.PlaceImpress {
		n += f.size(f.configs[0], tokens)
	}
	return n
}

// Use counts an access of a context. base is nil, or has read it but for its last rows; the shelf closes it.
func (s *Shelf) Use(id string, base *engine.Session) error {
	it := s.items[id]
	if it.base == nil {
		it.base = base
	} else if base != nil {
		base.Close()
	}
	s.version++
	_, err := s.layout.Use(id)
	return err
}

// Arrive tells the placement of a context that it does not know.
func (s *Shelf) Arrive(c Context, have Have) error {
	it := &item{Context: c, tier: -1, base: have.Base, packed: have.Packed, quality: have.Quality}
	s.items[c.ID] = it
	return s.place(it, have.Freq)
}

func (s *Shelf) place(it *item, freq float64) error {
	s.version++
	n := len(it.IDs)
	_, err := s.layout.Arrive(policy.PlaceContext{ID: it.ID, Bytes: s.wholeBytes(n), Freq: freq, Options: s.options(it.quality, n)})
	return err
}

// Profiled gives a context qualities: it arrives again with them, and with the accesses that it had.
func (s *Shelf) Profiled(id string, quality Qualities) error {
	it := s.items[id]
	if it == nil {
		return nil
	}
	it.quality = quality
	return s.place(it, s.layout.Remove(id))
}

// Forget has a context leave, and returns the accesses that it had; what is stored of it goes with the next move.
func (s *Shelf) Forget(id string) (freq float64) {
	it := s.items[id]
	if it == nil {
		return 0
	}
	it.release()
	delete(s.items, id)
	if it.tier >= 0 {
		s.gone = append(s.gone, it)
	}
	s.version++
	return s.layout.Remove(id)
}

// Worse reports whether an answer is worse than a context's profile says by more than the placement allows.
func (s *Shelf) Worse(id string, c policy.Config, score float64) bool {
	it := s.items[id]
	if it == nil || s.placement.Reprofile == 0 || it.quality == nil {
		return false
	}
	q, ok := it.quality.Of(c)
	return ok && q-score > s.placement.Reprofile
}

// release lets go of what was computed.
func (it *item) release() {
	if it.base != nil {
		it.base.Close()
		it.base = nil
	}
	it.packed = nil
}

// Close forgets what was computed and not put away.
func (s *Shelf) Close() {
	for _, it := range s.items {
		it.release()
	}
}

// records makes a context's records in a configuration from what was computed of it, or from the text.
func (s *Shelf) records(ctx context.Context, it *item, config policy.Config) ([]*contexts.Record, error) {
	if config == policy.Uncompressed && it.packed != nil {
		return it.packed, nil
	}
	configs := []policy.Config{config}
	if s.placement.Kind == policy.PlaceImpress {
		configs = append(configs, s.configs[0])
	}
	base := it.base
	if base == nil {
		var found *prefixcache.Prefix
		if s.blocks {
			found = s.cx.Find(ctx, it.IDs[:s.r.Shared(it.IDs, configs)], nil, it.Salt)
		}
		var err error
		if base, err = s.r.Base(ctx, it.IDs, configs, found); err != nil {
			return nil, err
		}
		defer base.Close()
	}
	var out []*contexts.Record
	for _, c := range configs {
		under, err := s.keptAs(c)
		if err != nil {
			return nil, err
		}
		session, err := s.r.Compress(ctx, base, it.IDs, c)
		if err != nil {
			return nil, err
		}
		records, err := s.cx.Pack(session, it.IDs, under, it.Salt)
		session.Close()
		if err != nil {
			return nil, err
		}
		out = append(out, records...)
	}
	return out, nil
}
