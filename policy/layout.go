package policy

import (
	"container/heap"
	"fmt"
	"math"
)

// Layout is where contexts lie on the tiers of a store, under one [Placement]. It moves no bytes: each call returns the steps
// that an executor carries out. It is deterministic; equal candidates are decided by the order of arrival.
//
// A step never moves a context up; a context that is used is placed again, from the fastest tier on, with the access that came. Every context on a tier has one next operation (rule.next), which depends on that context
// alone, so a heap a tier finds the cheapest in logarithmic time: placing n contexts takes O((n + steps)·(options + log n)).
type Layout struct {
	placement Placement
	alpha     float64
	rule      rule
	tiers     []placeTier
	contexts  map[string]*placing
	arrivals  int
	uses      int
}

// rule is what differs between placements: where a context goes first, and what it does when its tier is too full.
type rule interface {
	// first is where a context that has just arrived, or was used again, goes.
	first(l *Layout, c *placing) (tier int, o Option, ok bool)
	// next is the operation that c takes when its tier is over its capacity; of all on the tier, the one of least cost goes.
	next(l *Layout, c *placing) (s move, ok bool)
}

// move is an operation that a context could take.
type move struct {
	tier   int
	option Option
	delta  float64
	cost   float64 // the heap's order
}

type placeTier struct {
	PlaceTier
	used float64 // bytes
	held int     // contexts
	heap moves
}

// Op names the operation: "compress" in place, or "evict" to a lower tier (in whichever configuration).
func (s Step) Op() string {
	if s.From == s.To {
		return "compress"
	}
	return "evict"
}

// placing is a context in a layout.
type placing struct {
	PlaceContext
	tier    int
	option  Option
	arrival int // order of arrival
	use     int // order of the last use
	move    move
	slot    int // in the heap of its tier; -1: it can do nothing there
}

func (c *placing) bytes() float64 { return c.size(c.option) }

// size is what an option of the context takes on a tier.
func (c *placing) size(o Option) float64 {
	if o.Bytes > 0 {
		return o.Bytes
	}
	return o.Keep * c.Bytes
}

// Layout begins an empty layout on an instance's tiers. Errors wrap [ErrInstance] or [ErrParam].
func (p Placement) Layout(in *Instance) (*Layout, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	r, err := p.rule(in)
	if err != nil {
		return nil, err
	}
	l := &Layout{placement: p, alpha: in.Alpha, rule: r, contexts: map[string]*placing{}}
	if p.Alpha >= 0 {
		l.alpha = p.Alpha
	}
	for _, t := range in.Tiers {
		l.tiers = append(l.tiers, placeTier{PlaceTier: t})
	}
	return l, nil
}

// Arrive places a context that is new, and makes room below it. After [ErrNoRoom] the layout is of no further use.
func (l *Layout) Arrive(pc PlaceContext) ([]Step, error) {
	if l.contexts[pc.ID] != nil {
		return nil, fmt.Errorf("policy: context %q is placed already: %w", pc.ID, ErrInstance)
	}
	c := &placing{PlaceContext: pc, arrival: l.arrivals, slot: -1}
	l.arrivals++
	l.contexts[pc.ID] = c
	return l.enter(c)
}

// Use counts an access of a context, which is placed again as if it arrived: by what it is worth now under evicpress, on the
// fastest tier under the others.
func (l *Layout) Use(id string) ([]Step, error) {
	c := l.contexts[id]
	if c == nil {
		return nil, fmt.Errorf("policy: context %q is not placed: %w", id, ErrInstance)
	}
	c.Freq = l.freq(c) + 1
	l.leave(c)
	return l.enter(c)
}

// Remove forgets a context, and returns the accesses that it had.
func (l *Layout) Remove(id string) (freq float64) {
	c := l.contexts[id]
	if c == nil {
		return 0
	}
	l.leave(c)
	delete(l.contexts, id)
	return l.freq(c)
}

// enter puts c where it goes first and relieves the tiers from there down.
func (l *Layout) enter(c *placing) ([]Step, error) {
	l.uses++
	c.use = l.uses
	l.age(c)
	tier, o, ok := l.rule.first(l, c)
	if !ok {
		return nil, fmt.Errorf("policy: context %q of %.0f bytes is larger than every tier: %w", c.ID, c.Bytes, ErrNoRoom)
	}
	l.settle(c, tier, o)
	var own []Step
	for t := &l.tiers[c.tier]; !t.fits(c.bytes()) && c.slot >= 0; t = &l.tiers[c.tier] { // it must go whatever else does
		own = append(own, l.apply(c))
	}
	steps, err := l.relieve()
	return append(own, steps...), err
}

// apply takes c's next operation.
func (l *Layout) apply(c *placing) Step {
	m, from := c.move, c.tier
	l.leave(c)
	l.settle(c, m.tier, m.option)
	return Step{ID: c.ID, From: from, To: m.tier, Config: m.option.Config, Delta: m.delta}
}

// relieve makes room, from the fastest tier to the slowest.
func (l *Layout) relieve() (steps []Step, err error) {
	for i := range l.tiers {
		t := &l.tiers[i]
		for t.over() {
			if len(t.heap) == 0 {
				return steps, fmt.Errorf("policy: tier %s holds %.0f of %.0f bytes, and nothing there can be smaller or lower: %w", t.Name, t.used, t.CapacityBytes, ErrNoRoom)
			}
			steps = append(steps, l.apply(t.heap[0]))
		}
	}
	return steps, nil
}

// roundingSlack is the error of adding and subtracting sizes that are not whole, relative to the capacity.
const roundingSlack = 1e-12

func (t *placeTier) over() bool { return t.used > t.CapacityBytes*(1+roundingSlack) }

// fits reports whether the bytes fit the tier alone.
func (t *placeTier) fits(bytes float64) bool { return bytes <= t.CapacityBytes*(1+roundingSlack) }

func (l *Layout) settle(c *placing, tier int, o Option) {
	c.tier, c.option = tier, o
	l.tiers[tier].used += c.bytes()
	l.tiers[tier].held++
	l.reconsider(c)
}

// leave takes c off its tier. An empty tier holds nothing exactly: roundings do not add up over a store's life.
func (l *Layout) leave(c *placing) {
	t := &l.tiers[c.tier]
	t.used -= c.bytes()
	if c.slot >= 0 {
		heap.Remove(&t.heap, c.slot)
	}
	if t.held--; t.held == 0 {
		t.used = 0
	}
}

// reconsider finds c's next operation and its place in the heap.
func (l *Layout) reconsider(c *placing) {
	t := &l.tiers[c.tier]
	m, ok := l.rule.next(l, c)
	c.move = m
	switch {
	case ok && c.slot >= 0:
		heap.Fix(&t.heap, c.slot)
	case ok:
		heap.Push(&t.heap, c)
	case c.slot >= 0:
		heap.Remove(&t.heap, c.slot)
	}
}

// utility is (α·quality − load time)·(accesses + 1), in seconds (EvicPress, section 4.2; one access more, so that a new
// context is not worth nothing).
func (l *Layout) utility(c *placing, tier int, o Option) float64 {
	return (l.alpha*o.Quality - c.size(o)/l.tiers[tier].BytesPerS) * (l.freq(c) + 1)
}

// freq is how often a context was accessed; with a recency, accesses count less the longer they are past.
func (l *Layout) freq(c *placing) float64 {
	if l.placement.Recency == 0 || c.Freq == 0 {
		return c.Freq
	}
	return c.Freq * math.Exp2(-float64(l.uses-c.use)/l.placement.Recency)
}

// age ranks the next operations of all contexts but one by what their accesses count now.
func (l *Layout) age(but *placing) {
	if l.placement.Recency == 0 {
		return
	}
	for _, c := range l.inOrder() {
		if c != but {
			l.reconsider(c)
		}
	}
}

// Utility is the sum over all contexts.
func (l *Layout) Utility() float64 {
	var u []float64
	for _, c := range l.inOrder() {
		u = append(u, l.utility(c, c.tier, c.option))
	}
	return sum(u)
}

// sum adds with Neumaier's correction: utilities of either sign may cancel.
func sum(values []float64) float64 {
	var s, lost float64
	for _, v := range values {
		t := s + v
		if math.Abs(s) >= math.Abs(v) {
			lost += (s - t) + v
		} else {
			lost += (v - t) + s
		}
		s = t
	}
	return s + lost
}

// Where says where a context lies.
func (l *Layout) Where(id string) (Placed, bool) {
	c := l.contexts[id]
	if c == nil {
		return Placed{}, false
	}
	return Placed{ID: id, Tier: c.tier, Config: c.option.Config}, true
}

// Placed lists all contexts in order of arrival.
func (l *Layout) Placed() []Placed {
	out := []Placed{}
	for _, c := range l.inOrder() {
		out = append(out, Placed{ID: c.ID, Tier: c.tier, Config: c.option.Config})
	}
	return out
}

func (l *Layout) inOrder() []*placing {
	out := make([]*placing, l.arrivals)
	for _, c := range l.contexts {
		out[c.arrival] = c
	}
	n := 0
	for _, c := range out {
		if c != nil {
			out[n] = c
			n++
		}
	}
	return out[:n]
}

// moves is the heap of a tier's contexts by the cost of their next operation.
type moves []*placing

func (h moves) Len() int { return len(h) }
func (h moves) Less(i, j int) bool {
	a, b := h[i], h[j]
	if a.move.cost != b.move.cost {
		return a.move.cost < b.move.cost
	}
	return a.arrival < b.arrival
}
func (h moves) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].slot, h[j].slot = i, j
}
func (h *moves) Push(x any) {
	c := x.(*placing)
	c.slot = len(*h)
	*h = append(*h, c)
}
func (h *moves) Pop() any {
	last := len(*h) - 1
	c := (*h)[last]
	(*h)[last] = nil
	*h, c.slot = (*h)[:last], -1
	return c
}
