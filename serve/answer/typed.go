package answer

import (
	"bytes"
	"math"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// typed is a text as the JSON value that a schema asks for: where it can be a string and something else, something else where
// the text is exactly that. What fits nothing is a string.
func (t *Tool) typed(s jsontext.Value, text string) jsontext.Value {
	k := t.kinds(s, 0)
	v := t.literal(text)
	if values, ok := enum(t.resolve(s)); ok {
		for _, one := range values {
			if one.Kind() == '"' && unquote(one) == text || v != nil && equal(one, v) {
				return one
			}
		}
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

// literal is a text that is one value of JSON or of Python; nil where it is none.
func (t *Tool) literal(text string) jsontext.Value {
	r := over([]byte(text))
	r.space()
	var v jsontext.Value
	if !r.python(func(b []byte) { v = append(v, b...) }, 0) {
		return nil
	}
	r.space()
	if r.pos < len(r.buf) || !v.IsValid() {
		return nil
	}
	return v
}

// equal compares JSON values.
func equal(a, b jsontext.Value) bool {
	a, b = a.Clone(), b.Clone()
	return a.Canonicalize() == nil && b.Canonicalize() == nil && bytes.Equal(a, b)
}
