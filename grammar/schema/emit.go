package schema

import (
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"terrace/grammar"
	"terrace/grammar/automaton"
)

// Bounds of a grammar.
const (
	maxRules  = 60000
	maxStates = 4000 // of one object or array whose counts matter
	indent    = 64
)

// Compile makes the grammar of the JSON texts that satisfy a schema. Errors: grammar.ErrSyntax (no schema), ErrUnsupported (a
// keyword that cannot be kept exactly, named), ErrEmpty (nothing can satisfy it), ErrTooLarge.
func Compile(schema []byte) (*grammar.Grammar, error) { return CompileBetween("", schema, "") }

// CompileBetween is Compile of texts that stand between two others.
func CompileBetween(before string, schema []byte, after string) (*grammar.Grammar, error) {
	root, err := parse(schema)
	if err != nil {
		return nil, err
	}
	if root.kind != '{' && root.kind != 't' && root.kind != 'f' {
		return nil, fmt.Errorf("schema: want an object or a boolean: %w", grammar.ErrSyntax)
	}
	e := &emitter{n: newNormaliser(root), rules: map[formula]grammar.Rule{}}
	if err := e.prepare(); err != nil {
		return nil, err
	}
	top := e.value(e.n.at(root))
	for len(e.todo) > 0 {
		f := e.todo[len(e.todo)-1]
		e.todo = e.todo[:len(e.todo)-1]
		body, err := e.body(f)
		if err != nil {
			return nil, err
		}
		e.b.Set(e.rules[f], body)
	}
	whole := e.b.Rule("text")
	e.b.Set(whole, grammar.Seq(grammar.Literal(before), grammar.Call(top), grammar.Literal(after)))
	g, err := e.b.Compile(whole)
	if err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	return g, nil
}

// Object is the grammar of any JSON object.
func Object() (*grammar.Grammar, error) { return Compile([]byte(`{"type":"object"}`)) }

type emitter struct {
	n     *normaliser
	b     grammar.Builder
	rules map[formula]grammar.Rule
	todo  []formula
	count int
	space *grammar.Expr
	comma *grammar.Expr
	colon *grammar.Expr
}

// prepare makes what all rules share.
func (e *emitter) prepare() error {
	d, err := shared.space()
	if err != nil {
		return err
	}
	e.space = grammar.Text(d)
	e.comma, e.colon = grammar.Seq(grammar.Literal(","), e.space), grammar.Seq(grammar.Literal(":"), e.space)
	return nil
}

// value is the rule of a formula.
func (e *emitter) value(f formula) grammar.Rule {
	r, ok := e.rules[f]
	if !ok {
		r = e.b.Rule("value")
		e.rules[f] = r
		e.todo = append(e.todo, f)
	}
	return r
}

func (e *emitter) call(f formula) *grammar.Expr { return grammar.Call(e.value(f)) }

func (e *emitter) rule(name string) (grammar.Rule, error) {
	if e.count++; e.count > maxRules {
		return 0, fmt.Errorf("schema: more than %d rules: %w", maxRules, grammar.ErrTooLarge)
	}
	return e.b.Rule(name), nil
}

// body is what satisfies a formula.
func (e *emitter) body(f formula) (*grammar.Expr, error) {
	x, err := e.n.normal(f)
	if err != nil {
		return nil, err
	}
	var alts []*grammar.Expr
	for i, word := range []string{"false", "true"} {
		if x.bools[i] {
			alts = append(alts, grammar.Literal(word))
		}
	}
	if x.null {
		alts = append(alts, grammar.Literal("null"))
	}
	if len(x.numbers) > 0 {
		d, err := shared.numbers(x.numbers)
		if err != nil {
			return nil, fmt.Errorf("schema: %s: %w", e.n.where(f), err)
		}
		alts = append(alts, grammar.Text(d))
	}
	for _, t := range x.texts {
		alts = append(alts, quoted(t))
	}
	for i := range x.arrays {
		a, err := e.array(&x.arrays[i])
		if err != nil {
			return nil, fmt.Errorf("schema: %s: %w", e.n.where(f), err)
		}
		alts = append(alts, a)
	}
	for i := range x.objects {
		o, err := e.object(&x.objects[i])
		if err != nil {
			return nil, fmt.Errorf("schema: %s: %w", e.n.where(f), err)
		}
		alts = append(alts, o)
	}
	return grammar.Alt(alts...), nil
}

// quoted is a string of a set.
func quoted(t texts) *grammar.Expr {
	content := grammar.JSONChars(t.min, t.max, nil)
	switch {
	case t.dfa != nil && t.counted():
		content = grammar.JSONTextBetween(t.dfa, t.min, t.max)
	case t.dfa != nil:
		content = grammar.JSONText(t.dfa)
	}
	return grammar.Seq(grammar.Literal(`"`), content, grammar.Literal(`"`))
}

// name is a property's name as it is written, and the colon.
func (e *emitter) name(name string) (*grammar.Expr, error) {
	plain := !strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r > '~' || strings.ContainsRune(`"\/<>&'`, r) })
	if plain {
		text, err := jsontext.AppendQuote(nil, name)
		return grammar.Seq(grammar.Literal(string(text)), e.colon), err
	}
	d, err := automaton.Texts([]string{name})
	if err != nil {
		return nil, tooLarge(err)
	}
	return grammar.Seq(quoted(texts{d, 0, -1}), e.colon), nil
}

// object is an object of a set: its properties in order, then the others.
func (e *emitter) object(o *object) (*grammar.Expr, error) {
	p, err := e.objectPlan(o)
	if err != nil {
		return nil, err
	}
	first, err := p.rule(objectAt{})
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
	return grammar.Seq(grammar.Literal("{"), e.space, grammar.Call(first), e.space, grammar.Literal("}")), nil
}

// objectAt is how far an object has been written.
type objectAt struct {
	prop  int  // the next property
	begun bool // something is written, so that a comma comes first
	count int  // properties so far, as far as counts matter
	has   uint8
}

type objectPlan struct {
	e        *emitter
	o        *object
	pairs    []*grammar.Expr // [property]
	others   []class         // keys of classes, names left out
	min, max int             // counts that matter; 0 and -1: none
	rules    map[objectAt]grammar.Rule
	todo     []objectAt
}

func (e *emitter) objectPlan(o *object) (*objectPlan, error) {
	p := &objectPlan{e: e, o: o, min: o.min, max: o.max, rules: map[objectAt]grammar.Rule{}}
	var names []string
	required := 0
	for _, q := range o.props {
		names = append(names, q.name)
		if q.required {
			required++
		}
		pair, err := e.name(q.name)
		if err != nil {
			return nil, err
		}
		p.pairs = append(p.pairs, grammar.Seq(pair, e.call(q.is)))
	}
	for _, c := range o.classes {
		if c.is == never {
			continue
		}
		c.but = names
		p.others = append(p.others, c)
	}
	if len(o.has) > 4 {
		return nil, fmt.Errorf("more than four properties that must exist: %w", grammar.ErrTooLarge)
	}
	if p.min <= required {
		p.min = 0
	}
	if p.max >= len(o.props) && len(p.others) == 0 {
		p.max = -1
	}
	if states := (len(o.props) + 1) * (max(p.min, p.max, 0) + 1); len(o.props) > 0 && states > maxStates {
		return nil, fmt.Errorf("minProperties or maxProperties of an object with %d named properties: more than %d states: %w", len(o.props), maxStates, grammar.ErrTooLarge)
	}
	return p, nil
}

func (p *objectPlan) rule(at objectAt) (grammar.Rule, error) {
	if p.min == 0 && p.max < 0 {
		at.count = 0
	} else if p.max < 0 {
		at.count = min(at.count, p.min)
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

// separated is a pair with the comma before it.
func (p *objectPlan) separated(at objectAt, pair *grammar.Expr) *grammar.Expr {
	if at.begun {
		return grammar.Seq(p.e.comma, pair)
	}
	return pair
}

// body is what may follow.
func (p *objectPlan) body(at objectAt) (*grammar.Expr, error) {
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
		take.begun, take.count = true, at.count+1
		next, err := p.then(take)
		if err != nil {
			return nil, err
		}
		alts = append(alts, grammar.Seq(p.separated(at, p.pairs[at.prop]), next))
		for i, h := range p.o.has {
			if at.has>>i&1 == 0 && h.admits(q.name) {
				witness := take
				witness.has |= 1 << i
				if next, err = p.then(witness); err != nil {
					return nil, err
				}
				pair, err := p.e.name(q.name)
				if err != nil {
					return nil, err
				}
				alts = append(alts, grammar.Seq(p.separated(at, grammar.Seq(pair, p.e.call(p.e.n.and(q.is, h.is)))), next))
			}
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

// tail has the properties without a name in the schema.
func (p *objectPlan) tail(at objectAt) (*grammar.Expr, error) {
	var pairs, ends []*grammar.Expr
	for _, c := range p.others {
		pair, err := p.pair(c)
		if err != nil {
			return nil, err
		}
		pairs = append(pairs, pair)
	}
	pair := grammar.Alt(pairs...)
	lo, hi := max(0, p.min-at.count), p.max
	if hi >= 0 {
		hi -= at.count
	}
	missing := uint8(1<<len(p.o.has)-1) &^ at.has
	if missing != 0 {
		return p.witnesses(at, pair, lo, hi)
	}
	switch {
	case at.begun:
		return grammar.Repeat(grammar.Seq(p.e.comma, pair), lo, hi), nil
	case lo == 0:
		ends = append(ends, grammar.Seq())
	}
	if hi != 0 && len(pairs) > 0 {
		ends = append(ends, grammar.Seq(pair, grammar.Repeat(grammar.Seq(p.e.comma, pair), max(lo-1, 0), max(hi-1, min(hi, -1)))))
	}
	return grammar.Alt(ends...), nil
}

// witnesses is tail where one of the others has to satisfy what must exist.
func (p *objectPlan) witnesses(at objectAt, pair *grammar.Expr, lo, hi int) (*grammar.Expr, error) {
	if lo > 0 || hi >= 0 {
		return nil, fmt.Errorf("a property that must exist together with counts of properties: %w", grammar.ErrUnsupported)
	}
	for i, h := range p.o.has {
		if at.has>>i&1 != 0 {
			continue
		}
		var found []*grammar.Expr
		for _, c := range p.others {
			keys, err := bothKeys(c.keys, h.keys)
			if err != nil {
				return nil, err
			}
			w, err := p.pair(class{keys: keys, is: p.e.n.and(c.is, h.is), but: c.but})
			if err != nil {
				return nil, err
			}
			found = append(found, w)
		}
		rest := at
		rest.begun, rest.has = true, at.has|1<<i
		next, err := p.then(rest)
		if err != nil {
			return nil, err
		}
		before := grammar.Repeat(grammar.Seq(pair, p.e.comma), 0, -1)
		return grammar.Seq(p.separated(at, grammar.Seq(before, grammar.Alt(found...))), next), nil
	}
	return nil, nil
}

// pair is a property of a class.
func (p *objectPlan) pair(c class) (*grammar.Expr, error) {
	value := p.e.call(c.is)
	if c.keys == nil {
		return grammar.Seq(grammar.Literal(`"`), grammar.JSONChars(0, -1, c.but), grammar.Literal(`"`), p.e.colon, value), nil
	}
	var named []string
	for _, name := range c.but {
		if c.keys.Match(name) {
			named = append(named, name)
		}
	}
	keys := c.keys
	if named != nil {
		no, err := automaton.Texts(named)
		if err != nil {
			return nil, tooLarge(err)
		}
		if keys, err = automaton.Minus(keys, no); err != nil {
			return nil, tooLarge(err)
		}
	}
	return grammar.Seq(quoted(texts{keys, 0, -1}), p.e.colon, value), nil
}
