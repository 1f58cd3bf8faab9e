package schema

import (
	"fmt"
	"iter"
	"slices"

	"terrace/grammar"
	"terrace/grammar/automaton"
)

const witnessDepth = 8 // formulas in formulas that are looked into for what a value excludes

// object is an object of a set: its properties in order, then the others.
func (e *emitter) object(o *object) (*grammar.Expr, error) {
	p, err := e.objectPlan(o)
	if err != nil {
		return nil, err
	}
	first, err := p.next(objectAt{}, grammar.Literal(`"`))
	if err != nil {
		return nil, err
	}
	for len(p.todo) > 0 {
		at := p.todo[len(p.todo)-1]
		p.todo = p.todo[:len(p.todo)-1]
		body, err := p.body(at)
		if err != nil {
			return nil, err
		}
		e.b.Set(p.rules[at], body)
	}
	return grammar.Seq(grammar.Literal("{"), e.space, first, e.space, grammar.Literal("}")), nil
}

// objectAt is how far an object has been written.
type objectAt struct {
	prop  int  // the next property
	named bool // a name has begun: its quote is read; otherwise a property has ended
	count int  // named properties so far, as far as counts matter
	extra int  // others so far, likewise, while something has to exist among them
	has   uint8
}

type objectPlan struct {
	e        *emitter
	o        *object
	pairs    []*grammar.Expr // [property], behind the first quote
	others   []class         // keys of classes, names left out
	min, max int             // counts that matter; 0 and -1: none
	rules    map[objectAt]grammar.Rule
	todo     []objectAt
}

func (e *emitter) objectPlan(o *object) (*objectPlan, error) {
	p := &objectPlan{e: e, o: o, min: o.min, max: o.max, rules: map[objectAt]grammar.Rule{}}
	var names []string
	required, can := 0, 0
	for _, q := range o.props {
		names = append(names, q.name)
		if q.is != never {
			can++
		}
		if q.required {
			required++
		}
		pair, err := e.name(q.name)
		if err != nil {
			return nil, err
		}
		p.pairs = append(p.pairs, grammar.Seq(pair, e.call(q.is)))
	}
	if err := p.open(names); err != nil {
		return nil, err
	}
	if len(o.has) > 4 {
		return nil, fmt.Errorf("more than four properties that must exist: %w", grammar.ErrTooLarge)
	}
	if p.min <= required {
		p.min = 0
	}
	if most := can + min(len(p.others), 1); p.min > most {
		return nil, fmt.Errorf("minProperties %d: the schema names %d properties, and of others one is sure to count, since names may repeat: %w", p.min, can, grammar.ErrUnsupported)
	}
	if p.max >= len(o.props) && len(p.others) == 0 {
		p.max = -1
	}
	if states := (len(o.props) + 1) * (max(p.min, p.max, 0) + 1); (len(o.props) > 0 || len(o.has) > 0) && states > maxStates {
		return nil, fmt.Errorf("minProperties or maxProperties of an object with %d named properties: more than %d states: %w", len(o.props), maxStates, grammar.ErrTooLarge)
	}
	return p, nil
}

// open notes the classes that have a key beside the names.
func (p *objectPlan) open(names []string) error {
	for _, c := range p.o.classes {
		if c.is == never {
			continue
		}
		c.but = names
		keys, err := c.left()
		if err != nil {
			return err
		}
		if keys == nil || !keys.Empty() {
			p.others = append(p.others, c)
		}
	}
	return nil
}

func (p *objectPlan) rule(at objectAt) (grammar.Rule, error) {
	if p.min == 0 && p.max < 0 {
		at.count, at.extra = 0, 0
	} else if p.max < 0 {
		at.count, at.extra = min(at.count, p.min), min(at.extra, 1)
	}
	r, ok := p.rules[at]
	if ok {
		return r, nil
	}
	r, err := p.e.rule("members")
	p.rules[at] = r
	p.todo = append(p.todo, at)
	return r, err
}

func (p *objectPlan) then(at objectAt) (*grammar.Expr, error) {
	r, err := p.rule(at)
	return grammar.Call(r), err
}

// ends says whether no further property has to come.
func (p *objectPlan) ends(at objectAt) bool {
	for _, q := range p.o.props[at.prop:] {
		if q.required {
			return false
		}
	}
	return at.count+min(at.extra, 1) >= p.min && p.missing(at) == 0
}

func (p *objectPlan) missing(at objectAt) uint8 { return uint8(1<<len(p.o.has)-1) &^ at.has }

// next is the end of the members, or what stands before a name, and that name. All names share one comma, its white space and
// its quote, so that a state has many threads only within names.
func (p *objectPlan) next(at objectAt, before *grammar.Expr) (*grammar.Expr, error) {
	at.named = true
	name, err := p.then(at)
	if err != nil {
		return nil, err
	}
	more := grammar.Seq(before, name)
	if p.ends(at) {
		return grammar.Alt(grammar.Seq(), more), nil
	}
	return more, nil
}

// body is what may follow.
func (p *objectPlan) body(at objectAt) (*grammar.Expr, error) {
	if !at.named {
		return p.next(at, p.e.another)
	}
	if at.prop == len(p.o.props) {
		return p.tail(at)
	}
	q := p.o.props[at.prop]
	skip := at
	skip.prop++
	var alts []*grammar.Expr
	if !q.required {
		next, err := p.then(skip)
		if err != nil {
			return nil, err
		}
		alts = append(alts, next)
	}
	if p.max < 0 || at.count < p.max {
		take := skip
		take.named, take.count = false, at.count+1
		next, err := p.then(take)
		if err != nil {
			return nil, err
		}
		alts = append(alts, grammar.Seq(p.pairs[at.prop], next))
		for set := range p.subsets(at) {
			is, admitted := q.is, true
			for i, h := range p.o.has {
				if set>>i&1 != 0 {
					is, admitted = p.e.n.and(is, h.is), admitted && h.admits(q.name)
				}
			}
			if !admitted {
				continue
			}
			witness := take
			witness.has |= set
			if next, err = p.then(witness); err != nil {
				return nil, err
			}
			name, err := p.e.name(q.name)
			if err != nil {
				return nil, err
			}
			alts = append(alts, grammar.Seq(name, p.e.call(is), next))
		}
	}
	return grammar.Alt(alts...), nil
}

// admits says whether a name is meant.
func (c *class) admits(name string) bool {
	for _, b := range c.but {
		if b == name {
			return false
		}
	}
	return c.keys == nil || c.keys.Match(name)
}

// tail has the properties without a name in the schema. Their names may repeat, so that one of them counts towards a minimum.
func (p *objectPlan) tail(at objectAt) (*grammar.Expr, error) {
	var pairs []*grammar.Expr
	for _, c := range p.others {
		pair, err := p.pair(c)
		if err != nil {
			return nil, err
		}
		pairs = append(pairs, pair)
	}
	pair := grammar.Alt(pairs...)
	hi := p.max
	if hi >= 0 {
		hi -= at.count + at.extra
	}
	if at.count+1 < p.min || hi == 0 {
		return grammar.Alt(), nil
	}
	if p.missing(at) != 0 {
		return p.witnesses(at, pair)
	}
	return grammar.Seq(pair, grammar.Repeat(grammar.Seq(p.e.another, pair), 0, max(hi-1, min(hi, -1)))), nil
}

// witnesses is tail where some of the others have to satisfy what must exist.
func (p *objectPlan) witnesses(at objectAt, pair *grammar.Expr) (*grammar.Expr, error) {
	at.extra++
	again, err := p.then(at)
	if err != nil {
		return nil, err
	}
	alts := []*grammar.Expr{grammar.Seq(pair, p.e.another, again)}
	for set := range p.subsets(at) {
		var found []*grammar.Expr
		for _, c := range p.others {
			w, err := p.witness(c, set)
			if err != nil {
				return nil, err
			}
			x, err := p.pair(w)
			if err != nil {
				return nil, err
			}
			found = append(found, x)
		}
		rest := at
		rest.named, rest.has = false, at.has|set
		next, err := p.then(rest)
		if err != nil {
			return nil, err
		}
		alts = append(alts, grammar.Seq(grammar.Alt(found...), next))
	}
	return grammar.Alt(alts...), nil
}

// subsets are what one property may satisfy of what has to exist and does not yet.
func (p *objectPlan) subsets(at objectAt) iter.Seq[uint8] {
	missing := p.missing(at)
	return func(yield func(uint8) bool) {
		for set := uint8(1); set <= missing; set++ {
			if set&^missing == 0 && !yield(set) {
				return
			}
		}
	}
}

// witness is what in a class satisfies a set of what has to exist.
func (p *objectPlan) witness(c class, set uint8) (class, error) {
	w := c
	for i, h := range p.o.has {
		if set>>i&1 == 0 {
			continue
		}
		keys, err := bothKeys(w.keys, h.keys)
		if err != nil {
			return w, err
		}
		w = class{keys: keys, is: p.e.n.and(w.is, h.is), but: union(w.but, h.but)}
	}
	for i, h := range p.o.has {
		if set>>i&1 != 0 {
			if err := p.lasting(w, c, h); err != nil {
				return w, err
			}
		}
	}
	return w, nil
}

// lasting is an error where the witness w may be undone by one of its class c that has its name and is not what h asks for.
func (p *objectPlan) lasting(w, c, h class) error {
	keys, err := w.left()
	if err != nil || keys != nil && keys.Empty() {
		return err
	}
	n := p.e.n
	if none, err := n.isEmpty(w.is, witnessDepth); err != nil || none {
		return err
	}
	none, err := n.isEmpty(n.and(c.is, n.not(h.is)), witnessDepth)
	if err == nil && !none {
		err = fmt.Errorf("a property of any name that must exist and differs from others, since names may repeat: %w", grammar.ErrUnsupported)
	}
	return err
}

// union has the strings of a, then those of b that are new.
func union(a, b []string) []string {
	out := slices.Clone(a)
	for _, s := range b {
		if !slices.Contains(a, s) {
			out = append(out, s)
		}
	}
	return out
}

// left are the keys of a class without the names that are not meant; nil where it has all keys but these.
func (c *class) left() (*automaton.DFA, error) {
	if c.keys == nil {
		return nil, nil
	}
	var named []string
	for _, name := range c.but {
		if c.keys.Match(name) {
			named = append(named, name)
		}
	}
	if named == nil {
		return c.keys, nil
	}
	no, err := automaton.Texts(named)
	if err != nil {
		return nil, tooLarge(err)
	}
	keys, err := automaton.Minus(c.keys, no)
	return keys, tooLargeOrNil(err)
}

// keySet is left as an automaton.
func (c *class) keySet() (*automaton.DFA, error) {
	if c.keys != nil {
		return c.left()
	}
	all := class{keys: automaton.All(), but: c.but}
	return all.left()
}

// pair is a property of a class, behind its first quote.
func (p *objectPlan) pair(c class) (*grammar.Expr, error) {
	keys, err := c.left()
	if err != nil {
		return nil, err
	}
	name := grammar.JSONChars(0, -1, c.but)
	if keys != nil {
		name = grammar.JSONText(keys)
	}
	return grammar.Seq(name, grammar.Literal(`"`), p.e.colon, p.e.call(c.is)), nil
}
