package jinja

import "strings"

// tests are what stands behind "is"; each has at most one argument.
var tests map[string]func(r *run, v any, args []any) bool

func init() {
	compare := func(op string) func(r *run, v any, args []any) bool {
		return func(r *run, v any, args []any) bool { return truth(r.compare(op, v, args[0])) }
	}
	isType := func(names ...string) func(r *run, v any, args []any) bool {
		return func(_ *run, v any, _ []any) bool {
			for _, n := range names {
				if typeName(v) == n {
					return true
				}
			}
			return false
		}
	}
	tests = map[string]func(r *run, v any, args []any) bool{
		"defined":   func(_ *run, v any, _ []any) bool { _, no := v.(*undefined); return !no },
		"undefined": func(_ *run, v any, _ []any) bool { _, yes := v.(*undefined); return yes },
		"none":      func(_ *run, v any, _ []any) bool { return v == nil },
		"true":      func(_ *run, v any, _ []any) bool { return v == true },
		"false":     func(_ *run, v any, _ []any) bool { return v == false },
		"boolean":   isType("bool"), "integer": isType("int"), "float": isType("float"),
		"number": isType("int", "float", "bool"), "string": isType("str", "Markup"), "mapping": isType("dict"), "escaped": isType("Markup"),
		"callable": func(_ *run, v any, _ []any) bool {
			switch v.(type) {
			case *builtin, *macroValue, *loopValue, *joinerValue, *undefined:
				return true
			}
			return false
		},
		"iterable": func(_ *run, v any, _ []any) bool {
			switch v.(type) {
			case string, markup, *List, *Dict, *rangeValue, *undefined, *loopValue:
				return true
			}
			return false
		},
		"sequence": func(_ *run, v any, _ []any) bool {
			switch v := v.(type) {
			case string, markup, *Dict, *rangeValue, *undefined:
				return true
			case *List:
				return v.kind <= kindTuple
			}
			return false
		},
		"odd":  func(r *run, v any, _ []any) bool { return r.equal(r.binary("%", v, int64(2)), int64(1)) },
		"even": func(r *run, v any, _ []any) bool { return r.equal(r.binary("%", v, int64(2)), int64(0)) },
		"divisibleby": func(r *run, v any, args []any) bool {
			return r.equal(r.binary("%", v, args[0]), int64(0))
		},
		"lower": func(r *run, v any, _ []any) bool { return isCase(r.str(v), lower) },
		"upper": func(r *run, v any, _ []any) bool { return isCase(r.str(v), upper) },
		"sameas": func(_ *run, v any, args []any) bool {
			w := args[0]
			return typeName(v) == typeName(w) && v == w
		},
		"in":     func(r *run, v any, args []any) bool { return r.contains(args[0], v) },
		"filter": func(r *run, v any, _ []any) bool { _, ok := filters[r.str(v)]; return ok },
		"test":   func(r *run, v any, _ []any) bool { _, ok := tests[r.str(v)]; return ok },
	}
	for op, names := range map[string]string{"==": "eq equalto ==", "!=": "ne !=", "<": "lt lessthan <", "<=": "le <=", ">": "gt greaterthan >", ">=": "ge >="} {
		for _, n := range strings.Fields(names) {
			tests[n] = compare(op)
		}
	}
}

// isCase is isupper or islower by the mapping itself: s has a letter that the other mapping changes.
func isCase(s string, to func(string) string) bool {
	return to(s) == s && upper(s) != lower(s)
}

// testArguments is how many values stand behind a test's name.
func testArguments(name string) int {
	switch name {
	case "divisibleby", "sameas", "in", "eq", "equalto", "==", "ne", "!=", "lt", "lessthan", "<", "le", "<=", "gt", "greaterthan", ">", "ge", ">=":
		return 1
	}
	return 0
}

// test applies a test by name.
func (r *run) test(name string, v any, args []any, list []named) bool {
	r.charge(1)
	f, ok := tests[name]
	if !ok {
		throw("No test named %s.", pythonQuote(name))
	}
	if want := testArguments(name); len(list) > 0 || len(args) != want {
		throw("test %s takes %d arguments", pythonQuote(name), want)
	}
	return f(r, v, args)
}
