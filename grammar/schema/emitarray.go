package schema

import (
	"fmt"
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

// containing counts the items that have to be contained, place by place.
func (e *emitter) containing(a *array) (*grammar.Expr, error) {
	if len(a.contains) > 1 {
		return nil, fmt.Errorf("more than one contains: %w", grammar.ErrUnsupported)
	}
	c := a.contains[0]
	places, wanted := max(a.min, len(a.first), 1), c.min
	if a.max >= 0 {
		places = a.max
	}
	if c.max >= 0 {
		wanted = c.max
	}
	if (places+1)*(wanted+1) > maxStates {
		return nil, fmt.Errorf("contains with minItems, maxItems, minContains or maxContains: more than %d states: %w", maxStates, grammar.ErrTooLarge)
	}
	rules := make([][]grammar.Rule, places+1)
	for i := range rules {
		for range wanted + 1 {
			r, err := e.rule("items")
			if err != nil {
				return nil, err
			}
			rules[i] = append(rules[i], r)
		}
	}
	for i := range rules {
		for k := range rules[i] {
			e.b.Set(rules[i][k], e.place(a, c, rules, i, k))
		}
	}
	return grammar.Call(rules[0][0]), nil
}

// place is what may follow i items of which k are contained.
func (e *emitter) place(a *array, c contained, rules [][]grammar.Rule, i, k int) *grammar.Expr {
	var alts []*grammar.Expr
	if i >= a.min && k >= c.min {
		alts = append(alts, grammar.Seq())
	}
	if a.max >= 0 && i >= a.max {
		return grammar.Alt(alts...)
	}
	add := func(is formula, k int) {
		item := e.call(is)
		if i > 0 { // the last place stands for all that follow, so it is not the first but where there is one only
			item = grammar.Seq(e.comma, item)
		}
		alts = append(alts, grammar.Seq(item, grammar.Call(rules[min(i+1, len(rules)-1)][min(k, len(rules[i])-1)])))
	}
	is := a.item(i)
	if c.max < 0 || k < c.max {
		add(e.n.and(is, c.is), k+1)
	}
	if c.max >= 0 {
		is = e.n.and(is, e.n.not(c.is))
	}
	add(is, k)
	return grammar.Alt(alts...)
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
