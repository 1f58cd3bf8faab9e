package schema

import (
	"fmt"

	"terrace/grammar"
)

func refKeyword(n *normaliser, x *normal, s, v *value) (*normal, error) {
	if v.kind != '"' {
		return nil, wrong("a string")
	}
	to, err := n.doc.resolve(s, v.text)
	if err != nil {
		return nil, err
	}
	return n.meet(x, n.at(to))
}

// meet is what is in x and satisfies f.
func (n *normaliser) meet(x *normal, f formula) (*normal, error) {
	y, err := n.normal(f)
	if err != nil {
		return nil, err
	}
	return n.both(x, y)
}

// list reads the schemas of allOf, anyOf and oneOf.
func (n *normaliser) schemas(v *value) (out []formula, err error) {
	if v.kind != '[' || len(v.items) == 0 {
		return nil, wrong("an array of schemas")
	}
	for _, item := range v.items {
		out = append(out, n.at(item))
	}
	return out, nil
}

func allKeyword(n *normaliser, x *normal, _, v *value) (*normal, error) {
	list, err := n.schemas(v)
	for i := 0; i < len(list) && err == nil; i++ {
		x, err = n.meet(x, list[i])
	}
	return x, err
}

func anyKeyword(n *normaliser, x *normal, _, v *value) (*normal, error) {
	list, err := n.schemas(v)
	if err != nil {
		return nil, err
	}
	return n.any(x, list)
}

// any is what is in x and satisfies one of the formulas.
func (n *normaliser) any(x *normal, list []formula) (*normal, error) {
	out := &normal{}
	for _, f := range list {
		y, err := n.meet(x, f)
		if err != nil {
			return nil, err
		}
		out = either(out, y)
	}
	if k := max(len(out.objects), len(out.arrays), len(out.texts), len(out.numbers)); k > maxSets {
		return nil, fmt.Errorf("more than %d alternatives: %w", maxSets, grammar.ErrTooLarge)
	}
	return out, nil
}

// oneKeyword: each alternative without those others that can hold at the same time.
func oneKeyword(n *normaliser, x *normal, _, v *value) (*normal, error) {
	list, err := n.schemas(v)
	if err != nil {
		return nil, err
	}
	only := make([]formula, len(list))
	for i, f := range list {
		if only[i] = f; f == never {
			continue
		}
		y, err := n.meet(x, f)
		if err != nil {
			return nil, err
		}
		for k, g := range list {
			if i == k {
				continue
			}
			apart, err := n.apart(y, f, g)
			if err != nil {
				return nil, err
			}
			if !apart {
				only[i] = n.and(only[i], n.not(g))
			}
		}
	}
	return n.any(x, only)
}

// apart says whether nothing of x, which satisfies f, satisfies g.
func (n *normaliser) apart(x *normal, f, g formula) (bool, error) {
	if f == g {
		return false, nil
	}
	y, err := n.normal(g)
	if err != nil {
		return false, err
	}
	both, err := n.both(x, y)
	if err != nil {
		return false, err
	}
	const depth = 4
	return n.nothingIn(both, depth)
}

func notKeyword(n *normaliser, x *normal, _, v *value) (*normal, error) {
	return n.meet(x, n.not(n.at(v)))
}

func ifKeyword(n *normaliser, x *normal, s, v *value) (*normal, error) {
	branch := func(name string, f formula) formula {
		if b := s.get(name); b != nil {
			return n.and(f, n.at(b))
		}
		return f
	}
	if s.get("then") == nil && s.get("else") == nil {
		return x, nil
	}
	cond := n.at(v)
	return n.any(x, []formula{branch("then", cond), branch("else", n.not(cond))})
}

// dependentKeyword: for each name, either the object lacks it, or what depends on it holds.
func dependentKeyword(n *normaliser, x *normal, s, v *value) (*normal, error) {
	if v.kind != '{' {
		return nil, wrong("an object")
	}
	for _, m := range v.members {
		without := allObjects()
		n.set(&without, m.name, never, false)
		t := anything()
		t.objects = []object{without}
		lacks, err := n.both(x, t)
		if err != nil {
			return nil, err
		}
		with := allObjects()
		n.set(&with, m.name, always, true)
		t = &normal{objects: []object{with}}
		has, err := n.both(x, t)
		if err != nil {
			return nil, err
		}
		if m.value.kind == '[' {
			has, err = n.require(has, m.value.items)
		} else {
			has, err = n.meet(has, n.at(m.value))
		}
		if err != nil {
			return nil, err
		}
		if x = either(lacks, has); len(x.objects) > maxSets {
			return nil, fmt.Errorf("more than %d alternatives: %w", maxSets, grammar.ErrTooLarge)
		}
		x.numbers, x.texts, x.arrays = lacks.numbers, lacks.texts, lacks.arrays
	}
	return x, nil
}

// unevaluatedKeyword is additionalProperties, or items, where no other keyword evaluates anything.
func unevaluatedKeyword(n *normaliser, x *normal, s, v *value) (*normal, error) {
	if n.at(v) == always {
		return x, nil
	}
	for _, name := range []string{"$ref", "allOf", "anyOf", "oneOf", "not", "if", "dependentSchemas", "$dynamicRef", "contains"} {
		if s.get(name) != nil {
			return nil, fmt.Errorf("beside %s: %w", name, grammar.ErrUnsupported)
		}
	}
	t := anything()
	if v == s.get("unevaluatedItems") {
		if s.get("items") != nil && s.get("items").kind != '[' || s.get("additionalItems") != nil {
			return x, nil
		}
		prefix := s.get("prefixItems")
		if prefix == nil {
			prefix = s.get("items")
		}
		a := allArrays()
		if prefix != nil {
			for range prefix.items {
				a.first = append(a.first, always)
			}
		}
		a.rest = n.at(v)
		t.arrays[0], _ = a.tidy()
		return n.both(x, t)
	}
	if s.get("additionalProperties") != nil {
		return x, nil
	}
	if s.get("patternProperties") != nil {
		return nil, fmt.Errorf("beside patternProperties: %w", grammar.ErrUnsupported)
	}
	o := allObjects()
	o.classes[0].is = n.at(v)
	if p := s.get("properties"); p != nil {
		for _, m := range p.members {
			o.props = append(o.props, property{name: m.name, is: always})
		}
	}
	t.objects = []object{o}
	return n.both(x, t)
}
