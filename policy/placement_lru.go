package policy

import (
	"fmt"
	"slices"
)

// queue places whole contexts, all in one configuration, and pushes the last of a queue one tier down: by the time of the last
// use (lru and fixed; CachedAttention and LMCache do it so), or by the number of accesses (impress, whose score of a chunk is
// frequency × share of important tokens: on whole contexts the share is the same for all).
type queue struct {
	config Config
	byFreq bool
}

func (r *queue) first(l *Layout, c *placing) (int, Option, bool) {
	o, ok := r.option(c)
	if !ok {
		return 0, o, false
	}
	tier, ok := r.down(l, c, 0, o)
	return tier, o, ok
}

func (r *queue) next(l *Layout, c *placing) (move, bool) {
	tier, ok := r.down(l, c, c.tier+1, c.option)
	if !ok || c.bytes() == 0 {
		return move{}, false
	}
	m := move{tier: tier, option: c.option, delta: l.utility(c, c.tier, c.option) - l.utility(c, tier, c.option), cost: float64(c.use)}
	if r.byFreq {
		m.cost = c.Freq
	}
	return m, true
}

// down is the first tier from there on that holds the context alone; smaller ones are passed by.
func (r *queue) down(l *Layout, c *placing, from int, o Option) (int, bool) {
	for tier := from; tier < len(l.tiers); tier++ {
		if l.tiers[tier].fits(c.size(o)) {
			return tier, true
		}
	}
	return 0, false
}

func (r *queue) option(c *placing) (Option, bool) {
	if r.config == Uncompressed {
		return whole, true
	}
	i := slices.IndexFunc(c.Options, func(o Option) bool { return o.Config == r.config })
	if i < 0 {
		return Option{}, false
	}
	return c.Options[i], true
}

// rule makes what differs between placements. Errors wrap [ErrParam].
func (p Placement) rule(in *Instance) (rule, error) {
	switch p.Kind {
	case PlaceLRU, PlaceNone:
		return &queue{config: Uncompressed}, nil
	case PlaceImpress:
		return &queue{config: Uncompressed, byFreq: true}, nil
	case PlaceFixed:
		if err := in.has([]string{p.Method}, []float64{p.Keep}); err != nil {
			return nil, err
		}
		return &queue{config: Config{p.Method, p.Keep}}, nil
	}
	if err := in.has(p.Methods, p.Keeps); err != nil {
		return nil, err
	}
	allowed := func(c Config) bool {
		return c == Uncompressed || (len(p.Methods) == 0 || slices.Contains(p.Methods, c.Method)) && (len(p.Keeps) == 0 || slices.Contains(p.Keeps, c.Keep))
	}
	return &evicpress{perByte: p.PerByte, allowed: allowed}, nil
}

// has refuses configurations whose quality the instance does not give.
func (in *Instance) has(methods []string, keeps []float64) error {
	for _, m := range methods {
		if !slices.Contains(in.Methods, m) {
			return fmt.Errorf("policy: method %s: the instance has the quality of %v only: %w", m, in.Methods, ErrParam)
		}
	}
	for _, k := range keeps {
		if !slices.Contains(in.Keeps, k) {
			return fmt.Errorf("policy: keep %g: the instance has the quality of %v only: %w", k, in.Keeps, ErrParam)
		}
	}
	return nil
}
