package jinja

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

func sprintf(format string, args ...any) string { return fmt.Sprintf(format, args...) }

// isSpace is Python's str.isspace for one character.
func isSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }

// str is Python's str(v).
func (r *run) str(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case markup:
		return string(v)
	case *undefined:
		return ""
	}
	return r.repr(v)
}

// repr is Python's repr(v).
func (r *run) repr(v any) string {
	var b strings.Builder
	r.writeRepr(&b, v, 0)
	return b.String()
}

func (r *run) writeRepr(b *strings.Builder, v any, depth int) {
	r.charge(1)
	if depth > maxNest {
		r.limit("values nest deeper than %d", maxNest)
	}
	r.fits(b.Len())
	switch v := v.(type) {
	case nil:
		b.WriteString("None")
	case bool:
		b.WriteString(map[bool]string{true: "True", false: "False"}[v])
	case int64:
		b.WriteString(strconv.FormatInt(v, 10))
	case bigInt:
		b.WriteString(string(v))
	case float64:
		b.WriteString(floatText(v))
	case string:
		quote(b, v)
	case markup:
		b.WriteString("Markup(")
		quote(b, string(v))
		b.WriteString(")")
	case *undefined:
		b.WriteString("Undefined")
	case *List:
		r.writeList(b, v, depth)
	case *Dict:
		b.WriteByte('{')
		for i, k := range v.keys {
			if i > 0 {
				b.WriteString(", ")
			}
			r.writeRepr(b, k, depth+1)
			b.WriteString(": ")
			r.writeRepr(b, v.values[i], depth+1)
		}
		b.WriteByte('}')
	case *rangeValue:
		fmt.Fprintf(b, "range(%d, %d", v.start, v.stop)
		if v.step != 1 {
			fmt.Fprintf(b, ", %d", v.step)
		}
		b.WriteByte(')')
	case *namespaceValue:
		b.WriteString("<Namespace ")
		r.writeRepr(b, v.vars, depth+1)
		b.WriteByte('>')
	case *macroValue:
		fmt.Fprintf(b, "<Macro %s>", pythonQuote(v.name))
	case *loopValue:
		fmt.Fprintf(b, "<LoopContext %d/%d>", v.index+1, len(v.items))
	case *builtin:
		r.writeFunction(b, v, depth)
	default:
		fmt.Fprintf(b, "<%s object>", typeName(v))
	}
}

// writeFunction writes a function; Python's address of whose a method is, is any.
func (r *run) writeFunction(b *strings.Builder, f *builtin, depth int) {
	switch f.of.(type) {
	case nil:
		b.WriteString("<function object>")
	case markup:
		fmt.Fprintf(b, "<bound method Markup.%s of ", f.name)
		r.writeRepr(b, f.of, depth+1)
		b.WriteByte('>')
	default:
		fmt.Fprintf(b, "<built-in method %s of %s object at 0x7f0000000000>", f.name, typeName(f.of))
	}
}

func (r *run) writeList(b *strings.Builder, v *List, depth int) {
	open, end := "[", "]"
	switch v.kind {
	case kindTuple:
		open, end = "(", ")"
		if len(v.Items) == 1 {
			end = ",)"
		}
	case kindView:
		open, end = v.name+"([", "])"
	case kindGenerator:
		kind := "generator object " + v.name
		if v.name == "list_reverseiterator" {
			kind = v.name + " object"
		}
		b.WriteString("<" + kind + " at 0x7f0000000000>")
		return
	}
	b.WriteString(open)
	for i, x := range v.Items {
		if i > 0 {
			b.WriteString(", ")
		}
		r.writeRepr(b, x, depth+1)
	}
	b.WriteString(end)
}

// floatText is Python's repr of a float: the fewest digits that read back, an exponent below 1e-4 and from 1e16.
func floatText(x float64) string {
	switch {
	case math.IsNaN(x):
		return "nan"
	case math.IsInf(x, 1):
		return "inf"
	case math.IsInf(x, -1):
		return "-inf"
	}
	s := strconv.FormatFloat(x, 'e', -1, 64)
	mantissa, exponent, _ := strings.Cut(s, "e")
	e, _ := strconv.Atoi(exponent)
	if x != 0 && (e < -4 || e >= 16) {
		return fmt.Sprintf("%se%+03d", mantissa, e)
	}
	s = strconv.FormatFloat(x, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

func pythonQuote(s string) string {
	var b strings.Builder
	quote(&b, s)
	return b.String()
}

// quote writes Python's repr of a string.
func quote(b *strings.Builder, s string) {
	q := byte('\'')
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		q = '"'
	}
	b.WriteByte(q)
	for _, r := range s {
		switch {
		case r == rune(q) || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r < 0x100:
			fmt.Fprintf(b, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(b, `\u%04x`, r)
		default:
			fmt.Fprintf(b, `\U%08x`, r)
		}
	}
	b.WriteByte(q)
}

// runes is the length of s in characters.
func runes(s string) int { return utf8.RuneCountInString(s) }

// escapeHTML is markupsafe.escape.
func escapeHTML(s string) string {
	return strings.NewReplacer("&", "&amp;", ">", "&gt;", "<", "&lt;", "'", "&#39;", `"`, "&#34;").Replace(s)
}
