package answer

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"terrace/grammar"
)

// pythonCalls are calls as Python writes them, in a list or on lines of their own: [f(a="x", b=[1]), g()].
type pythonCalls struct {
	open, close []string
	list        bool
	objects     *objectCalls // a list of objects between the same marks
}

func (f *pythonCalls) openers() []string { return f.open }
func (f *pythonCalls) closers() []string { return f.close }

func (f *pythonCalls) read(p *parser, opener string) bool {
	r := &p.r
	r.space()
	isList := r.take("[")
	for first := true; ; first = false {
		r.space()
		if !first {
			r.keep = r.pos
		}
		if !f.one(p) {
			if first && f.objects != nil {
				r.pos = r.keep
				return f.objects.read(p, opener)
			}
			if !first {
				r.pos, r.keep, p.broken = r.keep, -1, isList
			}
			return !first
		}
		n := r.spaces(0)
		switch b, _ := r.at(n); {
		case isList && b == ']':
			r.pos += n + 1
			return true
		case b == ',' && isList:
			r.pos += n + 1
		case b == 0 || isList || !isWord(b):
			p.broken = p.broken || isList
			return true
		}
	}
}

// one reads a call.
func (f *pythonCalls) one(p *parser) bool {
	r := &p.r
	name := r.run(isNameByte, maxName)
	if name == "" || !r.take("(") {
		return false
	}
	t := p.tool(strings.TrimSuffix(name, ".call")) // as Llama 3 calls built-in tools
	if t == nil {
		return false
	}
	c := p.start(t)
	for first := true; ; first = false {
		r.space()
		if r.take(")") {
			c.end(true)
			return true
		}
		if !first {
			if !r.take(",") {
				break
			}
			r.space()
		}
		name := r.run(isWord, maxName)
		r.space()
		if name == "" || !r.take("=") {
			break
		}
		r.space()
		out, _ := c.member(name)
		if !r.python(out, 0) {
			break
		}
	}
	c.end(false)
	return true
}

func (f *pythonCalls) write(w *writer, t *Tool) *grammar.Expr {
	left, right := "", ""
	if len(f.open) > 0 {
		left, right = f.open[0], f.close[0]
	}
	if f.list {
		left, right = left+"[", "]"+right
	}
	argument := func(name string, s jsontext.Value) *grammar.Expr {
		return grammar.Seq(grammar.Literal(name+"="), w.json(t, s))
	}
	return grammar.Seq(grammar.Literal(left+t.Name+"("), w.each(t, ", ", argument), grammar.Literal(")"+right))
}
