package answer

import (
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"terrace/grammar"
)

// parameterCalls are a name and arguments as text between tags, without JSON's quotes: what they are, the tool's schema says.
type parameterCalls struct {
	sections []string // marks that may stand before the first call
	open     string   // <invoke name="
	nameStop string   // a byte of it ends the name
	nameEnd  string   // ends the tag; "": nothing does
	key      string   // <parameter name="
	keyStop  string
	keyEnd   string
	value    string // <arg_value>; "": the value follows the key
	end      string // </parameter>
	close    string // </invoke>
	closing  []string
	lines    bool // values stand on lines of their own
	unescape *strings.Replacer

	// As calls are written:
	before, after string             // the section's marks
	nameWritten   string             // what stands behind the name
	gap           string             // before an argument and before the end
	attribute     func(kinds) string // what stands between the key and keyEnd
	written       string             // value with the space before it
	header        func(string) string
	oneLine       bool // lines is for reading only
}

func (f *parameterCalls) openers() []string { return append(slices.Clone(f.sections), f.open) }
func (f *parameterCalls) closers() []string { return f.closing }

func (f *parameterCalls) read(p *parser, opener string) bool {
	r := &p.r
	if opener != f.open {
		r.space()
		if !r.take(f.open) {
			return false
		}
	}
	name, ok := r.word(f.nameStop)
	if !ok {
		return false
	}
	if f.nameEnd != "" {
		if _, ok := r.wordTo(f.nameEnd); !ok {
			return false
		}
	}
	t := p.tool(strings.TrimSpace(name))
	if t == nil {
		return false
	}
	if n := r.spaces(0); !r.has(f.key, n) && !f.ends(r, n) {
		return false
	}
	c := p.start(t)
	for {
		r.space()
		switch {
		case r.take(f.close):
			c.end(true)
			return true
		case f.ends(r, 0):
			c.end(true)
			return true
		case !f.argument(r, c):
			c.end(false)
			return true
		}
	}
}

// ends says whether a call or its section is closed, n bytes ahead.
func (f *parameterCalls) ends(r *reader, n int) bool {
	return r.has(f.close, n) || slices.ContainsFunc(f.closing, func(mark string) bool { return r.has(mark, n) })
}

// argument reads one argument.
func (f *parameterCalls) argument(r *reader, c *call) bool {
	if !r.take(f.key) {
		return false
	}
	name, ok := r.word(f.keyStop)
	if !ok {
		return false
	}
	attributes, ok := r.wordTo(f.keyEnd)
	if !ok {
		return false
	}
	if f.value != "" {
		r.space()
		if !r.take(f.value) {
			return false
		}
	}
	if f.unescape != nil {
		name = f.unescape.Replace(name)
	}
	out, s := c.member(name)
	k := c.tool.kinds(s, 0)
	switch {
	case strings.Contains(attributes, `string="true"`) || strings.Contains(attributes, `type="string"`):
		k = isString
	case strings.Contains(attributes, `string="false"`) || strings.Contains(attributes, `type="`):
		if k == isString {
			k = anyKind
		}
	}
	return f.argumentValue(r, c, out, s, k)
}

// argumentValue reads a value. One that can only be a string is written as it comes.
func (f *parameterCalls) argumentValue(r *reader, c *call, out func([]byte), s jsontext.Value, k kinds) bool {
	v := lineValue{lines: f.lines}
	if k == isString {
		v.out = func(text []byte) { out(stringPart(text)) }
		out([]byte(`"`))
	} else {
		v.out = func(text []byte) { v.all = append(v.all, text...) }
	}
	end := newMarks(f.end)
	for {
		if r.scan(end, v.add) == "" {
			v.flush()
			if k == isString {
				out([]byte(`"`))
			} else {
				out(c.tool.typed(s, string(v.all)))
			}
			return false
		}
		n := r.spaces(0)
		if _, more := r.at(n); !more || r.has(f.key, n) || f.ends(r, n) {
			break
		}
		v.add([]byte(f.end)) // a tag inside the value
	}
	if k == isString {
		out([]byte(`"`))
	} else {
		out(c.tool.typed(s, string(v.all)))
	}
	return true
}

// lineValue passes on a value that may stand on lines of its own: then its first and its last line end belong to the form.
type lineValue struct {
	out   func([]byte)
	lines bool
	begun bool
	held  bool // a line end that may be the last
	all   []byte
}

func (v *lineValue) add(text []byte) {
	if len(text) == 0 {
		return
	}
	if !v.begun {
		v.begun = true
		if v.lines = v.lines && text[0] == '\n'; v.lines {
			text = text[1:]
		}
	}
	if !v.lines {
		v.out(text)
		return
	}
	if len(text) == 0 {
		return
	}
	v.flush()
	if v.held = text[len(text)-1] == '\n'; v.held {
		text = text[:len(text)-1]
	}
	v.out(text)
}

// flush writes the line end that is held back.
func (v *lineValue) flush() {
	if v.held {
		v.out([]byte("\n"))
		v.held = false
	}
}

func (f *parameterCalls) write(w *writer, t *Tool) *grammar.Expr {
	line := ""
	if f.lines && !f.oneLine {
		line = "\n"
	}
	head := f.before + f.open + t.Name + f.nameWritten
	if f.header != nil {
		head = f.header(t.Name) + head
	}
	argument := func(name string, s jsontext.Value) *grammar.Expr {
		key := name
		if f.attribute != nil {
			key += f.attribute(t.kinds(s, 0))
		}
		return grammar.Seq(grammar.Literal(f.gap+f.key+key+f.keyEnd+f.written+line), w.plain(t, s, f.end), grammar.Literal(line+f.end))
	}
	return grammar.Seq(grammar.Literal(head), w.each(t, "", argument), grammar.Literal(f.gap+f.close+f.after))
}
