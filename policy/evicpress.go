package policy

// evicpress is EvicPress's greedy placement (Feng et al., section 4.4 and Algorithm 1) over any number of tiers. A context goes
// to the fastest tier in the configuration of greatest utility there. While a tier is over its capacity, of all operations on
// the contexts there (a smaller keep by any method, or a lower tier in any configuration) the one that loses the least utility
// is applied; what it pushes down may overflow the next tier, and so on. The problem is a multi-choice knapsack, NP-hard.
//
// Readings of what the paper leaves open: the first configuration is that of greatest utility, not of greatest quality as the
// listing has it (which would never compress); utility lost is absolute, not a byte (per_byte=true ranks by the latter); a
// configuration that is larger than its tier even alone is none of the options.
type evicpress struct {
	perByte bool
	allowed func(Config) bool
}

// whole is the option that every context has.
var whole = Option{Config: Uncompressed, Quality: 1}

func (r *evicpress) again() bool { return false }

// first is the configuration of greatest utility on the fastest tier, whether it fits there or not: making room comes after.
func (r *evicpress) first(l *Layout, c *placing) (int, Option, bool) {
	best, top := whole, l.utility(c, 0, whole)
	for _, o := range c.Options {
		if u := l.utility(c, 0, o); r.allowed(o.Config) && (u > top || u == top && o.Keep < best.Keep) {
			best, top = o, u
		}
	}
	return 0, best, true
}

// next is the operation on c that loses the least utility, of those that free bytes on its tier.
func (r *evicpress) next(l *Layout, c *placing) (best move, found bool) {
	now := l.utility(c, c.tier, c.option)
	consider := func(tier int, o Option) {
		freed := c.bytes()
		if tier == c.tier {
			freed -= c.size(o)
		}
		if freed <= 0 || !r.allowed(o.Config) || !l.tiers[tier].fits(c.size(o)) {
			return
		}
		m := move{tier: tier, option: o, delta: now - l.utility(c, tier, o)}
		if m.cost = m.delta; r.perByte {
			m.cost /= freed
		}
		if !found || m.cost < best.cost {
			best, found = m, true
		}
	}
	for tier := c.tier; tier < len(l.tiers); tier++ {
		consider(tier, whole)
		for _, o := range c.Options {
			if !l.tiers[tier].Computed {
				consider(tier, o)
			}
		}
	}
	return best, found
}
