package jinja

import (
	"math"
	"math/big"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"
)

// filterDef is a filter with the names of its parameters, of which need must be given.
type filterDef struct {
	need   int
	params []string
	call   func(r *run, v any, a *bound) any
}

// filters are those whose arguments have names; map, select and their kin are added by filters_list.go.
var filters map[string]filterDef

func init() {
	filters = map[string]filterDef{
		"abs":        {call: func(r *run, v any, _ *bound) any { return r.absolute(v) }},
		"attr":       {1, []string{"name"}, attrFilter},
		"capitalize": byText(func(_ *run, s string, _ *bound) any { return capitalized(s) }),
		"center": byText(func(r *run, s string, a *bound) any {
			return r.padded(s, r.wantInt(a.or(0, int64(80)), "width"), " ", true, true)
		}, "width"),
		"default": {0, []string{"default_value", "boolean"}, func(_ *run, v any, a *bound) any {
			if _, no := v.(*undefined); no || truth(a.or(1, false)) && !truth(v) {
				return a.or(0, "")
			}
			return v
		}},
		"escape": {call: func(r *run, v any, _ *bound) any {
			if m, ok := v.(markup); ok {
				return m
			}
			return markup(r.made(escapeHTML(r.str(v))))
		}},
		"forceescape": {call: func(r *run, v any, _ *bound) any { return markup(r.made(escapeHTML(r.str(v)))) }},
		"float": {0, []string{"default"}, func(r *run, v any, a *bound) any {
			if x, ok := toFloat(v); ok {
				return x
			}
			r.needs(v)
			return a.or(0, 0.0)
		}},
		"format": {},
		"indent": {0, []string{"width", "first", "blank"}, func(r *run, v any, a *bound) any {
			return r.made(indent(r, r.wantText(v, "indent: the value"), a))
		}},
		"int":    {0, []string{"default", "base"}, intFilter},
		"length": {call: func(r *run, v any, _ *bound) any { return r.length(v) }},
		"lower":  byText(func(_ *run, s string, _ *bound) any { return lower(s) }),
		"replace": {2, []string{"old", "new", "count"}, func(r *run, v any, a *bound) any {
			n := -1
			if c := a.or(2, nil); c != nil {
				n = int(max(r.wantInt(c, "count"), -1))
			}
			return r.made(r.replace(r.str(v), r.str(a.values[0]), r.str(a.values[1]), n))
		}},
		"round":     {0, []string{"precision", "method"}, round},
		"safe":      {call: func(r *run, v any, _ *bound) any { return markup(r.str(v)) }},
		"string":    {call: func(r *run, v any, _ *bound) any { return keepMarkup(v, r.str(v)) }},
		"title":     byText(func(_ *run, s string, _ *bound) any { return titleFilter(s) }),
		"tojson":    {0, []string{"ensure_ascii", "indent", "separators", "sort_keys"}, toJSON},
		"trim":      byText(func(r *run, s string, a *bound) any { return stripped(r, s, a.or(0, nil), true, true) }, "chars"),
		"truncate":  {0, []string{"length", "killwords", "end", "leeway"}, truncate},
		"upper":     byText(func(_ *run, s string, _ *bound) any { return upper(s) }),
		"urlencode": {call: func(r *run, v any, _ *bound) any { return r.made(urlEncoded(r, v)) }},
		"wordcount": byText(func(_ *run, s string, _ *bound) any { return int64(len(words(s))) }),
	}
	for name, f := range listFilters {
		filters[name] = f
	}
	for alias, name := range map[string]string{"d": "default", "e": "escape", "count": "length"} {
		filters[alias] = filters[name]
	}
}

// byText is a filter of the text of its value.
func byText(f func(r *run, s string, a *bound) any, params ...string) filterDef {
	return filterDef{0, params, func(r *run, v any, a *bound) any {
		s := r.str(v)
		r.charge(len(s) / 4)
		out := f(r, s, a)
		if t, ok := out.(string); ok {
			r.made(t)
		}
		return out
	}}
}

func keepMarkup(v any, s string) any {
	if m, ok := v.(markup); ok {
		return m
	}
	return s
}

// filter applies a filter by name.
func (r *run) filter(name string, v any, args []any, list []named) any {
	r.charge(1)
	f, ok := filters[name]
	if !ok {
		throw("No filter named %s.", pythonQuote(name))
	}
	if wide, ok := wideFilters[name]; ok {
		return wide(r, v, args, list)
	}
	return f.call(r, v, bind("filter "+name, args, list, f.need, f.params...))
}

func intFilter(r *run, v any, a *bound) any {
	r.needs(v)
	if x, ok := v.(float64); ok && math.Abs(x) >= 1<<63 && !math.IsInf(x, 0) {
		return bigInt(strconv.FormatFloat(math.Trunc(x), 'f', 0, 64))
	}
	base := int(r.wantInt(a.or(1, int64(10)), "base"))
	if n, ok := toInt(v, base); ok {
		return n
	}
	if n, ok := toBig(v, base); ok {
		return n
	}
	return a.or(0, int64(0))
}

func attrFilter(r *run, v any, a *bound) any {
	name := r.str(a.values[0])
	if x, ok := r.own(v, name); ok {
		return x
	}
	return r.noAttr(v, name)
}

func (r *run) absolute(v any) any {
	if n, ok := integer(v); ok {
		return max(n, -n)
	}
	x, ok := v.(float64)
	if !ok {
		r.needs(v)
		throw("bad operand type for abs(): %s", pythonQuote(typeName(v)))
	}
	return math.Abs(x)
}

// toFloat is Python's float(v).
func toFloat(v any) (float64, bool) {
	if s, ok := text(v); ok {
		s = strings.TrimFunc(s, isSpace)
		if strings.ContainsAny(s, "xXpP") || strings.HasPrefix(s, "_") || strings.HasSuffix(s, "_") {
			return 0, false
		}
		x, err := strconv.ParseFloat(strings.ReplaceAll(s, "_", ""), 64)
		return x, err == nil || math.IsInf(x, 0) && strings.ContainsAny(s, "0123456789")
	}
	return number(v)
}

// toInt is the filter int: int(v, base), else int(float(v)).
func toInt(v any, base int) (int64, bool) {
	if s, ok := text(v); ok {
		t := digitsOf(s, base)
		if base == 0 || base >= 2 && base <= 36 {
			if n, err := strconv.ParseInt(t, base, 64); err == nil {
				return n, true
			}
		}
	} else if n, ok := integer(v); ok {
		return n, true
	}
	x, ok := toFloat(v)
	if !ok || math.IsNaN(x) || math.Abs(x) >= 1<<63 {
		return 0, false
	}
	return int64(x), true
}

// digitsOf are those of a number in a base, without its prefix and underscores.
func digitsOf(s string, base int) string {
	t := strings.ReplaceAll(strings.TrimFunc(s, isSpace), "_", "")
	lower := strings.ToLower(strings.TrimLeft(t, "+-"))
	for b, prefix := range map[int]string{2: "0b", 8: "0o", 16: "0x"} {
		if base == b && strings.HasPrefix(lower, prefix) {
			t = strings.Replace(strings.ToLower(t), prefix, "", 1)
		}
	}
	return t
}

// maxDigits is the most that Python reads of an integer in a text.
const maxDigits = 4300

// toBig is Python's int(v) beyond 64 bits.
func toBig(v any, base int) (any, bool) {
	if b, ok := v.(bigInt); ok {
		return b, true
	}
	s, ok := text(v)
	if !ok || len(s) > maxDigits {
		return nil, false
	}
	if base == 0 || base >= 2 && base <= 36 {
		if n, ok := new(big.Int).SetString(digitsOf(s, base), base); ok {
			return fromBig(n), true
		}
	}
	if x, ok := toFloat(s); ok && !math.IsNaN(x) && !math.IsInf(x, 0) {
		return bigInt(strconv.FormatFloat(math.Trunc(x), 'f', 0, 64)), true
	}
	return nil, false
}

// urlEncoded quotes a text for a path, or writes a dict or pairs as a query.
func urlEncoded(r *run, v any) string {
	quote := func(v any) string { return strings.ReplaceAll(url.QueryEscape(r.str(v)), "~", "%7E") }
	var pairs []any
	switch c := v.(type) {
	case *Dict:
		pairs = c.pairs()
	case *List, *rangeValue, *undefined:
		pairs = r.iterate(c)
	default:
		return strings.NewReplacer("+", "%20", "%2F", "/", "%7E", "~").Replace(quote(v))
	}
	return r.join("&", pairs, func(_ int, p any) string {
		kv := r.iterate(p)
		if len(kv) != 2 {
			throw("urlencode: a pair of %d values", len(kv))
		}
		return strings.ReplaceAll(quote(kv[0]), "%7E", "~") + "=" + strings.ReplaceAll(quote(kv[1]), "%7E", "~")
	})
}

func indent(r *run, s string, a *bound) string {
	by, ok := text(a.or(0, int64(4)))
	if !ok {
		by = strings.Repeat(" ", int(min(max(r.wantInt(a.or(0, int64(4)), "indent: width"), 0), maxWidth)))
	}
	list := lines(s+"\n", false)
	if len(by) > 0 && len(list) > r.limits.Output/len(by) {
		r.limit("indent: %d lines by %d", len(list), len(by))
	}
	for i, line := range list {
		if i > 0 && (line != "" || truth(a.or(2, false))) || i == 0 && truth(a.or(1, false)) {
			list[i] = by + line
		}
	}
	return strings.Join(list, "\n")
}

func round(r *run, v any, a *bound) any {
	precision := r.wantInt(a.or(0, int64(0)), "precision")
	x, ok := number(v)
	if !ok {
		r.needs(v)
		throw("type %s doesn't define __round__ method", typeName(v))
	}
	scale := math.Pow(10, float64(precision))
	switch method := r.str(a.or(1, "common")); method {
	case "common":
		if n, ok := integer(v); ok && precision >= 0 {
			return n
		}
		if precision < 0 || precision > 300 {
			return math.RoundToEven(x*scale) / scale
		}
		s, _ := strconv.ParseFloat(strconv.FormatFloat(x, 'f', int(precision), 64), 64)
		return s
	case "ceil":
		return math.Ceil(x*scale) / scale
	case "floor":
		return math.Floor(x*scale) / scale
	}
	throw("method must be common, ceil or floor")
	return nil
}

// titleFilter is the filter title: a word begins behind white space, a hyphen or an opening bracket.
func titleFilter(s string) string {
	var b strings.Builder
	start := true
	for _, c := range s {
		if start {
			b.WriteString(upper(string(c)))
		} else {
			b.WriteString(lower(string(c)))
		}
		start = isSpace(c) || strings.ContainsRune("-({[<", c)
	}
	return b.String()
}

func truncate(r *run, v any, a *bound) any {
	end := r.str(a.or(2, "..."))
	length, leeway := r.wantInt(a.or(0, int64(255)), "length"), int64(5)
	if l := a.or(3, nil); l != nil {
		leeway = r.wantInt(l, "leeway")
	}
	if length < int64(runes(end)) || leeway < 0 {
		throw("truncate: length %d is less than the end's %d, or leeway %d below 0", length, runes(end), leeway)
	}
	if r.length(v) <= length+leeway {
		return v
	}
	s := r.wantText(v, "truncate: the value")
	list := []rune(s)
	s = string(list[:length-int64(runes(end))])
	if !truth(a.or(1, false)) {
		s = splitBy(s, " ", 1, true)[0]
	}
	return r.made(s + end)
}

// words are the runs of word characters in s.
func words(s string) []string {
	return strings.FieldsFunc(s, func(c rune) bool { return !isAlnum(c) && c != '_' && c != utf8.RuneError })
}
