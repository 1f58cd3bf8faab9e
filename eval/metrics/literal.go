package metrics

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// ErrLiteral is returned for a text that is no Python literal of the kinds that PythonLiteral reads.
var ErrLiteral = errors.New("no Python literal")

// PythonLiteral reads what Python prints of dictionaries with texts as keys, lists, tuples, texts, numbers, True, False and None:
// map[string]any, []any, string, float64, bool, nil. Errors name the byte and wrap ErrLiteral.
func PythonLiteral(text string) (any, error) {
	p := literal{text: text}
	v, err := p.value(0)
	if err != nil {
		return nil, err
	}
	if p.space(); p.at < len(text) {
		return nil, p.fault("more text")
	}
	return v, nil
}

type literal struct {
	text string
	at   int
}

// deepest bounds lists in lists.
const deepest = 64

func (p *literal) fault(what string) error {
	return fmt.Errorf("metrics: %s at byte %d: %w", what, p.at, ErrLiteral)
}

func (p *literal) space() {
	for p.at < len(p.text) && strings.IndexByte(" \t\r\n", p.text[p.at]) >= 0 {
		p.at++
	}
}

// take skips white space and a sign that is there.
func (p *literal) take(sign byte) bool {
	p.space()
	if p.at < len(p.text) && p.text[p.at] == sign {
		p.at++
		return true
	}
	return false
}

func (p *literal) value(depth int) (any, error) {
	p.space()
	switch {
	case depth > deepest:
		return nil, p.fault("too deep a list")
	case p.at == len(p.text):
		return nil, p.fault("nothing")
	case p.take('{'):
		return p.dictionary(depth)
	case p.take('['):
		return p.list(']', depth)
	case p.take('('):
		return p.list(')', depth)
	case p.text[p.at] == '\'' || p.text[p.at] == '"':
		return p.texts()
	}
	end := p.at
	for end < len(p.text) && strings.IndexByte(" \t\r\n,:]})", p.text[end]) < 0 {
		end++
	}
	word := p.text[p.at:end]
	switch word {
	case "True", "False":
		p.at = end
		return word == "True", nil
	case "None":
		p.at = end
		return nil, nil
	}
	if x, err := strconv.ParseFloat(word, 64); err == nil && strings.Trim(word, "0123456789.eE+-") == "" {
		p.at = end
		return x, nil
	}
	return nil, p.fault(fmt.Sprintf("%.20q", word))
}

func (p *literal) dictionary(depth int) (any, error) {
	out := map[string]any{}
	for !p.take('}') {
		if p.space(); p.at == len(p.text) || p.text[p.at] != '\'' && p.text[p.at] != '"' {
			return nil, p.fault("no text as a key")
		}
		key, err := p.texts()
		if err != nil {
			return nil, err
		}
		if !p.take(':') {
			return nil, p.fault("no colon")
		}
		if out[key], err = p.value(depth + 1); err != nil {
			return nil, err
		}
		if !p.take(',') {
			if p.take('}') {
				break
			}
			return nil, p.fault("no comma")
		}
	}
	return out, nil
}

func (p *literal) list(end byte, depth int) (any, error) {
	out := []any{}
	for !p.take(end) {
		v, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
		if !p.take(',') {
			if p.take(end) {
				break
			}
			return nil, p.fault("no comma")
		}
	}
	return out, nil
}

// texts reads texts that stand side by side, which are one.
func (p *literal) texts() (string, error) {
	var out strings.Builder
	for {
		if p.space(); p.at == len(p.text) || p.text[p.at] != '\'' && p.text[p.at] != '"' {
			return out.String(), nil
		}
		quote := p.text[p.at]
		for p.at++; ; {
			if p.at == len(p.text) || p.text[p.at] == '\n' {
				return "", p.fault("a text without an end")
			}
			c := p.text[p.at]
			p.at++
			if c == quote {
				break
			}
			if c != '\\' {
				out.WriteByte(c)
			} else if err := p.escape(&out); err != nil {
				return "", err
			}
		}
	}
}

// escape reads what stands behind a backslash.
func (p *literal) escape(out *strings.Builder) error {
	if p.at == len(p.text) {
		return p.fault("a text without an end")
	}
	c := p.text[p.at]
	p.at++
	if i := strings.IndexByte(`nrtabfv\'"`, c); i >= 0 {
		out.WriteByte("\n\r\t\a\b\f\v\\'\""[i])
		return nil
	}
	digits, base := 0, 16
	switch c {
	case '\n':
		return nil
	case 'x':
		digits = 2
	case 'u':
		digits = 4
	case 'U':
		digits = 8
	case '0', '1', '2', '3', '4', '5', '6', '7':
		p.at--
		base = 8
		for digits < 3 && p.at+digits < len(p.text) && p.text[p.at+digits] >= '0' && p.text[p.at+digits] <= '7' {
			digits++
		}
	case 'N':
		return p.fault("a character by its name")
	default:
		out.WriteByte('\\')
		out.WriteByte(c)
		return nil
	}
	if p.at+digits > len(p.text) {
		return p.fault("a text without an end")
	}
	n, err := strconv.ParseUint(p.text[p.at:p.at+digits], base, 32)
	if err != nil || !utf8.ValidRune(rune(n)) || n > utf8.MaxRune {
		return p.fault("a wrong escape")
	}
	p.at += digits
	out.WriteRune(rune(n))
	return nil
}
