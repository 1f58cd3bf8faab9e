package jinja

import (
	"slices"
	"strconv"
	"strings"
)

var listFilters = map[string]filterDef{
	"batch": {1, []string{"linecount", "fill_with"}, func(r *run, v any, a *bound) any {
		n := int(r.wantInt(a.values[0], "linecount"))
		if n < 1 {
			throw("batch: linecount is %d, want 1 or more", n)
		}
		return r.generator("do_batch", func() (rows []any) {
			for chunk := range slices.Chunk(r.iterate(v), n) {
				row := slices.Clone(chunk)
				if fill := a.or(1, nil); fill != nil {
					r.fits(16 * n)
					for len(row) < n {
						row = append(row, fill)
					}
				}
				rows = append(rows, r.newList(row))
			}
			return rows
		})
	}},
	"slice": {1, []string{"slices", "fill_with"}, func(r *run, v any, a *bound) any {
		n := int(r.wantInt(a.values[0], "slices"))
		if n < 1 || n > maxRange {
			throw("slice: slices is %d, want 1 to %d", n, maxRange)
		}
		return r.generator("sync_do_slice", func() (rows []any) {
			items, at := r.iterate(v), 0
			for i := range n {
				size := len(items) / n
				if i < len(items)%n {
					size++
				}
				row := slices.Clone(items[at : at+size])
				if fill := a.or(1, nil); fill != nil && i >= len(items)%n {
					row = append(row, fill)
				}
				at += size
				rows = append(rows, r.newList(row))
			}
			return rows
		})
	}},
	"dictsort": {0, []string{"case_sensitive", "by", "reverse"}, func(r *run, v any, a *bound) any {
		d, ok := v.(*Dict)
		if !ok {
			r.needs(v)
			throw("%s object has no attribute 'items'", pythonQuote(typeName(v)))
		}
		pos := map[string]int{"key": 0, "value": 1}
		at, ok := pos[r.str(a.or(1, "key"))]
		if !ok {
			throw(`You can only sort by either "key" or "value"`)
		}
		pairs := d.pairs()
		r.sortStable(pairs, func(i int) any { return r.folded(pairs[i].(*List).Items[at], a.or(0, false)) }, truth(a.or(2, false)))
		return r.newList(pairs)
	}},
	"first": {call: func(r *run, v any, _ *bound) any {
		if items := r.iterate(v); len(items) > 0 {
			return items[0]
		}
		return &undefined{"No first item, sequence was empty."}
	}},
	"last": {call: func(r *run, v any, _ *bound) any {
		if l, ok := v.(*List); ok && l.kind == kindGenerator {
			throw("'generator' object is not reversible")
		}
		if items := r.iterate(v); len(items) > 0 {
			return items[len(items)-1]
		}
		return &undefined{"No last item, sequence was empty."}
	}},
	"groupby": {1, []string{"attribute", "default", "case_sensitive"}, groupBy},
	"items": {call: func(r *run, v any, _ *bound) any {
		return r.generator("do_items", func() []any {
			switch d := v.(type) {
			case *undefined:
				return nil
			case *Dict:
				return d.pairs()
			}
			throw("Can only get item pairs from a mapping.")
			return nil
		})
	}},
	"join": {0, []string{"d", "attribute"}, func(r *run, v any, a *bound) any {
		get := r.getter(a.or(1, nil), nil)
		return r.join(r.str(a.or(0, "")), r.iterate(v), func(_ int, v any) string { return r.str(get(v)) })
	}},
	"list": {call: func(r *run, v any, _ *bound) any { return r.newList(slices.Clone(r.iterate(v))) }},
	"max":  {0, []string{"case_sensitive", "attribute"}, func(r *run, v any, a *bound) any { return r.extreme(v, a, 1) }},
	"min":  {0, []string{"case_sensitive", "attribute"}, func(r *run, v any, a *bound) any { return r.extreme(v, a, -1) }},
	"reverse": {call: func(r *run, v any, _ *bound) any {
		if s, ok := text(v); ok {
			list := []rune(s)
			slices.Reverse(list)
			return r.made(string(list))
		}
		items := slices.Clone(r.iterate(v))
		slices.Reverse(items)
		if l, ok := v.(*List); ok && l.kind == kindGenerator { // which Python cannot reverse: jinja2 makes a list of it
			return r.newList(items)
		}
		return r.generator("list_reverseiterator", func() []any { return items })
	}},
	"sort": {0, []string{"reverse", "case_sensitive", "attribute"}, func(r *run, v any, a *bound) any {
		items, get := slices.Clone(r.iterate(v)), r.multiGetter(a.or(2, nil))
		r.sortStable(items, func(i int) any {
			keys := get(items[i])
			for j, k := range keys {
				keys[j] = r.folded(k, a.or(1, false))
			}
			return newTuple(keys...)
		}, truth(a.or(0, false)))
		return r.newList(items)
	}},
	"sum": {0, []string{"attribute", "start"}, func(r *run, v any, a *bound) any {
		total, get := a.or(1, int64(0)), r.getter(a.or(0, nil), nil)
		for _, x := range r.iterate(v) {
			total = r.binary("+", total, get(x))
		}
		return total
	}},
	"unique": {0, []string{"case_sensitive", "attribute"}, func(r *run, v any, a *bound) any {
		return r.generator("sync_do_unique", func() (out []any) {
			get, seen := r.getter(a.or(1, nil), nil), NewDict()
			for _, x := range r.iterate(v) {
				k := r.folded(get(x), a.or(0, false))
				if _, ok := seen.Get(k); !ok {
					seen.Set(k, true)
					out = append(out, x)
				}
			}
			return out
		})
	}},
	"map": {}, "select": {}, "reject": {}, "selectattr": {}, "rejectattr": {},
}

// wideFilters take any arguments: those behind the first are passed on.
var wideFilters map[string]func(r *run, v any, args []any, list []named) any

func init() {
	wideFilters = map[string]func(r *run, v any, args []any, list []named) any{
		"map":        mapFilter,
		"select":     func(r *run, v any, args []any, list []named) any { return r.selected(v, args, list, false, true) },
		"reject":     func(r *run, v any, args []any, list []named) any { return r.selected(v, args, list, false, false) },
		"selectattr": func(r *run, v any, args []any, list []named) any { return r.selected(v, args, list, true, true) },
		"rejectattr": func(r *run, v any, args []any, list []named) any { return r.selected(v, args, list, true, false) },
		"format": func(r *run, v any, args []any, list []named) any {
			if len(list) == 0 {
				return r.percent(r.str(v), newTuple(args...))
			}
			if len(args) > 0 {
				throw("can't handle positional and keyword arguments at the same time")
			}
			return r.percent(r.str(v), dictOf(r, nil, list))
		},
	}
}

func mapFilter(r *run, v any, args []any, list []named) any {
	return r.generator("sync_do_map", func() (out []any) {
		if !truth(v) {
			return nil
		}
		var get func(x any) any
		if len(args) == 0 {
			a := bind("filter map", nil, list, 1, "attribute", "default")
			get = r.getter(a.values[0], a.or(1, nil))
		} else {
			name := r.str(args[0])
			get = func(x any) any { return r.filter(name, x, args[1:], list) }
		}
		for _, x := range r.iterate(v) {
			r.charge(1)
			out = append(out, get(x))
		}
		return out
	})
}

// selected is select, reject, selectattr and rejectattr: keep says which answer stays.
func (r *run) selected(v any, args []any, list []named, byAttr, keep bool) any {
	return r.generator("select_or_reject", func() (out []any) {
		if !truth(v) {
			return nil
		}
		get := func(x any) any { return x }
		if byAttr {
			if len(args) == 0 {
				throw("Missing parameter for attribute name")
			}
			get = r.getter(args[0], nil)
			args = args[1:]
		}
		for _, x := range r.iterate(v) {
			r.charge(1)
			is := false
			if len(args) == 0 {
				is = truth(get(x))
			} else {
				is = r.test(r.str(args[0]), get(x), args[1:], list)
			}
			if is == keep {
				out = append(out, x)
			}
		}
		return out
	})
}

// getter reads an attribute such as "a.b.0" of a value; nil reads the value itself.
func (r *run) getter(attribute, missing any) func(v any) any {
	if attribute == nil {
		return func(v any) any { return v }
	}
	var path []any
	if n, ok := integer(attribute); ok {
		path = []any{n}
	} else {
		for _, p := range strings.Split(r.str(attribute), ".") {
			if n, err := strconv.ParseUint(p, 10, 31); err == nil {
				path = append(path, int64(n))
			} else {
				path = append(path, p)
			}
		}
	}
	return func(v any) any {
		for _, p := range path {
			v = r.item(v, p)
			if _, no := v.(*undefined); no && missing != nil {
				v = missing
			}
		}
		return v
	}
}

func (r *run) multiGetter(attribute any) func(v any) []any {
	s, ok := text(attribute)
	if !ok {
		get := r.getter(attribute, nil)
		return func(v any) []any { return []any{get(v)} }
	}
	var gets []func(v any) any
	for _, a := range strings.Split(s, ",") {
		gets = append(gets, r.getter(a, nil))
	}
	return func(v any) []any {
		keys := make([]any, len(gets))
		for i, get := range gets {
			keys[i] = get(v)
		}
		return keys
	}
}

// folded is jinja2's ignore_case.
func (r *run) folded(v, sensitive any) any {
	if s, ok := text(v); ok && !truth(sensitive) {
		return lower(s)
	}
	return v
}

// sortStable sorts items by the key of each, which is computed once.
func (r *run) sortStable(items any, key func(i int) any, reverse bool) {
	type keyed struct {
		key  any
		item any
		n    int
	}
	var list []keyed
	switch l := items.(type) {
	case []any:
		for i := range l {
			list = append(list, keyed{key(i), l[i], 0})
		}
	case []int:
		for i := range l {
			list = append(list, keyed{key(i), nil, l[i]})
		}
	}
	r.charge(32 * len(list))
	slices.SortStableFunc(list, func(a, b keyed) int {
		c, ok := r.order(a.key, b.key)
		if !ok {
			throw("'<' not supported between instances of %s and %s", pythonQuote(typeName(b.key)), pythonQuote(typeName(a.key)))
		}
		if reverse {
			return -c
		}
		return c
	})
	for i, k := range list {
		switch l := items.(type) {
		case []any:
			l[i] = k.item
		case []int:
			l[i] = k.n
		}
	}
}

func (r *run) extreme(v any, a *bound, want int) any {
	get := r.getter(a.or(1, nil), nil)
	var best, bestKey any = &undefined{"No aggregated item, sequence was empty."}, nil
	for i, x := range r.iterate(v) {
		k := r.folded(get(x), a.or(0, false))
		if i == 0 {
			best, bestKey = x, k
			continue
		}
		c, ok := r.order(k, bestKey)
		if !ok {
			throw("'<' not supported between instances of %s and %s", pythonQuote(typeName(k)), pythonQuote(typeName(bestKey)))
		}
		if c == want {
			best, bestKey = x, k
		}
	}
	return best
}

func groupBy(r *run, v any, a *bound) any {
	get, items := r.getter(a.values[0], a.or(1, nil)), slices.Clone(r.iterate(v))
	key := func(i int) any { return r.folded(get(items[i]), a.or(2, false)) }
	r.sortStable(items, key, false)
	var groups []any
	for i := 0; i < len(items); {
		end, k := i, key(i)
		for end < len(items) && r.equal(key(end), k) {
			end++
		}
		pair := newTuple(get(items[i]), r.newList(slices.Clone(items[i:end])))
		pair.name = "group"
		groups = append(groups, pair)
		i = end
	}
	return r.newList(groups)
}
