package answer

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// python reads a value as Python (or JSON) writes it and gives it to out as JSON. False as of json.
func (r *reader) python(out func([]byte), depth int) bool {
	if depth > maxNesting {
		return false
	}
	switch b := r.peek(); {
	case b == '"' || b == '\'':
		return r.pythonString(out)
	case b == '{':
		return r.pythonList(out, "{", "}", depth)
	case b == '[':
		return r.pythonList(out, "[", "]", depth)
	case b == '(':
		return r.pythonList(out, "(", ")", depth)
	case b == '-' || b == '+' || b == '.' || b >= '0' && b <= '9':
		return r.pythonNumber(out)
	}
	return r.pythonWord(out)
}

func isWord(b byte) bool {
	return b == '_' || b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z'
}

// run is the bytes that hold, at most n.
func (r *reader) run(holds func(byte) bool, n int) string {
	i := 0
	for b, ok := r.at(0); ok && i < n && holds(b); b, ok = r.at(i) {
		i++
	}
	text := string(r.buf[r.pos : r.pos+i])
	r.pos += i
	return text
}

func (r *reader) pythonWord(out func([]byte)) bool {
	word := map[string]string{"True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null"}[r.run(isWord, 8)]
	out([]byte(word))
	return word != ""
}

func (r *reader) pythonNumber(out func([]byte)) bool {
	text := r.run(func(b byte) bool { return isWord(b) || b == '.' || b == '-' || b == '+' }, 400)
	if over([]byte(text)).json(func([]byte) {}) && strings.Trim(text, "0123456789.eE+-") == "" {
		out([]byte(text))
		return true
	}
	plain := strings.ReplaceAll(text, "_", "")
	if n, err := strconv.ParseInt(plain, 0, 64); err == nil {
		out(strconv.AppendInt(nil, n, 10))
		return true
	}
	f, err := strconv.ParseFloat(plain, 64)
	if err != nil || strings.Trim(plain, "0123456789.eE+-") != "" {
		return false
	}
	out(strconv.AppendFloat(nil, f, 'f', -1, 64))
	return true
}

// pythonString reads a string. Templates also write strings between quotes without escaping what is in them: a quote ends the
// string only where the value can end.
func (r *reader) pythonString(out func([]byte)) bool {
	mark := r.buf[r.pos]
	r.pos++
	out([]byte(`"`))
	for {
		b, ok := r.at(0)
		switch {
		case !ok:
			return false
		case b == mark && r.endsValue():
			r.pos++
			out([]byte(`"`))
			return true
		case b == '\\':
			r.pythonEscape(out)
		default:
			n := 1
			for ; r.pos+n < len(r.buf) && r.buf[r.pos+n] != mark && r.buf[r.pos+n] != '\\'; n++ {
			}
			out(stringPart(r.buf[r.pos : r.pos+n]))
			r.pos += n
		}
	}
}

// endsValue says whether a value can end with the next byte.
func (r *reader) endsValue() bool {
	b, ok := r.at(1 + r.spaces(1))
	return !ok || strings.IndexByte(",:)]}", b) >= 0
}

// pythonEscape reads a backslash and what belongs to it.
func (r *reader) pythonEscape(out func([]byte)) {
	r.pos++
	b := r.peek()
	digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[b]
	if digits > 0 {
		r.at(digits)
		if to := r.pos + 1 + digits; to <= len(r.buf) {
			if v, err := strconv.ParseUint(string(r.buf[r.pos+1:to]), 16, 32); err == nil {
				if b == 'u' { // JSON's escape: of a surrogate the other half follows
					out(append([]byte(`\`), r.buf[r.pos:to]...))
				} else {
					out(stringPart(utf8.AppendRune(nil, rune(v))))
				}
				r.pos = to
				return
			}
		}
	}
	plain, ok := map[byte]string{'n': "\n", 't': "\t", 'r': "\r", 'b': "\b", 'f': "\f", '\\': `\`, '\'': "'", '"': `"`, '/': "/", '\n': ""}[b]
	if !ok { // Python keeps the backslash of what is no escape
		out([]byte(`\\`))
		return
	}
	r.pos++
	out(stringPart([]byte(plain)))
}

// stringPart is text as it stands inside a JSON string. It may be part of a character.
func stringPart(text []byte) []byte {
	var out []byte
	for _, b := range text {
		switch {
		case b == '"' || b == '\\':
			out = append(out, '\\', b)
		case b == '\n':
			out = append(out, `\n`...)
		case b == '\t':
			out = append(out, `\t`...)
		case b == '\r':
			out = append(out, `\r`...)
		case b < ' ':
			out = append(out, `\u00`...)
			out = append(out, "0123456789abcdef"[b>>4], "0123456789abcdef"[b&15])
		default:
			out = append(out, b)
		}
	}
	return out
}

// pythonList reads a list, a tuple, a dict, or a set.
func (r *reader) pythonList(out func([]byte), open, end string, depth int) bool {
	r.take(open)
	isObject := open == "{"
	left, right := "[", "]"
	if isObject {
		left, right = "{", "}"
	}
	out([]byte(left))
	for first := true; ; first = false {
		r.space()
		if r.take(end) {
			out([]byte(right))
			return true
		}
		if !first {
			if !r.take(",") {
				return false
			}
			r.space()
			if r.take(end) {
				out([]byte(right))
				return true
			}
			out([]byte(", "))
		}
		if isObject {
			if b := r.peek(); b != '"' && b != '\'' || !r.pythonString(out) {
				return false
			}
			r.space()
			if !r.take(":") {
				return false
			}
			out([]byte(": "))
			r.space()
		}
		if !r.python(out, depth+1) {
			return false
		}
	}
}
