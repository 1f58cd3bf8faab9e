package jinja

import "slices"

// bound holds the arguments of a call in the order of its parameters.
type bound struct{ values []any }

// absent marks a parameter without a value.
type absent struct{}

// or is parameter i, or its default.
func (b *bound) or(i int, missing any) any {
	if i >= len(b.values) {
		return missing
	}
	if _, ok := b.values[i].(absent); ok {
		return missing
	}
	return b.values[i]
}

// bind sorts arguments by the names of parameters; the first need of them must be given.
func bind(what string, args []any, list []named, need int, names ...string) *bound {
	if len(args) > len(names) {
		throw("%s takes at most %d arguments, got %d", what, len(names), len(args))
	}
	b := &bound{make([]any, len(names))}
	for i := range names {
		b.values[i] = absent{}
		if i < len(args) {
			b.values[i] = args[i]
		}
	}
	for _, n := range list {
		i := slices.Index(names, n.name)
		if i < 0 {
			throw("%s got an unexpected keyword argument %s", what, pythonQuote(n.name))
		}
		if _, free := b.values[i].(absent); !free {
			throw("%s got multiple values for argument %s", what, pythonQuote(n.name))
		}
		b.values[i] = n.value
	}
	for i := range need {
		if _, ok := b.values[i].(absent); ok {
			throw("%s is missing argument %s", what, pythonQuote(names[i]))
		}
	}
	return b
}

// wantText is v as text, or an error.
func (r *run) wantText(v any, what string) string {
	s, ok := text(v)
	if !ok {
		r.needs(v)
		throw("%s must be str, not %s", what, typeName(v))
	}
	return s
}
