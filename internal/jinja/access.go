package jinja

import (
	"strings"
	"unicode/utf8"
)

// attr is v.name: a method or attribute first, then an entry.
func (r *run) attr(v any, name string) any {
	if a, ok := r.own(v, name); ok {
		return a
	}
	if d, ok := v.(*Dict); ok {
		if x, ok := d.Get(name); ok {
			return x
		}
	}
	return r.noAttr(v, name)
}

func (r *run) noAttr(v any, name string) any {
	if u, ok := v.(*undefined); ok {
		throw("%s", u.what)
	}
	return &undefined{sprintf("%s has no attribute %s", pythonQuote(objectName(v)), pythonQuote(name))}
}

// objectName is how jinja2 names a value in messages.
func objectName(v any) string {
	if v == nil {
		return "None"
	}
	return typeName(v) + " object"
}

// own is a member of a value that is no item of it; a method knows whose it is.
func (r *run) own(v any, name string) (any, bool) {
	a, ok := r.member(v, name)
	if m, is := a.(*builtin); is {
		m.of = v
	}
	return a, ok
}

// member is a method or attribute of v.
func (r *run) member(v any, name string) (any, bool) {
	switch v := v.(type) {
	case string:
		if m, ok := stringMethods[name]; ok {
			return &builtin{name: name, call: func(r *run, args []any, list []named) any { return m.run(r, name, v, args, list) }}, true
		}
	case markup:
		if m, ok := stringMethods[name]; ok {
			return &builtin{name: name, call: func(r *run, args []any, list []named) any {
				out := m.run(r, name, string(v), args, list)
				if s, ok := out.(string); ok {
					return markup(s)
				}
				return out
			}}, true
		}
	case *Dict:
		if m, ok := dictMethods[name]; ok {
			return &builtin{name: name, call: func(r *run, args []any, list []named) any { return m(r, v, args, list) }}, true
		}
	case *List:
		if m, ok := listMethods[name]; ok && v.kind <= kindTuple && (v.kind == kindList || name == "index" || name == "count") {
			return &builtin{name: name, call: func(r *run, args []any, list []named) any { return m(r, v, args, list) }}, true
		}
		if v.name == "group" {
			switch name {
			case "grouper":
				return v.Items[0], true
			case "list":
				return v.Items[1], true
			}
		}
	case *rangeValue:
		if name == "index" || name == "count" {
			return &builtin{name: name, call: func(r *run, args []any, list []named) any {
				return listMethods[name](r, r.newList(r.iterate(v)), args, list)
			}}, true
		}
	case *namespaceValue:
		x, ok := v.vars.Get(name)
		return x, ok
	case *loopValue:
		return v.attr(name)
	case *macroValue:
		if name == "name" {
			return v.name, true
		}
	case *cyclerValue:
		return v.attr(name)
	}
	return nil, false
}

func (c *cyclerValue) attr(name string) (any, bool) {
	switch name {
	case "current":
		return c.items[c.at], true
	case "next":
		return &builtin{name: name, call: func(*run, []any, []named) any {
			v := c.items[c.at]
			c.at = (c.at + 1) % len(c.items)
			return v
		}}, true
	case "reset":
		return &builtin{name: name, call: func(*run, []any, []named) any { c.at = 0; return nil }}, true
	}
	return nil, false
}

// item is v[key]: an entry first, then an attribute.
func (r *run) item(v, key any) any {
	switch c := v.(type) {
	case *Dict:
		switch key.(type) {
		case *List, *Dict:
		default:
			if x, ok := c.Get(key); ok {
				return x
			}
		}
	case *undefined:
		throw("%s", c.what)
	default:
		if n, ok := integer(key); ok {
			if x, ok := r.index(v, n); ok {
				return x
			}
		}
	}
	if name, ok := text(key); ok {
		if a, ok := r.own(v, name); ok {
			return a
		}
		return r.noAttr(v, name)
	}
	return &undefined{sprintf("%s has no element %s", objectName(v), r.repr(key))}
}

// index is v[n] of a sequence; n may count from the end.
func (r *run) index(v any, n int64) (any, bool) {
	switch v := v.(type) {
	case string, markup:
		s, _ := text(v)
		r.charge(len(s) / 16)
		if n < 0 {
			n += int64(runes(s))
		}
		for _, c := range s {
			if n == 0 {
				return string(c), true
			}
			n--
		}
	case *List:
		if n < 0 {
			n += int64(len(v.Items))
		}
		if v.kind <= kindTuple && n >= 0 && n < int64(len(v.Items)) {
			return v.Items[n], true
		}
	case *rangeValue:
		if n < 0 {
			n += v.length()
		}
		if n >= 0 && n < v.length() {
			return v.start + n*v.step, true
		}
	}
	return nil, false
}

// slice is v[start:stop:step]; nil = not given.
func (r *run) slice(v, start, stop, step any) any {
	switch v := v.(type) {
	case string, markup:
		s, _ := text(v)
		if (step == nil || step == int64(1)) && len(s) == runes(s) {
			a, b, _ := r.bounds(len(s), start, stop, step)
			return r.made(s[a:max(a, b)])
		}
		r.charge(4 * len(s))
		list := []rune(s)
		var b strings.Builder
		r.each(len(list), start, stop, step, func(i int) { b.WriteRune(list[i]) })
		return r.made(b.String())
	case *List:
		if v.kind <= kindTuple {
			var items []any
			r.each(len(v.Items), start, stop, step, func(i int) { items = append(items, v.Items[i]) })
			l := r.newList(items)
			l.kind = v.kind
			return l
		}
	case *rangeValue:
		a, b, by := r.bounds(int(v.length()), start, stop, step)
		return &rangeValue{v.start + int64(a)*v.step, v.start + int64(b)*v.step, v.step * int64(by)}
	case *undefined:
		throw("%s", v.what)
	case *Dict:
		throw("unhashable type: 'slice'")
	}
	throw("%s object is not subscriptable", pythonQuote(typeName(v)))
	return nil
}

// each calls f for every index of a slice of n items.
func (r *run) each(n int, start, stop, step any, f func(i int)) {
	a, b, by := r.bounds(n, start, stop, step)
	for i := a; by > 0 && i < b || by < 0 && i > b; i += by {
		r.charge(1)
		f(i)
	}
}

// bounds is Python's slice.indices(n).
func (r *run) bounds(n int, start, stop, step any) (a, b, by int) {
	by = 1
	if step != nil {
		by = int(max(min(r.wantInt(step, "slice indices"), 1<<40), -1<<40))
	}
	if by == 0 {
		throw("slice step cannot be zero")
	}
	low, high := 0, n
	if by < 0 {
		low, high = -1, n-1
	}
	clamp := func(v any, missing int) int {
		if v == nil {
			return missing
		}
		i := r.wantInt(v, "slice indices")
		if i < 0 {
			i += int64(n)
		}
		return int(min(max(i, int64(low)), int64(high)))
	}
	if by > 0 {
		return clamp(start, low), clamp(stop, high), by
	}
	return clamp(start, high), clamp(stop, low), by
}

// wantInt is v as an integer, or an error that names what it was for.
func (r *run) wantInt(v any, what string) int64 {
	n, ok := integer(v)
	if !ok {
		r.needs(v)
		throw("%s must be integers, not %s", what, typeName(v))
	}
	return n
}

// length is Python's len(v).
func (r *run) length(v any) int64 {
	switch v := v.(type) {
	case string, markup:
		s, _ := text(v)
		r.charge(len(s) / 16)
		return int64(utf8.RuneCountInString(s))
	case *List:
		if v.kind != kindGenerator {
			return int64(len(v.Items))
		}
	case *Dict:
		return int64(v.Len())
	case *rangeValue:
		return v.length()
	case *undefined:
		return 0
	case *loopValue:
		return int64(len(v.items))
	}
	throw("object of type %s has no len()", pythonQuote(typeName(v)))
	return 0
}
