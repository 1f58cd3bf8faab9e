package answer

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"terrace/grammar"
)

// caller is a form of calls.
type caller interface {
	// openers are the marks that calls begin with; none: a call can only be a whole answer.
	openers() []string
	// closers are marks that may follow a call and belong to it.
	closers() []string
	// read reads what follows an opener. False: that is no call of a given tool, and no event was made; the text is read again.
	read(p *parser, opener string) bool
	// write is a call of a tool as the model has to write it.
	write(w *writer, t *Tool) *grammar.Expr
}

// call is a call that is being read.
type call struct {
	p     *parser
	tool  *Tool
	index int
	seen  []string // names of arguments that were written
}

// tool is the given one of a name; nil where there is none, which is told once.
func (p *parser) tool(name string) *Tool {
	for i := range p.tools {
		if p.tools[i].Name == name {
			return &p.tools[i]
		}
	}
	isName := name != "" && !strings.ContainsFunc(name, func(r rune) bool { return r >= utf8.RuneSelf || !isNameByte(byte(r)) })
	if isName && !slices.Contains(p.unknown, name) && len(p.unknown) < 16 {
		p.unknown = append(p.unknown, name)
		p.out.one(Event{Kind: Problem, Index: -1, Text: fmt.Sprintf("call of %.80q, a tool that was not given", name)})
	}
	return nil
}

// start begins a call: what was read of it is not read again.
func (p *parser) start(t *Tool) *call {
	c := &call{p: p, tool: t, index: p.calls}
	p.calls++
	p.r.keep = -1
	p.out.one(Event{Kind: CallStart, Index: c.index, Name: t.Name})
	c.write("{")
	return c
}

func (c *call) write(text string) { c.p.out.add(CallArguments, c.index, []byte(text)) }

func (c *call) put(text []byte) { c.p.out.add(CallArguments, c.index, text) }

func drop([]byte) {}

func (c *call) problem(format string, args ...any) {
	c.p.out.one(Event{Kind: Problem, Index: c.index, Text: fmt.Sprintf(format, args...)})
}

// member begins an argument. It returns where its value goes (nowhere, if the tool does not take it) and its schema.
func (c *call) member(name string) (out func([]byte), s jsontext.Value) {
	s, ok := c.tool.property(c.tool.Schema, name, 0)
	switch {
	case slices.Contains(c.seen, name):
		c.problem("argument %.80q is given twice, the second is left out", name)
		return drop, s
	case !ok:
		c.problem("argument %.80q is none of the tool's, it is left out", name)
		return drop, s
	}
	if len(c.seen) > 0 {
		c.write(", ")
	}
	c.seen = append(c.seen, name)
	c.put(quote(name))
	c.write(": ")
	return c.put, s
}

// end ends a call; whole: its form was kept to.
func (c *call) end(whole bool) {
	switch {
	case whole:
		c.write("}")
	case c.p.r.peek() == 0 && c.p.r.ended:
		c.problem("the text ends inside the call")
	default:
		c.problem("the call breaks its form")
		c.p.broken = true
	}
	c.p.out.one(Event{Kind: CallEnd, Index: c.index, Name: c.tool.Name})
}

// jsonArguments reads a call's arguments as a JSON object; false where they do not begin like one.
func (p *parser) jsonArguments(t *Tool) bool {
	if p.r.peek() != '{' {
		return false
	}
	c := p.start(t)
	c.end(c.members(&p.r))
	return true
}

// members reads the members of a JSON object as arguments.
func (c *call) members(r *reader) bool {
	return r.members(func(name string) bool {
		out, _ := c.member(name)
		return r.json(out)
	})
}
