package jinja

import (
	"math/big"
	"slices"
	"strconv"
)

// tuple reads an expression, or several with commas between them.
func (p *parser) tuple(cond bool, ends []string) expr {
	var items []expr
	tuple := false
	for {
		if tuple && (p.now().kind == tokEnd || p.isOp(")") || p.now().kind == tokName && slices.Contains(ends, p.now().text)) {
			break
		}
		items = append(items, p.expression(cond))
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

func (p *parser) expression(cond bool) expr {
	defer p.nest()()
	if !cond {
		return p.or()
	}
	unknown := len(p.unknown)
	e := p.or()
	for p.skipName("if") {
		p.unknown = p.unknown[:unknown]
		test := p.or()
		var no expr
		if p.skipName("else") {
			no = p.expression(true)
		}
		p.unknown = p.unknown[:unknown]
		e = &condExpr{test, e, no}
	}
	return e
}

// chain bounds how many operands stand in a row: the tree leans to the left, and evaluating it goes as deep.
type chain int

func (c *chain) link() {
	if *c++; *c > maxChain {
		panic(thrown{limitError("more than %d operands in a row", maxChain)})
	}
}

func (p *parser) or() expr {
	var c chain
	left := p.and()
	for p.skipName("or") {
		c.link()
		left = &orExpr{left, p.and()}
	}
	return left
}

func (p *parser) and() expr {
	var c chain
	left := p.not()
	for p.skipName("and") {
		c.link()
		left = &andExpr{left, p.not()}
	}
	return left
}

func (p *parser) not() expr {
	if p.skipName("not") {
		defer p.nest()()
		return &notExpr{p.not()}
	}
	return p.compare()
}

func (p *parser) compare() expr {
	left := p.sum()
	var ops []compareOp
	for {
		switch t := p.now(); {
		case t.kind == tokOp && slices.Contains([]string{"==", "!=", "<", "<=", ">", ">="}, t.text):
			p.at++
			ops = append(ops, compareOp{t.text, p.sum()})
			continue
		case p.skipName("in"):
			ops = append(ops, compareOp{"in", p.sum()})
			continue
		case p.isName("not") && p.ahead().kind == tokName && p.ahead().text == "in":
			p.at += 2
			ops = append(ops, compareOp{"not in", p.sum()})
			continue
		}
		break
	}
	if ops == nil {
		return left
	}
	return &compareExpr{left, ops}
}

// binary reads operands of one rank with operators between them.
func (p *parser) binary(operand func() expr, ops ...string) expr {
	var c chain
	left := operand()
	for p.now().kind == tokOp && slices.Contains(ops, p.now().text) {
		c.link()
		op := p.next().text
		left = &binaryExpr{op, left, operand()}
	}
	return left
}

func (p *parser) sum() expr { return p.binary(p.concat, "+", "-") }

func (p *parser) concat() expr {
	first := p.product()
	if !p.isOp("~") {
		return first
	}
	parts := []expr{first}
	for p.skipOp("~") {
		parts = append(parts, p.product())
	}
	return &concatExpr{parts}
}

func (p *parser) product() expr { return p.binary(p.power, "*", "/", "//", "%") }
func (p *parser) power() expr   { return p.binary(func() expr { return p.unary(true) }, "**") }

func (p *parser) unary(filters bool) expr {
	defer p.nest()()
	var e expr
	if p.isOp("-") || p.isOp("+") {
		op := p.next().text
		e = &unaryExpr{op, p.unary(false)}
	} else {
		e = p.primary()
	}
	e = p.postfix(e)
	if filters {
		e = p.filters(e)
	}
	return e
}

func (p *parser) primary() expr {
	switch t := p.next(); t.kind {
	case tokName:
		switch t.text {
		case "true", "True":
			return &constExpr{true}
		case "false", "False":
			return &constExpr{false}
		case "none", "None":
			return &constExpr{nil}
		}
		if p.sig != nil {
			switch t.text {
			case "varargs":
				p.sig.varargs = true
			case "kwargs":
				p.sig.kwargs = true
			case "caller":
				p.sig.caller = true
			}
		}
		return &nameExpr{t.text}
	case tokString:
		text := t.text
		for p.now().kind == tokString {
			text += p.next().text
		}
		return &constExpr{text}
	case tokInt:
		n, ok := new(big.Int).SetString(t.text, 0)
		if !ok || len(t.text) > 4000 {
			p.fail("%s is no number", t.text)
		}
		return &constExpr{fromBig(n)}
	case tokFloat:
		x, err := strconv.ParseFloat(t.text, 64)
		if err != nil {
			p.fail("the number %s is too large", t.text)
		}
		return &constExpr{x}
	case tokOp:
		switch t.text {
		case "(":
			if p.skipOp(")") {
				return &tupleExpr{}
			}
			e := p.tuple(true, nil)
			p.wantOp(")")
			return e
		case "[":
			return &listExpr{p.items("]")}
		case "{":
			return p.dict()
		}
	}
	p.at = max(p.at-1, 0)
	p.fail("expected an expression, got %s", p.now())
	return nil
}

func (p *parser) items(end string) []expr {
	var items []expr
	for !p.isOp(end) {
		if len(items) > 0 {
			p.wantOp(",")
			if p.isOp(end) {
				break
			}
		}
		items = append(items, p.expression(true))
	}
	p.wantOp(end)
	return items
}

func (p *parser) dict() expr {
	d := &dictExpr{}
	for !p.isOp("}") {
		if len(d.keys) > 0 {
			p.wantOp(",")
			if p.isOp("}") {
				break
			}
		}
		d.keys = append(d.keys, p.expression(true))
		p.wantOp(":")
		d.values = append(d.values, p.expression(true))
	}
	p.wantOp("}")
	return d
}

func (p *parser) postfix(e expr) expr {
	for c := chain(0); ; c.link() {
		switch {
		case p.skipOp("."):
			e = p.attribute(e)
		case p.skipOp("["):
			e = p.subscript(e)
		case p.isOp("("):
			e = &callExpr{e, p.arguments()}
		default:
			return e
		}
	}
}

func (p *parser) attribute(e expr) expr {
	switch t := p.next(); t.kind {
	case tokName:
		return &attrExpr{e, t.text}
	case tokInt:
		n, err := strconv.ParseInt(t.text, 0, 64)
		if err == nil {
			return &itemExpr{e, &constExpr{n}}
		}
	}
	p.fail("expected name or number")
	return nil
}

func (p *parser) subscript(e expr) expr {
	var keys []expr
	for !p.isOp("]") {
		if len(keys) > 0 {
			p.wantOp(",")
		}
		keys = append(keys, p.subscribed())
	}
	p.wantOp("]")
	if len(keys) == 1 {
		return &itemExpr{e, keys[0]}
	}
	return &itemExpr{e, &tupleExpr{keys}}
}

func (p *parser) subscribed() expr {
	s := &sliceExpr{}
	if !p.isOp(":") {
		s.start = p.expression(true)
		if !p.isOp(":") {
			return s.start
		}
	}
	p.wantOp(":")
	if !p.isOp(":") && !p.isOp("]") && !p.isOp(",") {
		s.stop = p.expression(true)
	}
	if p.skipOp(":") && !p.isOp("]") && !p.isOp(",") {
		s.step = p.expression(true)
	}
	return s
}

func (p *parser) arguments() (a arguments) {
	p.wantOp("(")
	first := true
	for !p.isOp(")") {
		if !first {
			p.wantOp(",")
			if p.isOp(")") {
				break
			}
		}
		first = false
		switch {
		case a.more != nil, a.rest != nil && (p.isOp("*") || !p.isOp("**") && p.ahead().text != "="):
			p.fail("invalid syntax for function call expression")
		case p.skipOp("*"):
			a.rest = p.expression(true)
		case p.skipOp("**"):
			a.more = p.expression(true)
		case p.now().kind == tokName && p.ahead().kind == tokOp && p.ahead().text == "=":
			name := p.next().text
			p.at++
			a.named = append(a.named, keyword{name, p.expression(true)})
		case a.named != nil:
			p.fail("invalid syntax for function call expression")
		default:
			a.list = append(a.list, p.expression(true))
		}
	}
	p.wantOp(")")
	return a
}

// filters reads filters, tests and calls behind an operand.
func (p *parser) filters(e expr) expr {
	for c := chain(0); ; c.link() {
		switch {
		case p.isOp("|"):
			e = p.filter(e, false)
		case p.isName("is"):
			e = p.test(e)
		case p.isOp("("):
			e = &callExpr{e, p.arguments()}
		default:
			return e
		}
	}
}

// filter reads one or more filters; inline says that the first has no "|" before it.
func (p *parser) filter(e expr, inline bool) expr {
	for c := chain(0); inline || p.isOp("|"); c.link() {
		if !inline {
			p.at++
		}
		inline = false
		f := &filterExpr{of: e, name: p.dotted()}
		if _, ok := filters[f.name]; !ok {
			p.notThere("no filter named %q", f.name)
		}
		if p.isOp("(") {
			f.args = p.arguments()
		}
		e = f
	}
	return e
}

func (p *parser) test(e expr) expr {
	p.wantName("is")
	negated := p.skipName("not")
	t := &testExpr{of: e, name: p.dotted()}
	if _, ok := tests[t.name]; !ok {
		p.notThere("no test named %q", t.name)
	}
	switch now := p.now(); {
	case p.isOp("("):
		t.args = p.arguments()
	case p.isName("is"):
		p.fail("you cannot chain multiple tests with is")
	case now.kind == tokName && now.text != "else" && now.text != "or" && now.text != "and",
		now.kind == tokString, now.kind == tokInt, now.kind == tokFloat, p.isOp("["), p.isOp("{"):
		t.args.list = []expr{p.postfix(p.primary())}
	}
	if negated {
		return &notExpr{t}
	}
	return t
}

// dotted reads the name of a filter or test.
func (p *parser) dotted() string {
	name := p.anyName()
	for p.skipOp(".") {
		name += "." + p.anyName()
	}
	return name
}

// notThere notes a filter or test that nobody knows: an error where the template is read, or, inside of an if, where it
// is used.
func (p *parser) notThere(format string, args ...any) {
	if !p.soft {
		p.unknown = append(p.unknown, &SyntaxError{Line: p.now().line, Text: sprintf(format, args...)})
	}
}

// firm parses what makes a scope of its own inside of an if.
func (p *parser) firm(soft bool, body func() []stmt) []stmt {
	around := p.soft
	p.soft = soft
	list := body()
	p.soft = around
	return list
}
