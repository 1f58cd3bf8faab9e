package answer

import (
	"bytes"
	"math"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// typed is a text as the JSON value that a schema asks for. Where it can be a string and something else, it is something else
// if the text is exactly that in JSON; where it cannot be a string, it may be written as Python writes it. What fits nothing is
// a string.
func (t *Tool) typed(s jsontext.Value, text string) jsontext.Value {
	k := t.kinds(s, 0)
	v := literal(text, k&isString == 0)
	if one := t.listed(s, text, v); one != nil {
		return one
	}
	if v == nil || v.Kind() == '"' && k&isString != 0 { // templates write strings without quotes: these belong to it
		return jsontext.Value(quote(text))
	}
	is := kindOf(v)
	switch {
	case is&k != 0:
		return v
	case is == isNumber && k&isInteger != 0: // 3.0
		if f, err := strconv.ParseFloat(string(v), 64); err == nil && f == math.Trunc(f) && math.Abs(f) < 1<<53 {
			return strconv.AppendInt(nil, int64(f), 10)
		}
	}
	if k&isString == 0 {
		return v
	}
	return jsontext.Value(quote(text))
}

// listed is the value of an enum that a text is, of which v is the value; nil where it is none.
func (t *Tool) listed(s jsontext.Value, text string, v jsontext.Value) jsontext.Value {
	values, _ := enum(t.resolve(s))
	for _, of := range []string{text, strings.TrimSpace(text)} {
		for _, one := range values {
			if one.Kind() == '"' && unquote(one) == of || one.Kind() != '"' && v != nil && equal(one, v) {
				return one
			}
		}
	}
	return nil
}

// literal is a text that is one value of JSON, or of Python; nil where it is none.
func literal(text string, python bool) jsontext.Value {
	v := jsontext.Value(strings.TrimSpace(text))
	if v.IsValid() {
		return v
	}
	if !python {
		return nil
	}
	r := over(v)
	v = nil
	if !r.python(func(b []byte) { v = append(v, b...) }, 0) || r.pos < len(r.buf) || !v.IsValid() {
		return nil
	}
	return v
}

// equal compares JSON values.
func equal(a, b jsontext.Value) bool {
	a, b = a.Clone(), b.Clone()
	return a.Canonicalize() == nil && b.Canonicalize() == nil && bytes.Equal(a, b)
}
