package answer

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"terrace/grammar"
)

// nestedCalls are tags with a mark before each: <invoke name="…">, then a tag for each argument, in which objects have tags of
// their members and arrays tags <item>.
type nestedCalls struct{ mark string }

func (f *nestedCalls) openers() []string {
	return []string{f.mark + "<tool_call>", f.mark + "<invoke name=\""}
}
func (f *nestedCalls) closers() []string { return []string{f.mark + "</tool_call>"} }

func (f *nestedCalls) read(p *parser, opener string) bool {
	r := &p.r
	if opener == f.mark+"<tool_call>" {
		r.space()
		if !r.take(f.mark + "<invoke name=\"") {
			return false
		}
	}
	name, ok := r.wordTo(`">`)
	if !ok {
		return false
	}
	t := p.tool(name)
	if t == nil {
		return false
	}
	r.space()
	if !r.has(f.mark+"<", 0) {
		return false
	}
	c := p.start(t)
	for {
		r.space()
		if r.take(f.mark + "</invoke>") {
			c.end(true)
			return true
		}
		name, ok := f.tag(r)
		if !ok {
			break
		}
		out, s := c.member(name)
		v, ok := f.value(c.tool, r, name, s, 0)
		if v == nil {
			v = []byte("null")
		}
		out(v)
		if !ok {
			break
		}
	}
	c.end(false)
	return true
}

// tag reads an opening tag.
func (f *nestedCalls) tag(r *reader) (string, bool) {
	if r.has(f.mark+"</", 0) || !r.take(f.mark+"<") {
		return "", false
	}
	return r.wordTo(">")
}

// value reads what stands in a tag, and its end. What is read so far comes also where the text breaks off.
func (f *nestedCalls) value(t *Tool, r *reader, name string, s jsontext.Value, depth int) (jsontext.Value, bool) {
	if depth > maxDepth {
		return nil, false
	}
	var text []byte
	if r.scan(newMarks(f.mark), func(b []byte) { text = append(text, b...) }) == "" {
		return f.leaf(t, s, string(text)), false
	}
	r.pos -= len(f.mark)
	end := f.mark + "</" + name + ">"
	if r.take(end) {
		return f.leaf(t, s, string(text)), true
	}
	var names []string
	var values []jsontext.Value
	isArray := t.kinds(s, 0)&isArray != 0
	whole := false
	for {
		r.space()
		if whole = r.take(end); whole {
			break
		}
		name, ok := f.tag(r)
		if !ok {
			break
		}
		of, known := t.property(s, name, 0)
		if name == "item" && isArray {
			of, known = t.items(s), true
		}
		v, ok := f.value(t, r, name, of, depth+1)
		if v != nil && known {
			names, values = append(names, name), append(values, v)
		}
		isArray = isArray && name == "item"
		if !ok {
			break
		}
	}
	return together(isArray, names, values), whole
}

// leaf is a text that has no tags in it.
func (f *nestedCalls) leaf(t *Tool, s jsontext.Value, text string) jsontext.Value {
	if strings.TrimSpace(text) == "" {
		switch k := t.kinds(s, 0); {
		case k&isString != 0:
		case k&isArray != 0:
			return jsontext.Value("[]")
		case k&isObject != 0:
			return jsontext.Value("{}")
		}
	}
	return t.typed(s, text)
}

// together is members as an object, or as an array.
func together(isArray bool, names []string, values []jsontext.Value) jsontext.Value {
	out := []byte("{")
	if isArray {
		out = []byte("[")
	}
	for i, v := range values {
		if i > 0 {
			out = append(out, ", "...)
		}
		if !isArray {
			out = append(append(out, quote(names[i])...), ": "...)
		}
		out = append(out, v...)
	}
	if isArray {
		return append(out, ']')
	}
	return append(out, '}')
}

func (f *nestedCalls) write(w *writer, t *Tool) *grammar.Expr {
	argument := func(name string, s jsontext.Value) *grammar.Expr { return f.written(w, t, name, s, 0) }
	head := f.mark + "<tool_call>\n" + f.mark + "<invoke name=\"" + t.Name + "\">"
	return grammar.Seq(grammar.Literal(head), w.each(t, "", argument), grammar.Literal(f.mark+"</invoke>\n"+f.mark+"</tool_call>"))
}

// written is a tag with its value.
func (f *nestedCalls) written(w *writer, t *Tool, name string, s jsontext.Value, depth int) *grammar.Expr {
	open, end := grammar.Literal(f.mark+"<"+name+">"), grammar.Literal(f.mark+"</"+name+">")
	k := t.kinds(s, 0)
	switch {
	case depth > 8 || k&isString != 0 || k&(isObject|isArray) == 0:
		return grammar.Seq(open, w.plain(t, s, f.mark), end)
	case k&isArray != 0:
		return grammar.Seq(open, grammar.Repeat(f.written(w, t, "item", t.items(s), depth+1), t.count(s, "minItems", 0), t.count(s, "maxItems", -1)), end)
	}
	of := &Tool{Name: t.Name, Schema: s}
	if names, _ := of.names(); len(names) == 0 {
		return grammar.Seq(open, w.json(t, s), end)
	}
	return grammar.Seq(open, w.each(of, "", func(name string, s jsontext.Value) *grammar.Expr { return f.written(w, of, name, s, depth+1) }), end)
}
