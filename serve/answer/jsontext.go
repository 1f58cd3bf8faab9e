package answer

import (
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// maxNesting bounds arrays and objects within each other.
const maxNesting = 400

// jsonScan follows a JSON value byte by byte.
type jsonScan struct {
	stack []byte // { and [ that are open
	state jsonState
	word  string // what is left of true, false or null
	hex   int    // digits that are left of \u
}

type jsonState uint8

const (
	wantValue jsonState = iota
	wantValueOrEnd
	wantName
	wantNameOrEnd
	wantColon
	wantComma
	inString
	inEscape
	inName // a string that is a name
	inNameEscape
	inWord
	afterMinus
	inZero
	inInteger
	afterPoint
	inFraction
	afterE
	afterESign
	inExponent
)

type jsonStep uint8

const (
	jsonMore jsonStep = iota
	jsonDone          // the value ends with this byte
	jsonOver          // the value ended before this byte
	jsonBad
)

// step reads a byte.
func (s *jsonScan) step(b byte) jsonStep {
	switch s.state {
	case inString, inName:
		switch {
		case s.hex > 0:
			if s.hex--; strings.IndexByte("0123456789abcdefABCDEF", b) < 0 {
				return jsonBad
			}
		case b == '\\':
			s.state++
		case b == '"' && s.state == inName:
			s.state = wantColon
		case b == '"':
			return s.end()
		}
		return jsonMore
	case inEscape, inNameEscape:
		if strings.IndexByte(`"\/bfnrtu`, b) < 0 {
			return jsonBad
		}
		if b == 'u' {
			s.hex = 4
		}
		s.state--
		return jsonMore
	case inWord:
		if b != s.word[0] {
			return jsonBad
		}
		if s.word = s.word[1:]; s.word == "" {
			return s.end()
		}
		return jsonMore
	case wantValue, wantValueOrEnd, wantName, wantNameOrEnd, wantColon, wantComma:
		return s.between(b)
	}
	if s.number(b) {
		return jsonMore
	}
	if s.state != inZero && s.state != inInteger && s.state != inFraction && s.state != inExponent {
		return jsonBad
	}
	if s.end() == jsonDone {
		return jsonOver
	}
	return s.between(b)
}

// between reads a byte that is in no string, word or number.
func (s *jsonScan) between(b byte) jsonStep {
	if isSpace(b) {
		return jsonMore
	}
	switch s.state {
	case wantComma:
		open := s.stack[len(s.stack)-1]
		switch {
		case b == ',' && open == '{':
			s.state = wantName
		case b == ',':
			s.state = wantValue
		case b == open+2: // } and ] come two places behind { and [
			return s.pop()
		default:
			return jsonBad
		}
		return jsonMore
	case wantColon:
		if b != ':' {
			return jsonBad
		}
		s.state = wantValue
		return jsonMore
	case wantName, wantNameOrEnd:
		switch {
		case b == '"':
			s.state = inName
		case b == '}' && s.state == wantNameOrEnd:
			return s.pop()
		default:
			return jsonBad
		}
		return jsonMore
	}
	if b == ']' && s.state == wantValueOrEnd {
		return s.pop()
	}
	return s.begin(b)
}

// begin reads the first byte of a value.
func (s *jsonScan) begin(b byte) jsonStep {
	switch {
	case b == '"':
		s.state = inString
	case b == '{' || b == '[':
		if len(s.stack) == maxNesting {
			return jsonBad
		}
		s.stack = append(s.stack, b)
		s.state = wantNameOrEnd
		if b == '[' {
			s.state = wantValueOrEnd
		}
	case b == 't':
		s.state, s.word = inWord, "rue"
	case b == 'f':
		s.state, s.word = inWord, "alse"
	case b == 'n':
		s.state, s.word = inWord, "ull"
	case b == '-':
		s.state = afterMinus
	case b == '0':
		s.state = inZero
	case b >= '1' && b <= '9':
		s.state = inInteger
	default:
		return jsonBad
	}
	return jsonMore
}

// number reads a byte of a number; false where it is none.
func (s *jsonScan) number(b byte) bool {
	digit := b >= '0' && b <= '9'
	next := s.state
	switch s.state {
	case afterMinus:
		next = inInteger
		if b == '0' {
			next = inZero
		}
	case afterPoint, inFraction:
		next = inFraction
	case afterE, afterESign, inExponent:
		next = inExponent
	}
	switch {
	case digit && s.state != inZero:
		s.state = next
	case b == '.' && (s.state == inZero || s.state == inInteger):
		s.state = afterPoint
	case (b == 'e' || b == 'E') && (s.state == inZero || s.state == inInteger || s.state == inFraction):
		s.state = afterE
	case (b == '+' || b == '-') && s.state == afterE:
		s.state = afterESign
	default:
		return false
	}
	return true
}

func (s *jsonScan) pop() jsonStep {
	s.stack = s.stack[:len(s.stack)-1]
	return s.end()
}

func (s *jsonScan) end() jsonStep {
	if len(s.stack) == 0 {
		return jsonDone
	}
	s.state = wantComma
	return jsonMore
}

// json reads one JSON value and gives it to out as it comes, line ends in strings escaped. False: it is none from the next
// byte on, or the text has ended.
func (r *reader) json(out func([]byte)) bool {
	var s jsonScan
	for {
		if _, ok := r.at(0); !ok {
			return len(s.stack) == 0 && s.step(' ') == jsonOver
		}
		from := r.pos
		for ; r.pos < len(r.buf); r.pos++ {
			b := r.buf[r.pos]
			raw := b < ' ' && s.hex == 0 && (s.state == inString || s.state == inName)
			if raw {
				out(r.buf[from:r.pos])
				out(fmt.Appendf(nil, `\u%04x`, b))
				from = r.pos + 1
				continue
			}
			switch s.step(b) {
			case jsonDone:
				r.pos++
				out(r.buf[from:r.pos])
				return true
			case jsonOver:
				out(r.buf[from:r.pos])
				return true
			case jsonBad:
				out(r.buf[from:r.pos])
				return false
			}
		}
		out(r.buf[from:r.pos])
	}
}

// jsonValue reads one JSON value whole.
func (r *reader) jsonValue() (jsontext.Value, bool) {
	var v jsontext.Value
	ok := r.json(func(b []byte) { v = append(v, b...) })
	return v, ok
}

// jsonString reads a JSON string and returns what it says.
func (r *reader) jsonString() (string, bool) {
	if r.peek() != '"' {
		return "", false
	}
	v, ok := r.jsonValue()
	return unquote(v), ok
}

// members reads a JSON object and calls member behind the colon of each; it reads the value. False as of json.
func (r *reader) members(member func(name string) bool) bool {
	if !r.take("{") {
		return false
	}
	r.space()
	if r.take("}") {
		return true
	}
	for {
		r.space()
		name, ok := r.jsonString()
		if !ok {
			return false
		}
		r.space()
		if !r.take(":") {
			return false
		}
		r.space()
		if !member(name) {
			return false
		}
		r.space()
		if r.take("}") {
			return true
		}
		if !r.take(",") {
			return false
		}
	}
}

func quote(text string) []byte {
	b, _ := jsontext.AppendQuote(nil, strings.ToValidUTF8(text, "\uFFFD"))
	return b
}

func unquote(v jsontext.Value) string {
	b, err := jsontext.AppendUnquote(nil, v)
	if err != nil {
		return string(v)
	}
	return string(b)
}
