package tokenizer

import (
	"fmt"
	"strings"
	"unicode"
)

// fromOniguruma rewrites what other engines read differently: the flag m, by which a dot matches a line's end (their s; its ^ and $
// are at each line without a flag), {,n}, POSIX classes, which are Unicode's there, and classes inside classes, of which an
// intersection becomes .NET's difference: [a&&[^b]] is [a-[b]]. What it cannot rewrite is ErrUnsupported.
func fromOniguruma(pattern string) (string, error) {
	o := onigReader{text: pattern}
	for o.at < len(o.text) && o.err == nil {
		switch c := o.text[o.at]; {
		case c == '\\':
			o.out.WriteString(o.escape())
		case c == '[':
			o.out.WriteString(o.class())
		case strings.HasPrefix(o.text[o.at:], "(?"):
			o.group()
		case strings.HasPrefix(o.text[o.at:], "{,"):
			o.repeat()
		default:
			o.out.WriteByte(c)
			o.at++
		}
	}
	return o.out.String(), o.err
}

type onigReader struct {
	text string
	at   int
	out  strings.Builder
	err  error
}

func (o *onigReader) fail(what string) {
	if o.err == nil {
		o.err = fmt.Errorf("tokenizer: pattern %.80q: %s: %w", o.text, what, ErrUnsupported)
	}
}

// escape reads a backslash and the character behind it.
func (o *onigReader) escape() string {
	end := min(o.at+2, len(o.text))
	s := o.text[o.at:end]
	o.at = end
	return s
}

// group reads the beginning of a group, with its flags.
func (o *onigReader) group() {
	rest := o.text[o.at+2:]
	flags := rest[:len(rest)-len(strings.TrimLeft(rest, "imx-"))]
	if end := len(flags); end < len(rest) && (rest[end] == ':' || rest[end] == ')') {
		o.out.WriteString("(?" + strings.ReplaceAll(flags, "m", "s"))
		o.at += 2 + end
		return
	}
	o.out.WriteString("(?")
	o.at += 2
}

// repeat reads {,n}, or a brace that stands for itself.
func (o *onigReader) repeat() {
	digits := strings.TrimLeft(o.text[o.at+2:], "0123456789")
	if strings.HasPrefix(digits, "}") && len(digits) < len(o.text)-o.at-2 {
		o.out.WriteString("{0,")
		o.at += 2
		return
	}
	o.out.WriteByte('{')
	o.at++
}

// class reads [...] and writes it without classes inside, but for a difference.
func (o *onigReader) class() string {
	not, set, without := o.set()
	if without != "" {
		if not {
			o.fail("a negated intersection of classes")
		}
		return "[" + set + "-[" + without + "]]"
	}
	if not {
		return "[^" + set + "]"
	}
	return "[" + set + "]"
}

// operand reads && and the class behind it: what an intersection takes from what is before. Operands are counted from 1.
func (o *onigReader) operand(number int) string {
	o.at += 2
	if !strings.HasPrefix(o.text[o.at:], "[") {
		o.fail("an intersection with what is in no brackets of its own")
		return ""
	}
	no, taken, deeper := o.set()
	more := strings.HasPrefix(o.text[o.at:], "&&")
	if deeper != "" || !more && !strings.HasPrefix(o.text[o.at:], "]") {
		o.fail("an intersection inside an intersection")
	}
	if no {
		return taken
	}
	if number > 1 || more {
		o.fail("an intersection of three classes")
	}
	return "^" + taken
}

// set reads [...]: what is in it, or, not, what is not; and what an intersection takes from it.
func (o *onigReader) set() (not bool, set, without string) {
	o.at++
	if not = strings.HasPrefix(o.text[o.at:], "^"); not {
		o.at++
	}
	var items, less strings.Builder
	operands := 0 // of &&, before this one
	begin := o.at
	for first := true; ; first = false {
		rest := o.text[o.at:]
		switch {
		case rest == "":
			o.fail("[ without ]")
			return
		case rest[0] == ']' && first:
			items.WriteString(`\]`)
			o.at++
		case rest[0] == ']':
			o.at++
			if operands > 0 && less.Len() == 0 || items.Len() == 0 {
				o.fail("an empty class")
			}
			return not, items.String(), less.String()
		case strings.HasPrefix(rest, "[:") && strings.Contains(rest, ":]"):
			name, _, _ := strings.Cut(rest[2:], ":]")
			class := posixClass(name)
			if class == "" {
				o.fail(fmt.Sprintf("class [:%.20s:]", name))
			}
			items.WriteString(class)
			o.at += len(name) + 4
		case strings.HasPrefix(rest, "&&"):
			if operands++; items.Len() == 0 {
				o.fail("an empty class")
			}
			less.WriteString(o.operand(operands))
		case rest[0] == '[':
			alone := o.at == begin
			no, inner, deeper := o.set()
			if alone = alone && strings.HasPrefix(o.text[o.at:], "]"); alone {
				o.at++
				return not != no, inner, deeper
			}
			if no || deeper != "" {
				o.fail("a class in a class that is no plain one")
			}
			items.WriteString(inner)
		case rest[0] == '\\':
			items.WriteString(o.escape())
		default:
			items.WriteByte(rest[0])
			o.at++
		}
		if o.err != nil {
			return
		}
	}
}

// posixClass is what a POSIX class matches in Oniguruma, for the inside of [...]; "" = it is not known, or negated.
func posixClass(name string) string {
	switch name {
	case "alpha":
		return `\p{L}\p{Nl}` + rangesOf(unicode.Other_Alphabetic)
	case "digit":
		return `\p{Nd}`
	case "alnum":
		return posixClass("alpha") + `\p{Nd}`
	case "upper":
		return `\p{Lu}` + rangesOf(unicode.Other_Uppercase)
	case "lower":
		return `\p{Ll}` + rangesOf(unicode.Other_Lowercase)
	case "punct":
		return `\p{P}\p{S}`
	case "space":
		return "\\t-\\r\u0085\\p{Z}"
	case "blank":
		return `\t\p{Zs}`
	case "cntrl":
		return `\p{Cc}`
	case "xdigit":
		return `0-9A-Fa-f`
	case "word":
		return posixClass("alnum") + `\p{M}\p{Pc}`
	case "ascii":
		return `\x00-\x7F`
	}
	return "" // graph and print are Unicode's of one version
}

// rangesOf is a table's characters as ranges of [...].
func rangesOf(table *unicode.RangeTable) string {
	var b strings.Builder
	add := func(lo, hi, stride rune) {
		if stride == 1 {
			fmt.Fprintf(&b, "%c-%c", lo, hi)
			return
		}
		for r := lo; r <= hi; r += stride {
			b.WriteRune(r)
		}
	}
	for _, r := range table.R16 {
		add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	for _, r := range table.R32 {
		add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	return b.String()
}
