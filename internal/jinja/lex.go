package jinja

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// tokenKind is what a token is.
type tokenKind uint8

const (
	tokData  tokenKind = iota // text between tags
	tokBegin                  // {% or {{
	tokEnd                    // %} or }}
	tokName
	tokString
	tokInt
	tokFloat
	tokOp
	tokEOF
)

// token is a piece of a template. text is a name, an operator, a decoded string, a number as written, or which tag begins or ends.
type token struct {
	kind tokenKind
	text string
	line int
}

// lexer follows jinja2's lexer with trim_blocks and lstrip_blocks on.
type lexer struct {
	src       string
	pos       int
	lineStart bool // the last token ended with a newline, or there is none
	line      int  // newlines before counted
	counted   int
	list      []token
}

// lex cuts a template into tokens.
func lex(src string) ([]token, error) {
	src = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(src)
	src = strings.TrimSuffix(src, "\n")
	l := &lexer{src: src, lineStart: true}
	for l.pos < len(l.src) {
		if err := l.root(); err != nil {
			return nil, err
		}
	}
	l.add(tokEOF, "")
	return l.list, nil
}

func (l *lexer) add(kind tokenKind, text string) {
	l.list = append(l.list, token{kind, text, l.lineNow()})
}

// lineNow is the number of the line at the position, from 1.
func (l *lexer) lineNow() int {
	l.line += strings.Count(l.src[l.counted:l.pos], "\n")
	l.counted = l.pos
	return l.line + 1
}

func (l *lexer) fail(format string, args ...any) error {
	return &SyntaxError{Line: l.lineNow(), Text: fmt.Sprintf(format, args...)}
}

// root reads text up to the next tag, and that tag.
func (l *lexer) root() error {
	at := nextTag(l.src, l.pos)
	if at < 0 {
		l.data(l.src[l.pos:], "", false)
		l.pos = len(l.src)
		return nil
	}
	open := l.src[at : at+2]
	sign := ""
	if at+2 < len(l.src) && (l.src[at+2] == '-' || l.src[at+2] == '+') {
		sign = l.src[at+2 : at+3]
	}
	l.data(l.src[l.pos:at], sign, open != "{{")
	l.pos = at + 2 + len(sign)
	switch open {
	case "{#":
		end := strings.Index(l.src[l.pos:], "#}")
		if end < 0 {
			return l.fail("missing end of comment tag")
		}
		body := l.src[l.pos : l.pos+end]
		l.pos += end + 2
		l.closed(strings.HasSuffix(body, "-"), strings.HasSuffix(body, "+"), true)
		return nil
	case "{%":
		if raw, ok := l.rawTag(); ok {
			return raw()
		}
	}
	l.add(tokBegin, open)
	return l.code(map[string]string{"{%": "%}", "{{": "}}"}[open])
}

func nextTag(s string, from int) int {
	for i := from; i+1 < len(s); i++ {
		if s[i] == '{' && (s[i+1] == '{' || s[i+1] == '%' || s[i+1] == '#') {
			return i
		}
	}
	return -1
}

// data adds text before a tag; block says that lstrip_blocks holds for that tag.
func (l *lexer) data(text, sign string, block bool) {
	full := text
	if sign == "-" {
		text = strings.TrimRightFunc(text, isSpace)
	} else if sign != "+" && block {
		line := strings.LastIndexByte(text, '\n') + 1
		if (line > 0 || l.lineStart) && strings.TrimFunc(text[line:], isSpace) == "" {
			text = text[:line]
		}
	}
	if text != "" {
		l.add(tokData, text)
	}
	if full != "" {
		l.lineStart = false
	}
}

// closed skips what the end of a tag takes with it: all white space behind "-", one newline behind a block or comment.
func (l *lexer) closed(minus, plus, trim bool) {
	start := l.pos
	if minus {
		l.pos += len(l.src[l.pos:]) - len(strings.TrimLeftFunc(l.src[l.pos:], isSpace))
	} else if trim && !plus && strings.HasPrefix(l.src[l.pos:], "\n") {
		l.pos++
	}
	l.lineStart = l.pos > start && l.src[l.pos-1] == '\n'
}

// rawTag finds {% raw %} at the position behind "{%" and its sign.
func (l *lexer) rawTag() (func() error, bool) {
	rest := strings.TrimLeftFunc(l.src[l.pos:], isSpace)
	if !strings.HasPrefix(rest, "raw") {
		return nil, false
	}
	rest = strings.TrimLeftFunc(rest[3:], isSpace)
	minus := strings.HasPrefix(rest, "-%}")
	if !minus && !strings.HasPrefix(rest, "%}") {
		return nil, false
	}
	return func() error {
		l.pos = len(l.src) - len(rest) + 2
		if minus {
			l.pos++
		}
		l.closed(minus, true, false)
		for i := l.pos; i+1 < len(l.src); i++ {
			if l.src[i] != '{' || l.src[i+1] != '%' {
				continue
			}
			tail, sign := l.src[i+2:], ""
			if tail != "" && (tail[0] == '-' || tail[0] == '+') {
				sign, tail = tail[:1], tail[1:]
			}
			tail = strings.TrimLeftFunc(tail, isSpace)
			if !strings.HasPrefix(tail, "endraw") {
				continue
			}
			tail = strings.TrimLeftFunc(tail[6:], isSpace)
			end := strings.TrimPrefix(strings.TrimPrefix(tail, "-"), "+")
			if !strings.HasPrefix(end, "%}") {
				continue
			}
			l.data(l.src[l.pos:i], sign, true)
			l.pos = len(l.src) - len(end) + 2
			l.closed(strings.HasPrefix(tail, "-"), strings.HasPrefix(tail, "+"), true)
			return nil
		}
		return l.fail("missing end of raw directive")
	}, true
}

// operators, the longer ones first.
var operators = []string{"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}", ">", "<", "=", ".", ":", "|", ",", ";"}

var opposite = map[string]string{")": "(", "]": "[", "}": "{"}

// code reads the tokens of a tag up to its end.
func (l *lexer) code(end string) error {
	var open []string
	for {
		rest := l.src[l.pos:]
		if trimmed := strings.TrimLeftFunc(rest, isSpace); len(trimmed) < len(rest) {
			l.pos += len(rest) - len(trimmed)
			rest = trimmed
		}
		if rest == "" {
			return l.fail("unexpected end of template, a tag is not closed")
		}
		if len(open) == 0 {
			sign := strings.HasPrefix(rest, "-"+end) || end == "%}" && strings.HasPrefix(rest, "+"+end)
			if sign || strings.HasPrefix(rest, end) {
				l.add(tokEnd, end)
				l.pos += len(end)
				if sign {
					l.pos++
				}
				l.closed(rest[0] == '-', rest[0] == '+', end == "%}")
				return nil
			}
		}
		if err := l.one(rest, &open); err != nil {
			return err
		}
	}
}

func (l *lexer) one(rest string, open *[]string) error {
	r, _ := utf8.DecodeRuneInString(rest)
	switch {
	case r == '"' || r == '\'':
		return l.text(rest)
	case r >= '0' && r <= '9':
		n, float := numberLength(rest)
		if last := len(l.list) - 1; l.list[last].kind == tokOp && l.list[last].text == "." { // l.0.1 are two indices
			n, float = len(rest)-len(strings.TrimLeft(rest, "0123456789")), false
		}
		kind := tokInt
		if float {
			kind = tokFloat
		}
		l.add(kind, strings.ReplaceAll(rest[:n], "_", ""))
		l.pos += n
		return nil
	case r == '_' || unicode.IsLetter(r):
		n := strings.IndexFunc(rest, func(r rune) bool {
			return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.Is(unicode.Mn, r)
		})
		if n < 0 {
			n = len(rest)
		}
		l.add(tokName, rest[:n])
		l.pos += n
		return nil
	}
	for _, op := range operators {
		if !strings.HasPrefix(rest, op) {
			continue
		}
		switch op {
		case "(", "[", "{":
			*open = append(*open, op)
		case ")", "]", "}":
			if len(*open) == 0 || (*open)[len(*open)-1] != opposite[op] {
				return l.fail("unexpected %q", op)
			}
			*open = (*open)[:len(*open)-1]
		}
		l.add(tokOp, op)
		l.pos += len(op)
		return nil
	}
	return l.fail("unexpected char %q", r)
}

// text reads a string literal.
func (l *lexer) text(rest string) error {
	for i := 1; i < len(rest); i++ {
		switch rest[i] {
		case '\\':
			i++
		case rest[0]:
			s, err := unescape(rest[1:i])
			if err != nil {
				return l.fail("%v", err)
			}
			l.add(tokString, s)
			l.pos += i + 1
			return nil
		}
	}
	return l.fail("a string is not closed")
}

// numberLength is the length of the number that s begins with, and whether it is a float.
func numberLength(s string) (n int, float bool) {
	if len(s) > 2 && s[0] == '0' && strings.IndexByte("bBoOxX", s[1]) >= 0 {
		n = 2
		for n < len(s) && (s[n] == '_' || isHex(s[n])) {
			n++
		}
		return n, false
	}
	digits := func(i int) int {
		for i < len(s) && (s[i] >= '0' && s[i] <= '9' || s[i] == '_' && i+1 < len(s) && s[i+1] >= '0' && s[i+1] <= '9') {
			i++
		}
		return i
	}
	n = digits(0)
	if n+1 < len(s) && s[n] == '.' && s[n+1] >= '0' && s[n+1] <= '9' {
		n, float = digits(n+1), true
	}
	if n < len(s) && (s[n] == 'e' || s[n] == 'E') {
		e := n + 1
		if e < len(s) && (s[e] == '+' || s[e] == '-') {
			e++
		}
		if e < len(s) && s[e] >= '0' && s[e] <= '9' {
			n, float = digits(e), true
		}
	}
	return n, float
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

var shortEscapes = map[byte]string{'n': "\n", 't': "\t", 'r': "\r", '\\': "\\", '\'': "'", '"': "\"", 'a': "\a", 'b': "\b", 'f': "\f", 'v': "\v", '\n': ""}

// unescape decodes the escapes of a Python string literal.
func unescape(s string) (string, error) {
	if strings.IndexByte(s, '\\') < 0 {
		return s, nil
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		if short, ok := shortEscapes[s[i]]; ok {
			b.WriteString(short)
			continue
		}
		width := map[byte]int{'x': 2, 'u': 4, 'U': 8}[s[i]]
		switch {
		case width > 0:
			if i+width >= len(s) {
				return "", fmt.Errorf(`truncated \%c escape`, s[i])
			}
			code, err := strconv.ParseUint(s[i+1:i+1+width], 16, 32)
			if err != nil || code > unicode.MaxRune {
				return "", fmt.Errorf(`bad \%c escape`, s[i])
			}
			b.WriteRune(rune(code))
			i += width
		case s[i] >= '0' && s[i] <= '7':
			end := i + 1
			for end < len(s) && end < i+3 && s[end] >= '0' && s[end] <= '7' {
				end++
			}
			code, _ := strconv.ParseUint(s[i:end], 8, 32)
			b.WriteRune(rune(code))
			i = end - 1
		case s[i] == 'N':
			return "", fmt.Errorf(`\N escapes are not supported`)
		default:
			b.WriteByte('\\')
			b.WriteByte(s[i])
		}
	}
	return b.String(), nil
}
