package answer

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"terrace/grammar"
)

// gemmaCalls are call:NAME{KEY:VALUE,…}, with a mark around strings, and keys without quotes.
type gemmaCalls struct{ open, close, quote string }

func (f *gemmaCalls) openers() []string { return []string{f.open} }
func (f *gemmaCalls) closers() []string { return []string{f.close} }

func (f *gemmaCalls) read(p *parser, _ string) bool {
	r := &p.r
	r.space()
	if !r.take("call:") {
		return false
	}
	name, ok := r.word("{")
	if !ok {
		return false
	}
	t := p.tool(strings.TrimSpace(name))
	if t == nil {
		return false
	}
	c := p.start(t)
	c.end(f.members(r, func(name string) bool {
		out, _ := c.member(name)
		return f.value(r, out, 0)
	}))
	return true
}

// members reads {KEY:VALUE,…}; member reads the value.
func (f *gemmaCalls) members(r *reader, member func(name string) bool) bool {
	if !r.take("{") {
		return false
	}
	for first := true; ; first = false {
		r.space()
		if r.take("}") {
			return true
		}
		if !first {
			if !r.take(",") {
				return false
			}
			r.space()
		}
		name, ok := f.key(r)
		r.space()
		if !ok || !r.take(":") {
			return false
		}
		r.space()
		if !member(name) {
			return false
		}
	}
}

func (f *gemmaCalls) key(r *reader) (string, bool) {
	switch {
	case r.take(f.quote):
		return r.wordTo(f.quote)
	case r.peek() == '"':
		return r.jsonString()
	}
	name, ok := r.word(":,}")
	return strings.TrimSpace(name), ok && name != ""
}

func (f *gemmaCalls) value(r *reader, out func([]byte), depth int) bool {
	switch {
	case depth > maxNesting:
		return false
	case r.take(f.quote):
		out([]byte(`"`))
		ended := r.scan(newMarks(f.quote), func(text []byte) { out(stringPart(text)) }) != ""
		out([]byte(`"`))
		return ended
	case r.peek() == '{':
		out([]byte("{"))
		first := true
		whole := f.members(r, func(name string) bool {
			if !first {
				out([]byte(", "))
			}
			first = false
			out(append(quote(name), ": "...))
			return f.value(r, out, depth+1)
		})
		out([]byte("}"))
		return whole
	case r.take("["):
		return f.array(r, out, depth)
	}
	return r.python(out, depth)
}

func (f *gemmaCalls) array(r *reader, out func([]byte), depth int) bool {
	out([]byte("["))
	for first := true; ; first = false {
		r.space()
		if r.take("]") {
			out([]byte("]"))
			return true
		}
		if !first {
			if !r.take(",") {
				return false
			}
			r.space()
			out([]byte(", "))
		}
		if !f.value(r, out, depth+1) {
			return false
		}
	}
}

func (f *gemmaCalls) write(w *writer, t *Tool) *grammar.Expr {
	argument := func(name string, s jsontext.Value) *grammar.Expr {
		return grammar.Seq(grammar.Literal(name+":"), f.written(w, t, s))
	}
	return grammar.Seq(grammar.Literal(f.open+"call:"+t.Name+"{"), w.each(t, ",", argument), grammar.Literal("}"+f.close))
}

// written is a value: a string between its marks, anything else as JSON, which can be read too.
func (f *gemmaCalls) written(w *writer, t *Tool, s jsontext.Value) *grammar.Expr {
	if t.kinds(s, 0)&isString == 0 {
		return w.json(t, s)
	}
	return grammar.Seq(grammar.Literal(f.quote), w.plain(t, s, f.quote), grammar.Literal(f.quote))
}
