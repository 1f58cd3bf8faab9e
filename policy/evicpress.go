package policy

import "iter"

// evicpress is EvicPress's greedy placement (Feng et al., section 4.4 and Algorithm 1) over any number of tiers. A context goes
// to the fastest tier in the configuration of greatest utility there. While a tier is over its capacity, of all operations on
// the contexts there (a smaller keep by any method, or a lower tier in any configuration) the one that loses the least utility
// is applied; what it pushes down may overflow the next tier, and so on. The problem is a multi-choice knapsack, NP-hard.
//
// A context that is used is placed again, from the fastest tier on, since its frequency has grown. The greedy looks at one newcomer
// and at utility lost by whole operations, so that a large context that nobody asks for displaces small ones that many do;
// Layout.Improve solves the same problem from the beginning, with the frequencies of now.
//
// Readings of what the paper leaves open: the first configuration is that of greatest utility, not of greatest quality as the
// listing has it (which would never compress); utility lost is absolute, not a byte (per_byte=true ranks by the latter, as replays do); a
// configuration that is larger than its tier even alone is none of the options.
type evicpress struct {
	perByte bool
	allowed func(Config) bool
}

// improvedBy is how much of what a layout loses against the best place for every context another one must save to be worth its
// moves.
const improvedBy = 0.02

// Improve places all contexts again from the beginning, with the accesses that they have had: by the same greedy, ranked by utility
// lost a byte; then contexts that gain by it take the room that is left, the greatest gain first. The result is kept, and true
// returned, where it is better by a fiftieth of what the layout loses against the best place for every context. Only evicpress
// is improved; a layout that was never used or improved is that of the paper's greedy. Time: O(n·(options + log n)), and n·options
// for each context that takes room.
func (l *Layout) Improve() bool {
	r, ok := l.rule.(*evicpress)
	if !ok || len(l.contexts) == 0 {
		return false
	}
	n := &Layout{placement: l.placement, alpha: l.alpha, rule: &evicpress{perByte: true, allowed: r.allowed}, contexts: map[string]*placing{}, arrivals: l.arrivals}
	n.placement.Recency = 0 // what accesses count now is what they are
	for _, t := range l.tiers {
		n.tiers = append(n.tiers, placeTier{PlaceTier: t.PlaceTier})
	}
	var lost, gained []float64
	for _, c := range l.inOrder() {
		again := &placing{PlaceContext: c.PlaceContext, arrival: c.arrival, slot: -1}
		again.Freq = l.freq(c)
		n.contexts[c.ID] = again
		if _, err := n.enter(again); err != nil {
			return false
		}
		_, best, _ := r.first(l, c)
		lost = append(lost, l.utility(c, 0, best)-l.utility(c, c.tier, c.option))
	}
	n.rise(r.allowed)
	for id, c := range n.contexts {
		was := l.contexts[id]
		gained = append(gained, n.utility(c, c.tier, c.option)-l.utility(was, was.tier, was.option))
	}
	if gain := sum(gained); !(gain > improvedBy*sum(lost)) || gain < improvedLeast {
		return false
	}
	for id, c := range n.contexts {
		c.Freq, c.use = l.contexts[id].Freq, l.contexts[id].use
	}
	l.contexts, l.tiers = n.contexts, n.tiers
	for _, c := range l.contexts {
		l.reconsider(c) // their next operations are ranked as the placement has it
	}
	return true
}

// improvedLeast is the least gain, in seconds: less is rounding.
const improvedLeast = 1e-9

// rise has contexts take the room that is left where they gain by it, one after another, the greatest gain first.
func (l *Layout) rise(allowed func(Config) bool) {
	all := l.inOrder()
	for {
		var best *placing
		var to move
		for _, c := range all {
			now := l.utility(c, c.tier, c.option)
			for i := range l.tiers[:c.tier+1] {
				t := &l.tiers[i]
				room := t.CapacityBytes - t.used
				if i == c.tier {
					room += c.bytes()
				}
				for o := range l.options(c, i) {
					if gain := l.utility(c, i, o) - now; allowed(o.Config) && c.size(o) <= room && gain > max(to.cost, improvedLeast) {
						best, to = c, move{tier: i, option: o, cost: gain}
					}
				}
			}
		}
		if best == nil {
			return
		}
		l.leave(best)
		l.settle(best, to.tier, to.option)
	}
}

// options are the configurations that a context may have on a tier.
func (l *Layout) options(c *placing, tier int) iter.Seq[Option] {
	return func(yield func(Option) bool) {
		if !yield(whole) || l.tiers[tier].Computed {
			return
		}
		for _, o := range c.Options {
			if !yield(o) {
				return
			}
		}
	}
}

// whole is the option that every context has.
var whole = Option{Config: Uncompressed, Quality: 1}

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
		for o := range l.options(c, tier) {
			consider(tier, o)
		}
	}
	return best, found
}
