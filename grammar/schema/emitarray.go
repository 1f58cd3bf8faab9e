package schema

import (
	"fmt"
	"slices"
	"sync"

	"terrace/grammar"
	"terrace/grammar/automaton"
)

// array is an array of a set.
func (e *emitter) array(a *array) (*grammar.Expr, error) {
	if a.unique {
		return nil, fmt.Errorf("uniqueItems: %w", grammar.ErrUnsupported)
	}
	items, err := e.items(a)
	if err != nil {
		return nil, err
	}
	return grammar.Seq(grammar.Literal("["), e.space, items, e.space, grammar.Literal("]")), nil
}

func (e *emitter) items(a *array) (*grammar.Expr, error) {
	if len(a.contains) > 0 {
		return e.containing(a)
	}
	// From the last place of the prefix to the first: what may follow item i.
	k := len(a.first)
	rest := func(lo, hi int) *grammar.Expr {
		return grammar.Repeat(grammar.Seq(e.comma, e.call(a.rest)), lo, hi)
	}
	if k == 0 {
		one := grammar.Seq(e.call(a.rest), rest(max(a.min-1, 0), max(a.max-1, min(a.max, -1))))
		switch {
		case a.max == 0:
			return grammar.Seq(), nil
		case a.min == 0:
			return grammar.Alt(grammar.Seq(), one), nil
		}
		return one, nil
	}
	hi := a.max
	if hi >= 0 {
		hi = max(0, hi-k)
	}
	next := rest(max(a.min-k, 0), hi)
	for i := k - 1; i >= 0; i-- {
		r, err := e.rule("items")
		if err != nil {
			return nil, err
		}
		item := e.call(a.first[i])
		if i > 0 {
			item = grammar.Seq(e.comma, item)
		}
		body := grammar.Seq(item, next)
		if i >= a.min {
			body = grammar.Alt(grammar.Seq(), body)
		}
		e.b.Set(r, body)
		next = grammar.Call(r)
	}
	return next, nil
}

const maxContains = 4 // in one array: each item is, or is not, one of each

// containing counts the items that have to be contained, place by place.
func (e *emitter) containing(a *array) (*grammar.Expr, error) {
	if len(a.contains) > maxContains {
		return nil, fmt.Errorf("more than %d contains: %w", maxContains, grammar.ErrTooLarge)
	}
	p := &containPlan{e: e, a: a, last: max(a.min, len(a.first), 1), rules: map[string]grammar.Rule{}}
	if a.max >= 0 {
		p.last = a.max
	}
	states := p.last + 1
	for _, c := range a.contains {
		if states *= max(c.min, c.max) + 1; states > maxStates {
			return nil, fmt.Errorf("contains with minItems, maxItems, minContains or maxContains: more than %d states: %w", maxStates, grammar.ErrTooLarge)
		}
	}
	return p.then(0, make([]int, len(a.contains)))
}

// containPlan writes arrays with contains: a rule for each number of items and of those that each contains has had.
type containPlan struct {
	e     *emitter
	a     *array
	last  int // the place that stands for all that follow
	rules map[string]grammar.Rule
}

// then is what may follow i items of which found are contained.
func (p *containPlan) then(i int, found []int) (*grammar.Expr, error) {
	key := fmt.Sprint(i, found)
	r, ok := p.rules[key]
	if ok {
		return grammar.Call(r), nil
	}
	r, err := p.e.rule("items")
	if err != nil {
		return nil, err
	}
	p.rules[key] = r
	body, err := p.place(i, found)
	p.e.b.Set(r, body)
	return grammar.Call(r), err
}

func (p *containPlan) place(i int, found []int) (*grammar.Expr, error) {
	var alts []*grammar.Expr
	ends := i >= p.a.min
	for j, c := range p.a.contains {
		ends = ends && found[j] >= c.min
	}
	if ends {
		alts = append(alts, grammar.Seq())
	}
	if p.a.max >= 0 && i >= p.a.max {
		return grammar.Alt(alts...), nil
	}
	for set := range 1 << len(found) { // the item is contained in those of the set
		is, after := p.a.item(i), slices.Clone(found)
		possible := true
		for j, c := range p.a.contains {
			switch {
			case set>>j&1 == 0 && c.max >= 0:
				is = p.e.n.and(is, p.e.n.not(c.is))
			case set>>j&1 == 0: // or is so too, which is not counted
			case c.max >= 0 && found[j] == c.max:
				possible = false
			default:
				is = p.e.n.and(is, c.is)
				after[j] = min(found[j]+1, max(c.min, c.max))
			}
		}
		if !possible || is == never {
			continue
		}
		item := p.e.call(is)
		if i > 0 {
			item = grammar.Seq(p.e.comma, item)
		}
		next, err := p.then(min(i+1, p.last), after)
		if err != nil {
			return nil, err
		}
		alts = append(alts, grammar.Seq(item, next))
	}
	return grammar.Alt(alts...), nil
}

// shared are automata that many schemas need.
var shared made

type made struct {
	once, onceFree, onceInt sync.Once
	blank, free, whole      *automaton.DFA
	err, errFree, errInt    error
}

// space is white space as serialisers write it.
func (m *made) space() (*automaton.DFA, error) {
	m.once.Do(func() {
		newline := automaton.Text("\n")
		pad := automaton.Repeat(automaton.Set(automaton.Range{Lo: ' ', Hi: ' '}, automaton.Range{Lo: '\t', Hi: '\t'}), 0, indent)
		m.blank, m.err = automaton.Whole(automaton.Alt(automaton.Cat(), automaton.Text(" "), automaton.Cat(newline, automaton.Opt(newline), pad)))
	})
	return m.blank, m.err
}

// numbers is the union of sets as one automaton.
func (m *made) numbers(list []numbers) (*automaton.DFA, error) {
	if len(list) == 1 && list[0] == (numbers{}) {
		m.onceFree.Do(func() { m.free, m.errFree = list[0].automaton() })
		return m.free, m.errFree
	}
	if len(list) == 1 && list[0] == (numbers{kind: integer}) {
		m.onceInt.Do(func() { m.whole, m.errInt = list[0].automaton() })
		return m.whole, m.errInt
	}
	var out *automaton.DFA
	for _, n := range list {
		d, err := n.automaton()
		if err != nil {
			return nil, tooLarge(err)
		}
		if out == nil {
			out = d
		} else if out, err = automaton.Union(out, d); err != nil {
			return nil, tooLarge(err)
		}
	}
	return out, nil
}
