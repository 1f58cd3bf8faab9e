package jinja

// refuseUnhashable fails where jinja2's compiler does: it computes constants beforehand within operators, filters, tests,
// calls and accesses, whether that is ever rendered or not. Elsewhere such a dict fails when it is made.
func (p *parser) refuseUnhashable(body []stmt) {
	for _, st := range body {
		switch st := st.(type) {
		case *outputStmt:
			p.fold(st.of, false, st.line)
		case *forStmt:
			p.foldAll(st.of, st.test)
			p.refuseUnhashable(st.body)
			p.refuseUnhashable(st.otherwise)
		case *ifStmt:
			for _, b := range st.branches {
				p.foldAll(b.test)
				p.refuseUnhashable(b.body)
			}
		case *setStmt:
			p.foldAll(st.value)
		case *setBlock:
			p.foldAll(st.filter)
			p.refuseUnhashable(st.body)
		case *withStmt:
			p.foldAll(st.values...)
			p.refuseUnhashable(st.body)
		case *macroStmt:
			p.foldAll(st.sig.defaults...)
			p.refuseUnhashable(st.sig.body)
		case *callStmt:
			p.foldAll(st.call)
			p.foldAll(st.sig.defaults...)
			p.refuseUnhashable(st.sig.body)
		case *filterStmt:
			p.foldAll(st.filter)
			p.refuseUnhashable(st.body)
		case *scopeStmt:
			p.refuseUnhashable(st.body)
		}
	}
}

func (p *parser) foldAll(list ...expr) {
	for _, e := range list {
		p.fold(e, false, p.now().line)
	}
}

// fold checks the dicts in an expression; within says that it is part of one that is computed beforehand.
func (p *parser) fold(e expr, within bool, line int) {
	switch e.(type) {
	case nil, *constExpr, *nameExpr:
		return
	case *tupleExpr, *listExpr, *dictExpr, *sliceExpr:
	default:
		within = true
	}
	for _, x := range parts(e) {
		p.fold(x, within, line)
	}
	if within {
		p.literal(e, line)
	}
}

// literal reports whether an expression is a constant without operators. Its values are made in order: what is no constant ends that
// before a dict behind it.
func (p *parser) literal(e expr, line int) bool {
	all := func(items []expr) bool {
		for _, x := range items {
			if !p.literal(x, line) {
				return false
			}
		}
		return true
	}
	switch e := e.(type) {
	case *constExpr:
		return true
	case *listExpr:
		return all(e.items)
	case *tupleExpr:
		return all(e.items)
	case *dictExpr:
		for i, key := range e.keys {
			if !p.literal(key, line) || !p.literal(e.values[i], line) {
				return false
			}
			if kind := unhashable(key); kind != "" {
				panic(thrown{&SyntaxError{Line: line, Text: "unhashable type: '" + kind + "'"}})
			}
		}
		return true
	}
	return false
}

// unhashable is the kind of a literal that cannot be a key, or that a tuple of it has; "" = it can be one.
func unhashable(key expr) string {
	switch key := key.(type) {
	case *listExpr:
		return "list"
	case *dictExpr:
		return "dict"
	case *tupleExpr:
		for _, x := range key.items {
			if kind := unhashable(x); kind != "" {
				return kind
			}
		}
	}
	return ""
}
