package automaton

import (
	"fmt"
	"slices"
	"strconv"
	"unicode"
	"unicode/utf8"
)

// Bounds of one expression.
const (
	maxPatternBytes = 64 << 10
	maxPatternDepth = 200
	maxRepeat       = 10000
)

// Parse reads a regular expression as ECMA-262 writes them (the dialect of JSON Schema), without flags and with Unicode code
// points as characters. Back references, look-behind, word boundaries and look-ahead inside a repetition are no part of it:
// ErrUnsupported names what stands there. ErrSyntax is an expression that means nothing.
func Parse(pattern string) (*Node, error) {
	if len(pattern) > maxPatternBytes {
		return nil, fmt.Errorf("pattern of %d bytes, at most %d: %w", len(pattern), maxPatternBytes, ErrTooLarge)
	}
	if !utf8.ValidString(pattern) {
		return nil, fmt.Errorf("pattern is not UTF-8: %w", ErrSyntax)
	}
	p := &parser{text: []rune(pattern), pattern: pattern}
	n, err := p.alternatives()
	if err == nil && p.at < len(p.text) {
		err = p.fail(ErrSyntax, "unmatched )")
	}
	return n, err
}

type parser struct {
	text    []rune
	pattern string
	at      int
	depth   int
}

func (p *parser) fail(kind error, format string, args ...any) error {
	return fmt.Errorf("pattern %.80q, character %d: %s: %w", p.pattern, p.at, fmt.Sprintf(format, args...), kind)
}

func (p *parser) peek() rune {
	if p.at < len(p.text) {
		return p.text[p.at]
	}
	return -1
}

func (p *parser) take(text string) bool {
	if rs := []rune(text); len(p.text)-p.at >= len(rs) && slices.Equal(p.text[p.at:p.at+len(rs)], rs) {
		p.at += len(rs)
		return true
	}
	return false
}

func (p *parser) alternatives() (*Node, error) {
	if p.depth++; p.depth > maxPatternDepth {
		return nil, p.fail(ErrTooLarge, "groups nest deeper than %d", maxPatternDepth)
	}
	defer func() { p.depth-- }()
	n := Alt()
	for {
		s, err := p.sequence()
		if err != nil {
			return nil, err
		}
		n.sub = append(n.sub, s)
		if !p.take("|") {
			break
		}
	}
	if len(n.sub) == 1 {
		return n.sub[0], nil
	}
	return n, nil
}

func (p *parser) sequence() (*Node, error) {
	n := Cat()
	for p.at < len(p.text) && p.peek() != '|' && p.peek() != ')' {
		s, err := p.term()
		if err != nil {
			return nil, err
		}
		n.sub = append(n.sub, s)
	}
	return n, nil
}

// term is an assertion, or an atom with its quantifier.
func (p *parser) term() (*Node, error) {
	switch {
	case p.take("^"):
		return &Node{op: opBegin}, nil
	case p.take("$"):
		return &Node{op: opEnd}, nil
	case p.take("(?="):
		return p.group(opAhead)
	case p.take("(?!"):
		return p.group(opNotAhead)
	case p.take("(?<="), p.take("(?<!"):
		return nil, p.fail(ErrUnsupported, "look-behind")
	}
	n, err := p.atom()
	if err != nil {
		return nil, err
	}
	return p.quantified(n)
}

// group reads to the closing parenthesis; kind opCat is a plain one.
func (p *parser) group(kind op) (*Node, error) {
	n, err := p.alternatives()
	if err != nil {
		return nil, err
	}
	if !p.take(")") {
		return nil, p.fail(ErrSyntax, "( without )")
	}
	if kind != opCat {
		n = &Node{op: kind, sub: []*Node{n}}
	}
	return n, nil
}

func (p *parser) atom() (*Node, error) {
	switch r := p.peek(); r {
	case '(':
		p.at++
		if p.take("?") && !p.take(":") {
			if !p.take("<") {
				return nil, p.fail(ErrUnsupported, "(?%c", p.peek())
			}
			for p.at < len(p.text) && p.peek() != '>' {
				p.at++
			}
			if !p.take(">") {
				return nil, p.fail(ErrSyntax, "name of a group without >")
			}
		}
		return p.group(opCat)
	case '[':
		p.at++
		return p.class()
	case '\\':
		p.at++
		set, err := p.escape(false)
		return Set(set...), err
	case '.':
		p.at++
		return Set(negate([]Range{{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}})...), nil
	case '*', '+', '?':
		return nil, p.fail(ErrSyntax, "nothing to repeat")
	default:
		if r == '{' {
			if _, _, ok := p.counts(); ok {
				return nil, p.fail(ErrSyntax, "nothing to repeat")
			}
		}
		p.at++
		return Set(Range{r, r}), nil
	}
}

// quantified reads the quantifiers after an atom; lazy ones match the same texts.
func (p *parser) quantified(n *Node) (*Node, error) {
	lo, hi := 0, -1
	switch {
	case p.take("*"):
	case p.take("+"):
		lo = 1
	case p.take("?"):
		hi = 1
	default:
		at := p.at
		var ok bool
		if lo, hi, ok = p.counts(); !ok {
			if p.take("{,") { // up to m times elsewhere, in ECMAScript itself: neither is what half of the writers mean
				if m, is := p.number(); is && p.take("}") {
					return nil, p.fail(ErrUnsupported, "{,%d}, write {0,%d}", m, m)
				}
			}
			p.at = at
			return n, nil
		}
		if hi >= 0 && lo > hi {
			return nil, p.fail(ErrSyntax, "{%d,%d}", lo, hi)
		}
		if lo > maxRepeat || hi > maxRepeat {
			return nil, p.fail(ErrTooLarge, "more than %d repetitions", maxRepeat)
		}
	}
	p.take("?")
	if r := p.peek(); r == '*' || r == '+' || r == '?' {
		return nil, p.fail(ErrSyntax, "nothing to repeat")
	}
	return Repeat(n, lo, hi), nil
}

// counts reads {n}, {n,} or {n,m}; otherwise a brace stands for itself.
func (p *parser) counts() (lo, hi int, ok bool) {
	at := p.at
	if !p.take("{") {
		return 0, 0, false
	}
	lo, ok = p.number()
	hi = lo
	if ok && p.take(",") {
		var bounded bool
		if hi, bounded = p.number(); !bounded {
			hi = -1
		}
	}
	if !ok || !p.take("}") {
		p.at = at
		return 0, 0, false
	}
	return lo, hi, true
}

func (p *parser) number() (n int, ok bool) {
	from := p.at
	for p.at < len(p.text) && p.peek() >= '0' && p.peek() <= '9' {
		n = min(n*10+int(p.peek()-'0'), 1<<30)
		p.at++
	}
	return n, p.at > from
}

// class reads [...] after the opening bracket.
func (p *parser) class() (*Node, error) {
	not := p.take("^")
	var set []Range
	for !p.take("]") {
		if p.at >= len(p.text) {
			return nil, p.fail(ErrSyntax, "[ without ]")
		}
		lo, err := p.classAtom()
		if err != nil {
			return nil, err
		}
		if p.peek() == '-' && p.at+1 < len(p.text) && p.text[p.at+1] != ']' {
			p.at++
			hi, err := p.classAtom()
			if err != nil {
				return nil, err
			}
			if !single(lo) || !single(hi) { // [\w-.] is a set, a hyphen and a set
				set = append(append(append(set, lo...), hi...), Range{'-', '-'})
				continue
			}
			if lo[0].Lo > hi[0].Lo {
				return nil, p.fail(ErrSyntax, "range out of order")
			}
			lo = []Range{{lo[0].Lo, hi[0].Lo}}
		}
		set = append(set, lo...)
	}
	if not {
		set = negate(set)
	}
	return Set(set...), nil
}

func single(set []Range) bool { return len(set) == 1 && set[0].Lo == set[0].Hi }

func (p *parser) classAtom() ([]Range, error) {
	if p.take("\\") {
		return p.escape(true)
	}
	r := p.peek()
	if r < 0 {
		return nil, p.fail(ErrSyntax, "[ without ]")
	}
	p.at++
	return []Range{{r, r}}, nil
}

var (
	digits = []Range{{'0', '9'}}
	word   = []Range{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}
	blank  = []Range{{'\t', '\r'}, {' ', ' '}, {0xA0, 0xA0}, {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}}
	plain  = map[rune]rune{'n': '\n', 'r': '\r', 't': '\t', 'f': '\f', 'v': '\v'}
)

// escape reads what follows a backslash.
func (p *parser) escape(inClass bool) ([]Range, error) {
	r := p.peek()
	if r < 0 {
		return nil, p.fail(ErrSyntax, "\\ at the end")
	}
	p.at++
	one := func(r rune) ([]Range, error) { return []Range{{r, r}}, nil }
	if c, ok := plain[r]; ok {
		return one(c)
	}
	switch {
	case r == 'd':
		return digits, nil
	case r == 'D':
		return negate(digits), nil
	case r == 'w':
		return word, nil
	case r == 'W':
		return negate(word), nil
	case r == 's':
		return blank, nil
	case r == 'S':
		return negate(blank), nil
	case r == 'b' && inClass:
		return one('\b')
	case r == 'b' || r == 'B':
		return nil, p.fail(ErrUnsupported, "word boundary \\%c", r)
	case r == '0' && !(p.peek() >= '0' && p.peek() <= '9'):
		return one(0)
	case r >= '0' && r <= '9':
		return nil, p.fail(ErrUnsupported, "back reference \\%c", r)
	case r == 'k':
		return nil, p.fail(ErrUnsupported, "back reference \\k")
	case r == 'c':
		if c := p.peek(); c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' {
			p.at++
			return one(c & 31)
		}
		return nil, p.fail(ErrSyntax, "\\c without a letter")
	case r == 'x':
		return p.hex(2)
	case r == 'u':
		return p.unicodeEscape()
	case r == 'p' || r == 'P':
		return p.property(r == 'P')
	case r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z':
		return nil, p.fail(ErrUnsupported, "\\%c", r)
	}
	return one(r)
}

func (p *parser) hex(n int) ([]Range, error) {
	if len(p.text)-p.at >= n {
		if v, err := strconv.ParseUint(string(p.text[p.at:p.at+n]), 16, 32); err == nil {
			p.at += n
			return []Range{{rune(v), rune(v)}}, nil
		}
	}
	return nil, p.fail(ErrSyntax, "want %d hexadecimal digits", n)
}

func (p *parser) unicodeEscape() ([]Range, error) {
	if p.take("{") {
		from := p.at
		for p.at < len(p.text) && p.peek() != '}' {
			p.at++
		}
		v, err := strconv.ParseUint(string(p.text[from:p.at]), 16, 32)
		if err != nil || v > MaxRune || !p.take("}") {
			return nil, p.fail(ErrSyntax, "\\u{…}")
		}
		return []Range{{rune(v), rune(v)}}, nil
	}
	set, err := p.hex(4)
	if err != nil || set[0].Lo < 0xD800 || set[0].Lo > 0xDBFF {
		return set, err
	}
	at := p.at
	if p.take("\\u") {
		if low, err := p.hex(4); err == nil && low[0].Lo >= 0xDC00 && low[0].Lo <= 0xDFFF {
			r := (set[0].Lo-0xD800)<<10 + (low[0].Lo - 0xDC00) + 0x10000
			return []Range{{r, r}}, nil
		}
	}
	p.at = at
	return set, nil
}

// property reads \p{Name}: a general category or a script.
func (p *parser) property(not bool) ([]Range, error) {
	if !p.take("{") {
		return nil, p.fail(ErrSyntax, "\\p without {")
	}
	from := p.at
	for p.at < len(p.text) && p.peek() != '}' {
		p.at++
	}
	name := string(p.text[from:p.at])
	if !p.take("}") {
		return nil, p.fail(ErrSyntax, "\\p{ without }")
	}
	for _, prefix := range []string{"Script=", "sc=", "General_Category=", "gc="} {
		if len(name) > len(prefix) && name[:len(prefix)] == prefix {
			name = name[len(prefix):]
		}
	}
	long := map[string]string{"Letter": "L", "Lowercase_Letter": "Ll", "Uppercase_Letter": "Lu", "Number": "N", "Decimal_Number": "Nd", "Punctuation": "P", "Mark": "M", "Symbol": "S", "Separator": "Z"}
	if short, ok := long[name]; ok {
		name = short
	}
	table, ok := unicode.Categories[name]
	if !ok {
		if table, ok = unicode.Scripts[name]; !ok {
			return nil, p.fail(ErrUnsupported, "\\p{%s}", name)
		}
	}
	set := ranges(table)
	if not {
		set = negate(set)
	}
	return set, nil
}

func ranges(t *unicode.RangeTable) (set []Range) {
	add := func(lo, hi, stride rune) {
		if stride == 1 {
			set = append(set, Range{lo, hi})
			return
		}
		for r := lo; r <= hi; r += stride {
			set = append(set, Range{r, r})
		}
	}
	for _, r := range t.R16 {
		add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	for _, r := range t.R32 {
		add(rune(r.Lo), rune(r.Hi), rune(r.Stride))
	}
	return set
}

// negate is every code point but those of the set; surrogates are none.
func negate(set []Range) (out []Range) {
	set = append(slices.Clone(set), Range{0xD800, 0xDFFF})
	slices.SortFunc(set, func(a, b Range) int { return int(a.Lo - b.Lo) })
	next := rune(0)
	for _, r := range set {
		if r.Lo > next {
			out = append(out, Range{next, r.Lo - 1})
		}
		next = max(next, r.Hi+1)
	}
	if next <= MaxRune {
		out = append(out, Range{next, MaxRune})
	}
	return out
}
