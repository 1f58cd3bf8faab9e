package schema

import (
	"fmt"
	"strings"

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
	var b grammar.Builder
	value, err := Embed(&b, schema)
	if err != nil {
		return nil, err
	}
	whole := b.Rule("text")
	b.Set(whole, grammar.Seq(grammar.Literal(before), value, grammar.Literal(after)))
	g, err := b.Compile(whole)
	if err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	return g, nil
}

// Embed adds rules to a grammar that is being built, and returns the JSON texts that satisfy a schema as a part of it. Errors
// are Compile's; a schema that nothing can satisfy shows when the grammar is compiled.
func Embed(b *grammar.Builder, schema []byte) (*grammar.Expr, error) {
	root, err := parse(schema)
	if err != nil {
		return nil, err
	}
	if root.kind != '{' && root.kind != 't' && root.kind != 'f' {
		return nil, fmt.Errorf("schema: want an object or a boolean: %w", grammar.ErrSyntax)
	}
	e := &emitter{n: newNormaliser(root), b: b, rules: map[formula]grammar.Rule{}}
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
	return grammar.Call(top), nil
}

// Object is the grammar of any JSON object.
func Object() (*grammar.Grammar, error) { return Compile([]byte(`{"type":"object"}`)) }

type emitter struct {
	n     *normaliser
	b     *grammar.Builder
	rules map[formula]grammar.Rule
	todo  []formula
	count int
	space *grammar.Expr
	comma *grammar.Expr
	colon *grammar.Expr

	another *grammar.Expr // the comma before a property, and the quote of its name
}

// prepare makes what all rules share.
func (e *emitter) prepare() error {
	d, err := shared.space()
	if err != nil {
		return err
	}
	e.space = grammar.Text(d)
	e.comma, e.colon = grammar.Seq(grammar.Literal(","), e.space), grammar.Seq(grammar.Literal(":"), e.space)
	e.another = grammar.Seq(e.comma, grammar.Literal(`"`))
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

// name is a property's name as it is written behind the first quote, and the colon.
func (e *emitter) name(name string) (*grammar.Expr, error) {
	plain := !strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r > '~' || strings.ContainsRune(`"\/<>&'`, r) })
	if plain {
		return grammar.Seq(grammar.Literal(name+`"`), e.colon), nil
	}
	d, err := automaton.Texts([]string{name})
	if err != nil {
		return nil, tooLarge(err)
	}
	return grammar.Seq(grammar.JSONText(d), grammar.Literal(`"`), e.colon), nil
}
