package jinja

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

// stringMethod is a method of str with the names of its parameters, of which need must be given.
type stringMethod struct {
	need   int
	params []string
	call   func(r *run, s string, a *bound) any
}

func (m stringMethod) run(r *run, name, s string, args []any, list []named) any {
	r.charge(len(s)/8 + 1)
	if name == "format" {
		return r.made(r.format(s, args, list))
	}
	out := m.call(r, s, bind("str."+name+"()", args, list, m.need, m.params...))
	if t, ok := out.(string); ok {
		r.made(t)
	}
	return out
}

func upper(s string) string { return cases.Upper(language.Und).String(s) }
func lower(s string) string { return cases.Lower(language.Und).String(s) }

func each(f func(s string) string) stringMethod {
	return stringMethod{call: func(_ *run, s string, _ *bound) any { return f(s) }}
}

func all(f func(r rune) bool) stringMethod {
	return stringMethod{call: func(_ *run, s string, _ *bound) any {
		return s != "" && strings.IndexFunc(s, func(r rune) bool { return !f(r) }) < 0
	}}
}

func strip(left, right bool) stringMethod {
	return stringMethod{params: []string{"chars"}, call: func(r *run, s string, a *bound) any {
		return stripped(r, s, a.or(0, nil), left, right)
	}}
}

func stripped(r *run, s string, chars any, left, right bool) string {
	cut := isSpace
	if chars != nil {
		set := r.wantText(chars, "strip arg")
		cut = func(c rune) bool { return strings.ContainsRune(set, c) }
	}
	if left {
		s = strings.TrimLeftFunc(s, cut)
	}
	if right {
		s = strings.TrimRightFunc(s, cut)
	}
	return s
}

// affix is startswith and endswith: a text or a tuple of them, within s[start:end].
func affix(has func(s, part string) bool) stringMethod {
	return stringMethod{1, []string{"prefix", "start", "end"}, func(r *run, s string, a *bound) any {
		s, _ = part(r, s, a, 1)
		if l, ok := a.values[0].(*List); ok && l.kind == kindTuple {
			return slices.ContainsFunc(l.Items, func(v any) bool { return has(s, r.wantText(v, "affix")) })
		}
		return has(s, r.wantText(a.values[0], "affix"))
	}}
}

// part is s[start:end] by parameters i and i+1, and where it begins in characters.
func part(r *run, s string, a *bound, i int) (string, int) {
	start, end := a.or(i, nil), a.or(i+1, nil)
	if start == nil && end == nil {
		return s, 0
	}
	from, to, _ := r.bounds(runes(s), start, end, nil)
	return string([]rune(s)[from:max(from, to)]), from
}

// find is find, rfind, index and rindex: a position in characters.
func find(at func(s, part string) int, must bool) stringMethod {
	return stringMethod{1, []string{"sub", "start", "end"}, func(r *run, s string, a *bound) any {
		s, from := part(r, s, a, 1)
		i := at(s, r.wantText(a.values[0], "sub"))
		if i < 0 {
			if must {
				throw("substring not found")
			}
			return int64(-1)
		}
		return int64(from + runes(s[:i]))
	}}
}

func pad(left, right bool) stringMethod {
	return stringMethod{1, []string{"width", "fillchar"}, func(r *run, s string, a *bound) any {
		return r.padded(s, r.wantInt(a.values[0], "width"), r.wantText(a.or(1, " "), "fillchar"), left, right)
	}}
}

// padded fills s up to width characters; on both sides as str.center does.
func (r *run) padded(s string, width int64, fill string, left, right bool) string {
	if runes(fill) != 1 {
		throw("The fill character must be exactly one character long")
	}
	n := width - int64(runes(s))
	if n <= 0 {
		return s
	}
	if n > int64(r.limits.Output) {
		r.limit("a text of %d characters", width)
	}
	before := n
	switch {
	case left && right:
		before = n/2 + n&width&1
	case right:
		before = 0
	}
	return strings.Repeat(fill, int(before)) + s + strings.Repeat(fill, int(n-before))
}

func split(fromRight bool) stringMethod {
	return stringMethod{0, []string{"sep", "maxsplit"}, func(r *run, s string, a *bound) any {
		limit := int(max(min(r.wantInt(a.or(1, int64(-1)), "maxsplit"), 1<<40), -1))
		var parts []string
		if sep := a.or(0, nil); sep == nil {
			parts = splitSpace(s, limit, fromRight)
		} else {
			by := r.wantText(sep, "sep")
			if by == "" {
				throw("empty separator")
			}
			parts = splitBy(s, by, limit, fromRight)
		}
		return r.texts(parts)
	}}
}

func (r *run) texts(parts []string) *List {
	items := make([]any, len(parts))
	for i, p := range parts {
		items[i] = p
	}
	return r.newList(items)
}

func splitBy(s, sep string, limit int, fromRight bool) []string {
	if limit < 0 {
		return strings.Split(s, sep)
	}
	if !fromRight {
		return strings.SplitN(s, sep, limit+1)
	}
	var parts []string
	for ; limit > 0; limit-- {
		i := strings.LastIndex(s, sep)
		if i < 0 {
			break
		}
		parts = append(parts, s[i+len(sep):])
		s = s[:i]
	}
	parts = append(parts, s)
	slices.Reverse(parts)
	return parts
}

func splitSpace(s string, limit int, fromRight bool) []string {
	if limit < 0 {
		return strings.FieldsFunc(s, isSpace)
	}
	var parts []string
	if !fromRight {
		for s = strings.TrimLeftFunc(s, isSpace); s != ""; limit-- {
			i := strings.IndexFunc(s, isSpace)
			if limit == 0 || i < 0 {
				return append(parts, s)
			}
			parts = append(parts, s[:i])
			s = strings.TrimLeftFunc(s[i:], isSpace)
		}
		return parts
	}
	for s = strings.TrimRightFunc(s, isSpace); s != ""; limit-- {
		i := strings.LastIndexFunc(s, isSpace)
		if limit == 0 || i < 0 {
			parts = append(parts, s)
			break
		}
		_, size := utf8.DecodeRuneInString(s[i:])
		parts = append(parts, s[i+size:])
		s = strings.TrimRightFunc(s[:i], isSpace)
	}
	slices.Reverse(parts)
	return parts
}

// lines is str.splitlines.
func lines(s string, keep bool) []string {
	var list []string
	for s != "" {
		i := strings.IndexFunc(s, func(r rune) bool {
			return r >= '\n' && r <= '\r' || r >= 0x1c && r <= 0x1e || r == 0x85 || r == 0x2028 || r == 0x2029
		})
		if i < 0 {
			return append(list, s)
		}
		_, size := utf8.DecodeRuneInString(s[i:])
		if strings.HasPrefix(s[i:], "\r\n") {
			size = 2
		}
		if keep {
			list = append(list, s[:i+size])
		} else {
			list = append(list, s[:i])
		}
		s = s[i+size:]
	}
	return list
}

func partition(last bool) stringMethod {
	return stringMethod{1, []string{"sep"}, func(r *run, s string, a *bound) any {
		sep := r.wantText(a.values[0], "sep")
		if sep == "" {
			throw("empty separator")
		}
		i := strings.Index(s, sep)
		if last {
			i = strings.LastIndex(s, sep)
		}
		switch {
		case i >= 0:
			return newTuple(s[:i], sep, s[i+len(sep):])
		case last:
			return newTuple("", "", s)
		}
		return newTuple(s, "", "")
	}}
}

// replace is str.replace within the limits.
func (r *run) replace(s, old, with string, n int) string {
	count := strings.Count(s, old)
	if n >= 0 {
		count = min(count, n)
	}
	if len(with) > 0 && count > r.limits.Output/len(with) {
		r.limit("replace: %d times %d bytes", count, len(with))
	}
	r.charge(len(s))
	return strings.Replace(s, old, with, n)
}

func titled(s string) string {
	var b strings.Builder
	inWord := false
	for _, c := range s {
		switch {
		case !unicode.IsLetter(c):
			b.WriteRune(c)
			inWord = false
			continue
		case inWord:
			b.WriteString(lower(string(c)))
		default:
			b.WriteString(cases.Title(language.Und, cases.NoLower).String(string(c)))
		}
		inWord = true
	}
	return b.String()
}

func capitalized(s string) string {
	_, size := utf8.DecodeRuneInString(s)
	return titled(s[:size]) + lower(s[size:])
}

// cased is isupper and islower: all letters with a case have that one, and there is one.
func cased(is, not func(r rune) bool) stringMethod {
	return stringMethod{call: func(_ *run, s string, _ *bound) any {
		return strings.ContainsFunc(s, is) && !strings.ContainsFunc(s, func(c rune) bool { return not(c) || unicode.IsTitle(c) })
	}}
}

func isTitle(s string) bool {
	any, inWord := false, false
	for _, c := range s {
		switch {
		case unicode.IsUpper(c) || unicode.IsTitle(c):
			if inWord {
				return false
			}
			any, inWord = true, true
		case unicode.IsLower(c):
			if !inWord {
				return false
			}
		default:
			inWord = false
		}
	}
	return any
}

func isDigit(r rune) bool   { return unicode.Is(unicode.Nd, r) }
func isNumeric(r rune) bool { return unicode.IsNumber(r) }
func isAlnum(r rune) bool   { return unicode.IsLetter(r) || unicode.IsNumber(r) }

var stringMethods map[string]stringMethod

func init() {
	stringMethods = map[string]stringMethod{
		"upper": each(upper), "lower": each(lower), "casefold": each(func(s string) string { return cases.Fold().String(s) }),
		"title": each(titled), "capitalize": each(capitalized),
		"swapcase": each(func(s string) string {
			var b strings.Builder
			for _, c := range s {
				if unicode.IsUpper(c) {
					b.WriteString(lower(string(c)))
				} else {
					b.WriteString(upper(string(c)))
				}
			}
			return b.String()
		}),
		"strip": strip(true, true), "lstrip": strip(true, false), "rstrip": strip(false, true),
		"startswith": affix(strings.HasPrefix), "endswith": affix(strings.HasSuffix),
		"find": find(strings.Index, false), "rfind": find(strings.LastIndex, false),
		"index": find(strings.Index, true), "rindex": find(strings.LastIndex, true),
		"ljust": pad(false, true), "rjust": pad(true, false), "center": pad(true, true),
		"split": split(false), "rsplit": split(true), "partition": partition(false), "rpartition": partition(true),
		"isalpha": all(unicode.IsLetter), "isalnum": all(isAlnum), "isdigit": all(isDigit), "isdecimal": all(isDigit),
		"isnumeric": all(isNumeric), "isspace": all(isSpace),
		"isupper": cased(unicode.IsUpper, unicode.IsLower), "islower": cased(unicode.IsLower, unicode.IsUpper),
		"isascii": {call: func(_ *run, s string, _ *bound) any {
			return !strings.ContainsFunc(s, func(c rune) bool { return c > 0x7f })
		}},
		"istitle": {call: func(_ *run, s string, _ *bound) any { return isTitle(s) }},
		"format":  {},
		"count": {1, []string{"sub", "start", "end"}, func(r *run, s string, a *bound) any {
			s, _ = part(r, s, a, 1)
			return int64(strings.Count(s, r.wantText(a.values[0], "sub")))
		}},
		"replace": {2, []string{"old", "new", "count"}, func(r *run, s string, a *bound) any {
			return r.replace(s, r.wantText(a.values[0], "replace() argument 1"), r.wantText(a.values[1], "replace() argument 2"), int(max(r.wantInt(a.or(2, int64(-1)), "count"), -1)))
		}},
		"join": {1, []string{"iterable"}, func(r *run, s string, a *bound) any {
			r.needs(a.values[0])
			return r.join(s, r.iterate(a.values[0]), func(i int, v any) string {
				t, ok := text(v)
				if !ok {
					throw("sequence item %d: expected str instance, %s found", i, typeName(v))
				}
				return t
			})
		}},
		"splitlines": {0, []string{"keepends"}, func(r *run, s string, a *bound) any { return r.texts(lines(s, truth(a.or(0, false)))) }},
		"removeprefix": {1, []string{"prefix"}, func(r *run, s string, a *bound) any {
			return strings.TrimPrefix(s, r.wantText(a.values[0], "prefix"))
		}},
		"removesuffix": {1, []string{"suffix"}, func(r *run, s string, a *bound) any {
			return strings.TrimSuffix(s, r.wantText(a.values[0], "suffix"))
		}},
		"zfill": {1, []string{"width"}, func(r *run, s string, a *bound) any {
			sign := ""
			if s != "" && (s[0] == '+' || s[0] == '-') {
				sign = s[:1]
			}
			return sign + r.padded(s[len(sign):], r.wantInt(a.values[0], "width")-int64(len(sign)), "0", true, false)
		}},
		"expandtabs": {0, []string{"tabsize"}, func(r *run, s string, a *bound) any {
			return expandTabs(s, int(min(max(r.wantInt(a.or(0, int64(8)), "tabsize"), 0), 256)))
		}},
	}
}

func expandTabs(s string, size int) string {
	var b strings.Builder
	column := 0
	for _, c := range s {
		switch c {
		case '\t':
			if size > 0 {
				n := size - column%size
				b.WriteString(strings.Repeat(" ", n))
				column += n
			}
		case '\n', '\r':
			b.WriteRune(c)
			column = 0
		default:
			b.WriteRune(c)
			column++
		}
	}
	return b.String()
}

// join puts sep between the texts of items.
func (r *run) join(sep string, items []any, of func(i int, v any) string) string {
	var b strings.Builder
	for i, v := range items {
		if i > 0 {
			b.WriteString(sep)
		}
		t := of(i, v)
		r.fits(b.Len() + len(t) + len(sep))
		b.WriteString(t)
	}
	return r.made(b.String())
}
