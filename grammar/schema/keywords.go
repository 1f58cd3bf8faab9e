package schema

import (
	"fmt"
	"math/big"
	"slices"

	"terrace/grammar"
	"terrace/grammar/automaton"
)

// keyword narrows what a schema allows; s is the whole schema, v what stands at the keyword.
type keyword func(n *normaliser, x *normal, s, v *value) (*normal, error)

// keywords are all that say something about a value. What is not here is an annotation.
var keywords map[string]keyword

func init() {
	keywords = map[string]keyword{
		"type": typeKeyword, "const": constKeyword, "enum": enumKeyword,
		"minimum": boundKeyword, "maximum": boundKeyword, "exclusiveMinimum": boundKeyword, "exclusiveMaximum": boundKeyword, "multipleOf": multipleKeyword,
		"minLength": lengthKeyword, "maxLength": lengthKeyword, "pattern": patternKeyword, "format": formatKeyword,
		"prefixItems": itemsKeyword, "items": itemsKeyword, "additionalItems": nothing, "minItems": countKeyword, "maxItems": countKeyword,
		"contains": containsKeyword, "minContains": nothing, "maxContains": nothing, "uniqueItems": uniqueKeyword,
		"properties": propertiesKeyword, "patternProperties": propertiesKeyword, "additionalProperties": propertiesKeyword,
		"required": requiredKeyword, "minProperties": countKeyword, "maxProperties": countKeyword, "propertyNames": namesKeyword,
		"dependentRequired": dependentKeyword, "dependentSchemas": dependentKeyword, "dependencies": dependentKeyword,
		"allOf": allKeyword, "anyOf": anyKeyword, "oneOf": oneKeyword, "not": notKeyword, "if": ifKeyword, "then": nothing, "else": nothing,
		"$ref": refKeyword, "$dynamicRef": unsupported, "$recursiveRef": unsupported,
		"unevaluatedProperties": unevaluatedKeyword, "unevaluatedItems": unevaluatedKeyword,
		"extends": unsupported, "disallow": unsupported, "divisibleBy": unsupported,
	}
}

func nothing(_ *normaliser, x *normal, _, _ *value) (*normal, error) { return x, nil }

func unsupported(*normaliser, *normal, *value, *value) (*normal, error) {
	return nil, grammar.ErrUnsupported
}

func wrong(want string) error { return fmt.Errorf("want %s: %w", want, grammar.ErrSyntax) }

// schema is the normal form of a schema: what all its keywords allow.
func (n *normaliser) schema(s *value) (*normal, error) {
	if s.kind != '{' {
		return nil, fmt.Errorf("schema: %s: want an object or a boolean: %w", place(s), grammar.ErrSyntax)
	}
	x := anything()
	if ref := s.get("$ref"); n.doc.old && ref != nil {
		return refKeyword(n, x, s, ref)
	}
	for _, first := range []bool{true, false} { // type before the others: what it excludes need not be combined
		for _, m := range s.members {
			apply, ok := keywords[m.name]
			if !ok || (m.name == "type") != first {
				continue
			}
			y, err := apply(n, x, s, m.value)
			if err != nil {
				return nil, fmt.Errorf("schema: %s: %s: %w", place(s), m.name, err)
			}
			x = y
		}
	}
	return x, nil
}

func typeKeyword(n *normaliser, x *normal, _, v *value) (*normal, error) {
	list := []*value{v}
	if v.kind == '[' {
		list = v.items
	}
	t := &normal{}
	all := anything()
	for _, item := range list {
		switch item.text {
		case "null":
			t.null = true
		case "boolean":
			t.bools = all.bools
		case "number":
			t.numbers = all.numbers
		case "integer":
			if t.numbers == nil {
				t.numbers = []numbers{{kind: integer}}
			}
		case "string":
			t.texts = all.texts
		case "array":
			t.arrays = all.arrays
		case "object":
			t.objects = all.objects
		default:
			return nil, fmt.Errorf("%q is no type: %w", item.text, grammar.ErrSyntax)
		}
	}
	return n.both(x, t)
}

func constKeyword(n *normaliser, x *normal, _, v *value) (*normal, error) {
	t, err := n.literals([]*value{v})
	if err != nil {
		return nil, err
	}
	return n.both(x, t)
}

func enumKeyword(n *normaliser, x *normal, _, v *value) (*normal, error) {
	if v.kind != '[' {
		return nil, wrong("an array")
	}
	t, err := n.literals(v.items)
	if err != nil {
		return nil, err
	}
	return n.both(x, t)
}

// literals are some values as they stand.
func (n *normaliser) literals(values []*value) (*normal, error) {
	x := &normal{}
	var strings []string
	for _, v := range values {
		switch v.kind {
		case 'n':
			x.null = true
		case 'f':
			x.bools[0] = true
		case 't':
			x.bools[1] = true
		case '"':
			strings = append(strings, v.text)
		case '0':
			r, err := number(v.text)
			if err != nil {
				return nil, err
			}
			x.numbers = append(x.numbers, numbers{lo: r, hi: r})
		case '[':
			a := array{rest: never, min: len(v.items), max: len(v.items)}
			for _, item := range v.items {
				a.first = append(a.first, n.equal(item))
			}
			x.arrays = append(x.arrays, a)
		default:
			o := object{classes: []class{{is: never}}, max: -1}
			for _, m := range v.members {
				o.props = append(o.props, property{m.name, n.equal(m.value), true, false})
			}
			x.objects = append(x.objects, o)
		}
	}
	if strings != nil {
		d, err := automaton.Texts(strings)
		if err != nil {
			return nil, tooLarge(err)
		}
		x.texts = []texts{{d, 0, -1}}
	}
	return x, nil
}

func boundKeyword(n *normaliser, x *normal, s, v *value) (*normal, error) {
	name := ""
	for _, m := range s.members {
		if m.value == v {
			name = m.name
		}
	}
	if v.kind == 't' || v.kind == 'f' {
		if name == "exclusiveMinimum" || name == "exclusiveMaximum" {
			return x, nil // of draft 4: read with minimum and maximum
		}
	}
	if v.kind != '0' {
		return nil, wrong("a number")
	}
	r, err := number(v.text)
	if err != nil {
		return nil, err
	}
	flag := func(name string) bool { f := s.get(name); return f != nil && f.kind == 't' }
	var t numbers
	switch name {
	case "minimum":
		t = numbers{lo: r, loOpen: flag("exclusiveMinimum")}
	case "exclusiveMinimum":
		t = numbers{lo: r, loOpen: true}
	case "maximum":
		t = numbers{hi: r, hiOpen: flag("exclusiveMaximum")}
	default:
		t = numbers{hi: r, hiOpen: true}
	}
	return n.narrowNumbers(x, t), nil
}

func (n *normaliser) narrowNumbers(x *normal, t numbers) *normal {
	out := *x
	out.numbers = nil
	for _, a := range x.numbers {
		if b, ok := a.and(t); ok {
			out.numbers = append(out.numbers, b)
		}
	}
	return &out
}

func multipleKeyword(n *normaliser, x *normal, _, v *value) (*normal, error) {
	if v.kind != '0' {
		return nil, wrong("a number")
	}
	r, err := number(v.text)
	if err != nil {
		return nil, err
	}
	if r.Sign() <= 0 {
		return nil, wrong("more than 0")
	}
	if r.Cmp(big.NewRat(1, 1)) == 0 {
		return n.narrowNumbers(x, numbers{kind: integer}), nil
	}
	return n.narrowNumbers(x, numbers{of: r}), nil
}

// count reads a number that is not negative.
func count(v *value) (int, error) {
	if v.kind == '0' {
		if r, err := number(v.text); err == nil && r.IsInt() && r.Sign() >= 0 {
			if r.Num().IsInt64() && r.Num().Int64() < 1<<30 {
				return int(r.Num().Int64()), nil
			}
			return 1 << 30, nil
		}
	}
	return 0, wrong("a number from 0 on")
}

func lengthKeyword(n *normaliser, x *normal, s, v *value) (*normal, error) {
	c, err := count(v)
	if err != nil {
		return nil, err
	}
	if v == s.get("minLength") {
		return n.narrowTexts(x, texts{nil, c, -1})
	}
	return n.narrowTexts(x, texts{nil, 0, c})
}

func (n *normaliser) narrowTexts(x *normal, t texts) (*normal, error) {
	out := *x
	out.texts = nil
	for _, a := range x.texts {
		b, err := a.and(t)
		if err != nil {
			return nil, err
		}
		if !b.empty() {
			out.texts = append(out.texts, b)
		}
	}
	return &out, nil
}

func patternKeyword(n *normaliser, x *normal, _, v *value) (*normal, error) {
	if v.kind != '"' {
		return nil, wrong("a string")
	}
	d, err := pattern(v.text)
	if err != nil {
		return nil, err
	}
	return n.narrowTexts(x, texts{d, 0, -1})
}

func formatKeyword(n *normaliser, x *normal, _, v *value) (*normal, error) {
	if v.kind != '"' || len(x.texts) == 0 {
		return x, nil
	}
	d, err := format(v.text)
	if err != nil || d == nil {
		return x, err
	}
	return n.narrowTexts(x, texts{d, 0, -1})
}

func countKeyword(n *normaliser, x *normal, s, v *value) (*normal, error) {
	c, err := count(v)
	if err != nil {
		return nil, err
	}
	t := anything()
	switch v {
	case s.get("minItems"):
		t.arrays[0].min = c
	case s.get("maxItems"):
		t.arrays[0].max = c
	case s.get("minProperties"):
		t.objects[0].min = c
	default:
		t.objects[0].max = c
	}
	return n.both(x, t)
}

// itemsKeyword reads prefixItems, items and additionalItems together, once.
func itemsKeyword(n *normaliser, x *normal, s, v *value) (*normal, error) {
	prefix, items := s.get("prefixItems"), s.get("items")
	if v == items && prefix != nil && prefix.kind == '[' {
		return x, nil
	}
	a := allArrays()
	if prefix == nil && items.kind == '[' {
		prefix, items = items, s.get("additionalItems")
	}
	if prefix != nil {
		if prefix.kind != '[' {
			return nil, wrong("an array")
		}
		for _, item := range prefix.items {
			a.first = append(a.first, n.at(item))
		}
	}
	if items != nil {
		a.rest = n.at(items)
	}
	a, ok := a.tidy()
	t := anything()
	if t.arrays = []array{a}; !ok {
		t.arrays = nil
	}
	return n.both(x, t)
}

func containsKeyword(n *normaliser, x *normal, s, v *value) (*normal, error) {
	c := contained{n.at(v), 1, -1}
	for name, to := range map[string]*int{"minContains": &c.min, "maxContains": &c.max} {
		if v := s.get(name); v != nil {
			k, err := count(v)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			*to = k
		}
	}
	t := anything()
	t.arrays[0].contains = []contained{c}
	return n.both(x, t)
}

func uniqueKeyword(n *normaliser, x *normal, _, v *value) (*normal, error) {
	if v.kind != 't' {
		return x, nil
	}
	t := anything()
	t.arrays[0].unique = true
	return n.both(x, t)
}

// propertiesKeyword reads properties, patternProperties and additionalProperties together, at the first of them.
func propertiesKeyword(n *normaliser, x *normal, s, v *value) (*normal, error) {
	for _, m := range s.members {
		if m.name == "properties" || m.name == "patternProperties" || m.name == "additionalProperties" {
			if m.value != v {
				return x, nil
			}
			break
		}
	}
	o := object{max: -1, classes: []class{{is: always}}}
	additional := always
	if a := s.get("additionalProperties"); a != nil {
		additional = n.at(a)
	}
	if p := s.get("patternProperties"); p != nil {
		if err := n.patternProperties(&o, p, additional); err != nil {
			return nil, err
		}
	} else {
		o.classes[0].is = additional
	}
	if p := s.get("properties"); p != nil {
		if p.kind != '{' {
			return nil, wrong("an object")
		}
		for _, m := range p.members {
			is := n.at(m.value)
			if s.get("patternProperties") != nil { // those that its name matches count too; additionalProperties does not
				is = n.and(is, o.of(m.name))
				if n.additional(&o, m.name) {
					is = n.at(m.value)
				}
			}
			o.props = append(o.props, property{name: m.name, is: is})
		}
	}
	t := anything()
	t.objects = []object{o}
	return n.both(x, t)
}

// additional says whether a name is in the class of no pattern: the last.
func (n *normaliser) additional(o *object, name string) bool {
	last := o.classes[len(o.classes)-1]
	return last.but != nil && (last.keys == nil || last.keys.Match(name))
}

// patternProperties makes the classes of keys; that of the keys that no pattern matches is the last, if there is one.
func (n *normaliser) patternProperties(o *object, p *value, additional formula) error {
	if p.kind != '{' {
		return wrong("an object")
	}
	others := automaton.All()
	for _, m := range p.members {
		d, err := pattern(m.name)
		if err != nil {
			return err
		}
		if err := n.divide(o, d, n.at(m.value)); err != nil {
			return err
		}
		if others, err = automaton.Minus(others, d); err != nil {
			return tooLarge(err)
		}
	}
	if others.Empty() {
		return nil
	}
	var classes []class
	for _, c := range o.classes {
		if c.keys == nil {
			c.keys = automaton.All()
		}
		rest, err := automaton.Minus(c.keys, others)
		if err != nil {
			return tooLarge(err)
		}
		if !rest.Empty() {
			classes = append(classes, class{keys: rest, is: c.is})
		}
	}
	o.classes = append(classes, class{keys: others, is: additional, but: []string{}})
	return nil
}

func requiredKeyword(n *normaliser, x *normal, s, v *value) (*normal, error) {
	if v.kind == 't' || v.kind == 'f' {
		return x, nil // of draft 3: it says nothing about this value
	}
	if v.kind != '[' {
		return nil, wrong("an array")
	}
	return n.require(x, v.items)
}

func (n *normaliser) require(x *normal, names []*value) (*normal, error) {
	o := allObjects()
	for _, item := range names {
		if item.kind != '"' {
			return nil, wrong("strings")
		}
		n.set(&o, item.text, always, true)
	}
	t := anything()
	t.objects = []object{o}
	return n.both(x, t)
}

func namesKeyword(n *normaliser, x *normal, _, v *value) (*normal, error) {
	y, err := n.normal(n.at(v))
	if err != nil {
		return nil, err
	}
	d, err := automatonOf(y.texts)
	if err != nil || d == nil {
		return x, err
	}
	out := *x
	out.objects = nil
	no, err := automaton.Complement(d)
	if err != nil {
		return nil, tooLarge(err)
	}
	for _, o := range x.objects {
		o.props, o.classes, o.index = slices.Clone(o.props), slices.Clone(o.classes), nil
		for i := range o.props {
			if !d.Match(o.props[i].name) {
				o.props[i].is = never
			}
		}
		if err := n.divide(&o, no, never); err != nil {
			return nil, err
		}
		if o.possible() {
			out.objects = append(out.objects, o)
		}
	}
	return &out, nil
}
