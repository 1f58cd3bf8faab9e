package vocab

import (
	"encoding/json"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// jsonParser reads JSON strictly: RFC 8259 and no more, valid UTF-8, no name
// twice in an object, no lone surrogate, a bounded depth. A tokenizer.json is
// mostly a million short strings; reading it token by token with encoding/json
// took five times as long and let duplicate names and broken text pass.
type jsonParser struct {
	data []byte
	at   int
}

// parseJSON reads one value: nil, bool, string, json.Number, []any or
// map[string]any.
func parseJSON(data []byte) (any, error) {
	if !utf8.Valid(data) {
		return nil, bad("JSON is not valid UTF-8")
	}
	p := &jsonParser{data: data}
	v, err := p.value(0)
	if err != nil {
		return nil, err
	}
	if p.space(); p.at < len(data) {
		return nil, p.fail("something follows the value")
	}
	return v, nil
}

func (p *jsonParser) fail(what string) error { return bad("JSON: %s at byte %d", what, p.at) }

func (p *jsonParser) space() {
	for p.at < len(p.data) {
		switch p.data[p.at] {
		case ' ', '\t', '\n', '\r':
			p.at++
		default:
			return
		}
	}
}

// peek skips white space and returns the next byte, 0 at the end.
func (p *jsonParser) peek() byte {
	p.space()
	if p.at == len(p.data) {
		return 0
	}
	return p.data[p.at]
}

func (p *jsonParser) value(depth int) (any, error) {
	if depth > maxJSONDepth {
		return nil, bad("JSON nests deeper than %d", maxJSONDepth)
	}
	switch c := p.peek(); {
	case c == '{':
		return p.object(depth)
	case c == '[':
		return p.array(depth)
	case c == '"':
		return p.text()
	case c == '-' || c >= '0' && c <= '9':
		return p.number()
	}
	for word, v := range map[string]any{"true": true, "false": false, "null": nil} {
		if rest := p.data[p.at:]; len(rest) >= len(word) && string(rest[:len(word)]) == word {
			p.at += len(word)
			return v, nil
		}
	}
	if p.at == len(p.data) {
		return nil, p.fail("unexpected end")
	}
	return nil, p.fail("no value")
}

func (p *jsonParser) object(depth int) (any, error) {
	m := map[string]any{}
	p.at++
	if p.peek() == '}' {
		p.at++
		return m, nil
	}
	for {
		if p.peek() != '"' {
			return nil, p.fail("no name")
		}
		name, err := p.text()
		if err != nil {
			return nil, err
		}
		if p.peek() != ':' {
			return nil, p.fail("no ':' after a name")
		}
		p.at++
		v, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		before := len(m)
		if m[name] = v; len(m) == before {
			return nil, bad("JSON: duplicate key %.80q", name)
		}
		if done, err := p.next('}'); done || err != nil {
			return m, err
		}
	}
}

func (p *jsonParser) array(depth int) (any, error) {
	list := []any{}
	p.at++
	if p.peek() == ']' {
		p.at++
		return list, nil
	}
	for {
		v, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
		if done, err := p.next(']'); done || err != nil {
			return list, err
		}
	}
}

// next reads what follows an item: a comma, or the end.
func (p *jsonParser) next(end byte) (done bool, err error) {
	switch p.peek() {
	case ',':
		p.at++
		return false, nil
	case end:
		p.at++
		return true, nil
	}
	return false, p.fail("neither ',' nor '" + string(rune(end)) + "'")
}

// number keeps the digits as they stand, so that none is rounded before its
// range is known.
func (p *jsonParser) number() (any, error) {
	from := p.at
	digits := func() bool {
		start := p.at
		for p.at < len(p.data) && p.data[p.at] >= '0' && p.data[p.at] <= '9' {
			p.at++
		}
		return p.at > start
	}
	is := func(set string) bool {
		for i := range len(set) {
			if p.at < len(p.data) && p.data[p.at] == set[i] {
				p.at++
				return true
			}
		}
		return false
	}
	is("-")
	if !is("0") && !digits() {
		return nil, p.fail("a number without digits")
	}
	if is(".") && !digits() {
		return nil, p.fail("a number without a fraction")
	}
	if is("eE") {
		if is("+-"); !digits() {
			return nil, p.fail("a number without an exponent")
		}
	}
	return json.Number(p.data[from:p.at]), nil
}

// text reads a string; most hold no escape and are one copy.
func (p *jsonParser) text() (string, error) {
	p.at++
	from := p.at
	for ; p.at < len(p.data); p.at++ {
		switch c := p.data[p.at]; {
		case c == '"':
			s := string(p.data[from:p.at])
			p.at++
			return s, nil
		case c == '\\':
			return p.escaped(append(make([]byte, 0, 32), p.data[from:p.at]...))
		case c < 0x20:
			return "", p.fail("a control character in a string")
		}
	}
	return "", p.fail("a string without an end")
}

// escaped reads the rest of a string from its first backslash on.
func (p *jsonParser) escaped(buf []byte) (string, error) {
	for p.at < len(p.data) {
		c := p.data[p.at]
		p.at++
		switch {
		case c == '"':
			return string(buf), nil
		case c < 0x20:
			return "", p.fail("a control character in a string")
		case c != '\\':
			buf = append(buf, c)
			continue
		}
		if p.at == len(p.data) {
			break
		}
		c = p.data[p.at]
		p.at++
		switch c {
		case '"', '\\', '/':
			buf = append(buf, c)
		case 'b':
			buf = append(buf, '\b')
		case 'f':
			buf = append(buf, '\f')
		case 'n':
			buf = append(buf, '\n')
		case 'r':
			buf = append(buf, '\r')
		case 't':
			buf = append(buf, '\t')
		case 'u':
			r, err := p.unicode()
			if err != nil {
				return "", err
			}
			buf = utf8.AppendRune(buf, r)
		default:
			return "", p.fail("an unknown escape")
		}
	}
	return "", p.fail("a string without an end")
}

// unicode reads the four digits after \u, and the second half of a pair.
func (p *jsonParser) unicode() (rune, error) {
	half := func() (rune, bool) {
		if p.at+4 > len(p.data) {
			return 0, false
		}
		v, err := strconv.ParseUint(string(p.data[p.at:p.at+4]), 16, 16)
		p.at += 4
		return rune(v), err == nil
	}
	first, ok := half()
	if !ok {
		return 0, p.fail("a \\u without four digits")
	}
	if !utf16.IsSurrogate(first) {
		return first, nil
	}
	if p.at+2 <= len(p.data) && p.data[p.at] == '\\' && p.data[p.at+1] == 'u' {
		p.at += 2
		if second, ok := half(); ok {
			if r := utf16.DecodeRune(first, second); r != utf8.RuneError {
				return r, nil
			}
		}
	}
	return 0, p.fail("half a surrogate pair")
}
