package jinja

import "slices"

// Limits of a template's source; the largest published one is a third of it.
const (
	maxSource = 256 << 10 // bytes
	maxNest   = 200       // blocks, brackets and operands in one another
	maxChain  = 600       // operators, filters and attributes in a row
)

// Template is a parsed template.
type Template struct {
	body    []stmt
	missing []string // names that begin undefined
}

// Parse reads a template's source. Its errors are *SyntaxError, or wrap ErrLimit.
func Parse(source string) (t *Template, err error) {
	if len(source) > maxSource {
		return nil, limitError("a template of %d bytes, at most %d", len(source), maxSource)
	}
	list, err := lex(source)
	if err != nil {
		return nil, err
	}
	defer caught(&err)
	p := &parser{list: list}
	body := p.statements(nil)
	if len(p.unknown) > 0 {
		return nil, p.unknown[0]
	}
	p.refuseUnhashable(body)
	return &Template{body, frame(nil, body)}, nil
}

// parser follows jinja2's parser: recursive descent over the tokens, a method for each rule of the grammar.
type parser struct {
	list  []token
	at    int
	depth int
	loops int        // for loops around, within one macro
	sig   *signature // of the macro around; nil = none

	soft    bool           // inside of an if
	unknown []*SyntaxError // filters and tests that nobody knows, outside of an if
}

func (p *parser) now() token   { return p.list[p.at] }
func (p *parser) ahead() token { return p.list[min(p.at+1, len(p.list)-1)] }

func (p *parser) next() token {
	t := p.list[p.at]
	if t.kind != tokEOF {
		p.at++
	}
	return t
}

func (p *parser) fail(format string, args ...any) {
	panic(thrown{&SyntaxError{Line: p.now().line, Text: sprintf(format, args...)}})
}

func (p *parser) isOp(op string) bool     { return p.now().kind == tokOp && p.now().text == op }
func (p *parser) isName(name string) bool { return p.now().kind == tokName && p.now().text == name }

func (p *parser) skipOp(op string) bool {
	if p.isOp(op) {
		p.at++
		return true
	}
	return false
}

func (p *parser) skipName(name string) bool {
	if p.isName(name) {
		p.at++
		return true
	}
	return false
}

func (p *parser) wantOp(op string) {
	if !p.skipOp(op) {
		p.fail("expected %q, got %s", op, p.now())
	}
}

func (p *parser) wantName(name string) {
	if !p.skipName(name) {
		p.fail("expected %q, got %s", name, p.now())
	}
}

func (p *parser) anyName() string {
	if p.now().kind != tokName {
		p.fail("expected a name, got %s", p.now())
	}
	return p.next().text
}

func (p *parser) wantEnd() {
	if p.now().kind != tokEnd {
		p.fail("expected the end of the tag, got %s", p.now())
	}
	p.at++
}

// String names a token in messages.
func (t token) String() string {
	switch t.kind {
	case tokEOF:
		return "the end of the template"
	case tokEnd:
		return "the end of the tag"
	case tokData:
		return "text"
	}
	return sprintf("%q", t.text)
}

// nest counts what stands in one another; leave with the returned function.
func (p *parser) nest() func() {
	if p.depth++; p.depth > maxNest {
		panic(thrown{limitError("blocks and brackets nest deeper than %d", maxNest)})
	}
	return func() { p.depth-- }
}

// statements reads up to a block that begins with one of ends, whose name becomes the current token; nil reads to the end.
func (p *parser) statements(ends []string) []stmt {
	defer p.nest()()
	var list []stmt
	for {
		switch t := p.next(); {
		case t.kind == tokData:
			list = append(list, &dataStmt{t.text})
		case t.kind == tokBegin && t.text == "{{":
			list = append(list, &outputStmt{p.tuple(true, nil), t.line})
			p.wantEnd()
		case t.kind == tokBegin:
			if p.now().kind == tokName && slices.Contains(ends, p.now().text) {
				return list
			}
			list = append(list, p.statement())
			p.wantEnd()
		case t.kind == tokEOF && ends == nil:
			return list
		default:
			p.fail("unexpected end of template, expected one of %v", ends)
		}
	}
}

// block reads the rest of an opening tag and the body, up to and with the end's name.
func (p *parser) block(end string) []stmt {
	body := p.upTo(end)
	p.next()
	return body
}

func (p *parser) upTo(ends ...string) []stmt {
	p.skipOp(":")
	p.wantEnd()
	return p.statements(ends)
}

func (p *parser) statement() stmt {
	switch name := p.anyName(); name {
	case "for":
		return p.forLoop()
	case "if":
		return p.ifElse()
	case "set":
		return p.set()
	case "with":
		return p.with()
	case "macro":
		return p.macro()
	case "call":
		return p.callBlock()
	case "filter":
		of := p.filter(nil, true)
		return &filterStmt{filter: of, body: p.firm(false, func() []stmt { return p.block("endfilter") })}
	case "generation":
		return &scopeStmt{body: p.inMacro(&signature{}, func() []stmt { return p.block("endgeneration") })}
	case "break", "continue":
		if p.loops == 0 {
			p.fail("%q outside of a loop", name)
		}
		if name == "break" {
			return &breakStmt{}
		}
		return &continueStmt{}
	default:
		p.fail("unknown tag %q", name)
		return nil
	}
}

func (p *parser) forLoop() stmt {
	s := &forStmt{target: p.target(false, "in")}
	p.wantName("in")
	s.of = p.tuple(false, []string{"recursive"})
	if p.skipName("if") {
		s.test = p.expression(true)
	}
	s.recursive = p.skipName("recursive")
	p.loops++
	s.body = p.firm(false, func() []stmt { return p.upTo("endfor", "else") })
	p.loops--
	if p.next().text == "else" {
		s.otherwise = p.firm(false, func() []stmt { return p.block("endfor") })
	}
	return s
}

func (p *parser) ifElse() stmt {
	s, around := &ifStmt{}, p.soft
	p.soft = true
	defer func() { p.soft = around }()
	for {
		test := p.tuple(false, nil)
		s.branches = append(s.branches, branchStmt{test, p.upTo("elif", "else", "endif")})
		switch p.next().text {
		case "elif":
			continue
		case "else":
			s.branches = append(s.branches, branchStmt{nil, p.block("endif")})
		}
		return s
	}
}

func (p *parser) set() stmt {
	target := p.target(true)
	if p.skipOp("=") {
		return &setStmt{target, p.tuple(true, nil)}
	}
	var filter expr
	if p.isOp("|") {
		filter = p.filter(nil, false)
	}
	return &setBlock{target: target, filter: filter, body: p.firm(false, func() []stmt { return p.block("endset") })}
}

func (p *parser) with() stmt {
	s := &withStmt{}
	for p.now().kind != tokEnd && p.now().kind != tokEOF {
		if len(s.targets) > 0 {
			p.wantOp(",")
		}
		s.targets = append(s.targets, p.target(false))
		p.wantOp("=")
		s.values = append(s.values, p.expression(true))
	}
	s.body = p.firm(false, func() []stmt { return p.block("endwith") })
	return s
}

// inMacro reads a body that is called: loops around it do not count, and what it uses of varargs, kwargs and caller does.
func (p *parser) inMacro(sig *signature, body func() []stmt) []stmt {
	loops, around := p.loops, p.sig
	p.loops, p.sig = 0, sig
	list := p.firm(false, body)
	p.loops, p.sig = loops, around
	return list
}

func (p *parser) macro() stmt {
	s := &macroStmt{name: p.anyName(), sig: &signature{}}
	p.signature(s.sig)
	s.sig.body = p.inMacro(s.sig, func() []stmt { return p.block("endmacro") })
	return s
}

func (p *parser) signature(sig *signature) {
	p.wantOp("(")
	for !p.isOp(")") {
		if len(sig.names) > 0 {
			p.wantOp(",")
		}
		sig.names = append(sig.names, p.anyName())
		if p.skipOp("=") {
			sig.defaults = append(sig.defaults, p.expression(true))
		} else if len(sig.defaults) > 0 {
			p.fail("non-default argument follows default argument")
		}
	}
	p.wantOp(")")
}

func (p *parser) callBlock() stmt {
	s := &callStmt{sig: &signature{}}
	if p.isOp("(") {
		p.signature(s.sig)
	}
	s.call = p.expression(true)
	if _, ok := s.call.(*callExpr); !ok {
		p.fail("expected call")
	}
	s.sig.body = p.inMacro(s.sig, func() []stmt { return p.block("endcall") })
	return s
}

// target reads what may be assigned to.
func (p *parser) target(namespace bool, ends ...string) expr {
	var items []expr
	tuple := false
	for {
		if tuple && (p.now().kind == tokEnd || p.isOp("=") || p.isOp(")") || p.now().kind == tokName && slices.Contains(ends, p.now().text)) {
			break
		}
		items = append(items, p.targetOne(namespace))
		if !p.skipOp(",") {
			break
		}
		tuple = true
	}
	if !tuple {
		return items[0]
	}
	return &tupleExpr{items}
}

func (p *parser) targetOne(namespace bool) expr {
	defer p.nest()()
	if p.skipOp("(") {
		t := p.target(namespace)
		p.wantOp(")")
		return t
	}
	name := p.anyName()
	if slices.Contains([]string{"true", "false", "none", "True", "False", "None"}, name) {
		p.fail("can't assign to %q", name)
	}
	if namespace && p.skipOp(".") {
		return &nsTarget{name, p.anyName()}
	}
	return &nameExpr{name}
}
