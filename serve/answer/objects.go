package answer

import (
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"terrace/grammar"
)

// objectCalls are JSON objects with a name and arguments: one, several, or a list of them, between marks.
type objectCalls struct {
	open, close     []string
	fence           []string // what may stand between the opening mark and the JSON
	name, arguments string   // what the members are called; names of other forms are read too
	list            bool     // the model is taught to write a list
	keyed           bool     // {NAME: ARGUMENTS}
	between         string   // before the first call, behind the opening mark
	after           string   // behind the last
}

var (
	nameMembers     = []string{"name", "tool_name", "function"}
	argumentMembers = []string{"arguments", "parameters", "args"}
)

func (f *objectCalls) openers() []string { return f.open }
func (f *objectCalls) closers() []string { return f.close }

func (f *objectCalls) read(p *parser, opener string) bool {
	r := &p.r
	r.space()
	if r.takeAny(f.fence) != "" {
		r.space()
	}
	isList := r.take("[")
	for first := true; ; first = false {
		r.space()
		if !first {
			r.keep = r.pos
		}
		if !f.object(p, opener == "") {
			if !first {
				r.pos, r.keep, p.broken = r.keep, -1, true
			}
			return !first
		}
		n := r.spaces(0)
		b, _ := r.at(n)
		switch {
		case isList && b == ']':
			r.pos += n + 1
			return true
		case b == ',' || b == ';' && !isList:
			m := n + 1 + r.spaces(n+1)
			if next, _ := r.at(m); next != '{' {
				return true
			}
			r.pos += m
		case b != '{' || isList:
			p.broken = p.broken || isList
			return true
		}
	}
}

// oneObject is what has been read of an object.
type oneObject struct {
	tool   *Tool
	call   *call
	failed bool           // inside the arguments
	held   jsontext.Value // arguments that came before the name, or not as an object
}

// object reads one call. bare: it stands without marks, so that only what cannot be anything else is a call.
func (f *objectCalls) object(p *parser, bare bool) bool {
	if p.r.peek() != '{' {
		return false
	}
	var o oneObject
	whole := p.r.members(func(member string) bool { return f.member(p, &o, member, bare) })
	switch {
	case o.failed:
		o.call.end(false)
		return true
	case o.call != nil:
		o.call.end(true)
		p.broken = p.broken || !whole
		return true
	case !whole || o.tool == nil || bare && o.held == nil:
		return false
	}
	held := over(o.held)
	switch o.held.Kind() {
	case '"':
		held = over([]byte(strings.TrimSpace(unquote(o.held))))
		if !jsontext.Value(held.buf).IsValid() || jsontext.Value(held.buf).Kind() != '{' {
			return false
		}
	case '{':
	case 'n', 0:
		held = over([]byte("{}"))
	default:
		return false
	}
	c := p.start(o.tool)
	c.end(c.members(held))
	return true
}

func (f *objectCalls) member(p *parser, o *oneObject, member string, bare bool) bool {
	r := &p.r
	next := r.peek()
	switch {
	case f.keyed && o.tool == nil && next == '{':
		if o.tool = p.tool(member); o.tool == nil {
			return false
		}
		return o.begin(p)
	case member == "function" && next == '{':
		return r.members(func(member string) bool { return f.member(p, o, member, bare) })
	case slices.Contains(nameMembers, member) && next == '"' && o.tool == nil:
		name, ok := r.jsonString()
		if bare && !slices.ContainsFunc(p.tools, func(t Tool) bool { return t.Name == name }) {
			return false // JSON that is an answer
		}
		o.tool = p.tool(name)
		return ok && o.tool != nil
	case slices.Contains(argumentMembers, member) && o.call == nil:
		if next == '{' && o.tool != nil {
			return o.begin(p)
		}
		var ok bool
		o.held, ok = r.jsonValue()
		return ok
	}
	return r.json(drop)
}

// begin reads the arguments of a call whose tool is known.
func (o *oneObject) begin(p *parser) bool {
	o.call = p.start(o.tool)
	o.failed = !o.call.members(&p.r)
	return !o.failed
}

func (f *objectCalls) write(w *writer, t *Tool) *grammar.Expr {
	left, right := f.between, f.after
	if len(f.open) > 0 {
		left = f.open[0] + left
	}
	if f.list {
		left, right = left+"[", "]"+right
	}
	head := `{"` + f.name + `": ` + string(quote(t.Name)) + `, "` + f.arguments + `": `
	if f.keyed {
		head = "{" + string(quote(t.Name)) + ": "
	}
	return grammar.Seq(grammar.Literal(left+head), w.arguments(t), grammar.Literal("}"+right))
}
