package grammar

import (
	"fmt"
	"strconv"
	"unicode/utf8"

	"terrace/grammar/automaton"
)

// Bounds of a GBNF text.
const (
	maxGBNFBytes  = 1 << 20
	maxGBNFDepth  = 200
	maxGBNFRepeat = 1 << 20
)

// GBNF compiles a grammar as llama.cpp writes them (rule ::= "text" [class] (group) a | b, with * + ? {m,n}); the text
// generated is what the rule root produces. Left recursion and tokens as terminals (<...>) are ErrUnsupported.
func GBNF(text string) (*Grammar, error) {
	if len(text) > maxGBNFBytes {
		return nil, fmt.Errorf("grammar: %d bytes, at most %d: %w", len(text), maxGBNFBytes, ErrTooLarge)
	}
	if !utf8.ValidString(text) {
		return nil, fmt.Errorf("grammar: not UTF-8: %w", ErrSyntax)
	}
	p := &gbnf{text: text, rules: map[string]Rule{}, defined: map[string]bool{}}
	for p.space(true); p.at < len(p.text); p.space(true) {
		if err := p.rule(); err != nil {
			return nil, err
		}
	}
	for _, name := range p.used {
		if !p.defined[name] {
			return nil, fmt.Errorf("grammar: rule %q is not defined: %w", name, ErrSyntax)
		}
	}
	if !p.defined["root"] {
		return nil, fmt.Errorf("grammar: there is no rule root: %w", ErrSyntax)
	}
	return p.b.Compile(p.rules["root"])
}

type gbnf struct {
	text    string
	at      int
	b       Builder
	rules   map[string]Rule
	defined map[string]bool
	used    []string
	depth   int
}

func (p *gbnf) fail(kind error, format string, args ...any) error {
	line := 1
	for i := range p.at {
		if p.text[i] == '\n' {
			line++
		}
	}
	return fmt.Errorf("grammar: line %d: %s: %w", line, fmt.Sprintf(format, args...), kind)
}

// space skips blanks and comments, and line ends where they mean nothing.
func (p *gbnf) space(lines bool) {
	for p.at < len(p.text) {
		switch c := p.text[p.at]; {
		case c == ' ' || c == '\t':
		case c == '#':
			for p.at < len(p.text) && p.text[p.at] != '\n' && p.text[p.at] != '\r' {
				p.at++
			}
			continue
		case lines && (c == '\n' || c == '\r'):
		default:
			return
		}
		p.at++
	}
}

func (p *gbnf) peek() byte {
	if p.at < len(p.text) {
		return p.text[p.at]
	}
	return 0
}

func (p *gbnf) take(s string) bool {
	if len(p.text)-p.at >= len(s) && p.text[p.at:p.at+len(s)] == s {
		p.at += len(s)
		return true
	}
	return false
}

func isNameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_'
}

func (p *gbnf) name() string {
	from := p.at
	for p.at < len(p.text) && isNameByte(p.text[p.at]) {
		p.at++
	}
	return p.text[from:p.at]
}

func (p *gbnf) named(name string) Rule {
	r, ok := p.rules[name]
	if !ok {
		r = p.b.Rule(name)
		p.rules[name] = r
	}
	return r
}

func (p *gbnf) rule() error {
	name := p.name()
	if name == "" {
		return p.fail(ErrSyntax, "want the name of a rule at %.20q", p.text[p.at:])
	}
	p.space(false)
	if !p.take("::=") {
		return p.fail(ErrSyntax, "want ::= after %q", name)
	}
	if p.defined[name] {
		return p.fail(ErrSyntax, "rule %q is defined twice", name)
	}
	p.defined[name] = true
	p.space(true)
	body, err := p.alternatives(false)
	if err != nil {
		return err
	}
	p.b.Set(p.named(name), body)
	if c := p.peek(); p.at < len(p.text) && c != '\n' && c != '\r' {
		return p.fail(ErrSyntax, "want the end of the line at %.20q", p.text[p.at:])
	}
	return nil
}

func (p *gbnf) alternatives(inGroup bool) (*Expr, error) {
	if p.depth++; p.depth > maxGBNFDepth {
		return nil, p.fail(ErrTooLarge, "groups nest deeper than %d", maxGBNFDepth)
	}
	defer func() { p.depth-- }()
	e := Alt()
	for {
		s, err := p.sequence(inGroup)
		if err != nil {
			return nil, err
		}
		e.sub = append(e.sub, s)
		if !p.take("|") {
			return e, nil
		}
		p.space(true)
	}
}

func (p *gbnf) sequence(inGroup bool) (*Expr, error) {
	e := Seq()
	for {
		s, err := p.symbol(inGroup)
		if err != nil || s == nil {
			return e, err
		}
		e.sub = append(e.sub, s)
	}
}

// symbol is one item with its repetitions; nil where a sequence ends.
func (p *gbnf) symbol(inGroup bool) (e *Expr, err error) {
	var class *automaton.Node
	switch c := p.peek(); {
	case c == '"':
		e, err = p.literal()
	case c == '[':
		class, err = p.class()
	case c == '.':
		p.at++
		class = automaton.Set(automaton.Range{Lo: 0, Hi: 0xD7FF}, automaton.Range{Lo: 0xE000, Hi: automaton.MaxRune})
	case c == '(':
		p.at++
		p.space(true)
		if e, err = p.alternatives(true); err == nil && !p.take(")") {
			err = p.fail(ErrSyntax, "( without )")
		}
	case c == '<' || c == '!':
		return nil, p.fail(ErrUnsupported, "a token as a terminal (%.20q)", p.text[p.at:])
	case isNameByte(c):
		at, name := p.at, p.name()
		p.space(false)
		if p.take("::=") { // the next rule, of a grammar whose lines do not end
			p.at = at
			return nil, p.fail(ErrSyntax, "rule %q on the line of another", name)
		}
		p.used = append(p.used, name)
		e = Call(p.named(name))
	default:
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	p.space(inGroup)
	return p.repeated(e, class, inGroup)
}

// repeated applies * + ? {m,n}; a class with its repetition is one automaton where that is small.
func (p *gbnf) repeated(e *Expr, class *automaton.Node, inGroup bool) (*Expr, error) {
	for {
		lo, hi := 0, -1
		switch {
		case p.take("*"):
		case p.take("+"):
			lo = 1
		case p.take("?"):
			hi = 1
		case p.peek() == '{':
			var err error
			if lo, hi, err = p.counts(); err != nil {
				return nil, err
			}
		default:
			if class != nil {
				return p.text1(class)
			}
			return e, nil
		}
		p.space(inGroup)
		if class != nil && max(lo, hi) <= 64 {
			d, err := automaton.Whole(automaton.Repeat(class, lo, hi))
			if err != nil {
				return nil, p.fail(ErrTooLarge, "%v", err)
			}
			e, class = Text(d), nil
			continue
		}
		if class != nil {
			var err error
			if e, err = p.text1(class); err != nil {
				return nil, err
			}
			class = nil
		}
		e = Repeat(e, lo, hi)
	}
}

// text1 is one character of a class.
func (p *gbnf) text1(class *automaton.Node) (*Expr, error) {
	d, err := automaton.Whole(class)
	if err != nil {
		return nil, p.fail(ErrTooLarge, "%v", err)
	}
	return Text(d), nil
}

func (p *gbnf) counts() (lo, hi int, err error) {
	p.at++
	number := func() (int, bool) {
		from := p.at
		for p.peek() >= '0' && p.peek() <= '9' {
			p.at++
		}
		n, err := strconv.Atoi(p.text[from:p.at])
		return n, err == nil
	}
	p.space(false)
	lo, ok := number()
	hi = lo
	p.space(false)
	if p.take(",") {
		p.space(false)
		var bounded bool
		if hi, bounded = number(); !bounded {
			hi = -1
		}
		p.space(false)
	}
	if !ok || !p.take("}") {
		return 0, 0, p.fail(ErrSyntax, "want {m}, {m,} or {m,n}")
	}
	if hi >= 0 && lo > hi {
		return 0, 0, p.fail(ErrSyntax, "{%d,%d}", lo, hi)
	}
	if max(lo, hi) > maxGBNFRepeat {
		return 0, 0, p.fail(ErrTooLarge, "more than %d repetitions", maxGBNFRepeat)
	}
	return lo, hi, nil
}

func (p *gbnf) literal() (*Expr, error) {
	p.at++
	var text []byte
	for {
		if p.at >= len(p.text) || p.peek() == '\n' {
			return nil, p.fail(ErrSyntax, "text without its closing quote")
		}
		if p.take(`"`) {
			return Literal(string(text)), nil
		}
		r, err := p.char()
		if err != nil {
			return nil, err
		}
		text = utf8.AppendRune(text, r)
	}
}

// char is one character, or an escape.
func (p *gbnf) char() (rune, error) {
	if !p.take(`\`) {
		r, n := utf8.DecodeRuneInString(p.text[p.at:])
		p.at += n
		return r, nil
	}
	c := p.peek()
	p.at++
	switch c {
	case 'n':
		return '\n', nil
	case 'r':
		return '\r', nil
	case 't':
		return '\t', nil
	case '\\', '"', '[', ']', '-', '^', '/':
		return rune(c), nil
	}
	digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
	if digits > 0 && p.at+digits <= len(p.text) {
		if v, err := strconv.ParseUint(p.text[p.at:p.at+digits], 16, 32); err == nil && utf8.ValidRune(rune(v)) {
			p.at += digits
			return rune(v), nil
		}
	}
	return 0, p.fail(ErrSyntax, "bad escape at %.10q", p.text[p.at-1:])
}

func (p *gbnf) class() (*automaton.Node, error) {
	p.at++
	not := p.take("^")
	var set []automaton.Range
	for !p.take("]") {
		if p.at >= len(p.text) {
			return nil, p.fail(ErrSyntax, "[ without ]")
		}
		lo, err := p.char()
		if err != nil {
			return nil, err
		}
		hi := lo
		if p.peek() == '-' && p.at+1 < len(p.text) && p.text[p.at+1] != ']' {
			p.at++
			if hi, err = p.char(); err != nil {
				return nil, err
			}
		}
		if lo > hi {
			return nil, p.fail(ErrSyntax, "range %q-%q out of order", lo, hi)
		}
		set = append(set, automaton.Range{Lo: lo, Hi: hi})
	}
	if not {
		return automaton.Not(set...), nil
	}
	return automaton.Set(set...), nil
}
