package jinja

// flow says how a list of statements ended.
type flow uint8

const (
	flowOn flow = iota
	flowBreak
	flowContinue
)

func (r *run) statements(list []stmt, s *scope) flow {
	for _, st := range list {
		if f := r.statement(st, s); f != flowOn {
			return f
		}
	}
	return flowOn
}

func (r *run) statement(st stmt, s *scope) flow {
	r.charge(1)
	switch st := st.(type) {
	case *dataStmt:
		r.write(st.text)
	case *outputStmt:
		r.write(r.str(r.eval(st.of, s)))
	case *ifStmt:
		for _, b := range st.branches {
			if b.test == nil || truth(r.eval(b.test, s)) {
				return r.statements(b.body, s)
			}
		}
	case *forStmt:
		return r.forLoop(st, s, st.of, nil, 0)
	case *setStmt:
		r.assign(st.target, r.eval(st.value, s), s)
	case *setBlock:
		var v any = r.captured(func() { r.statements(st.body, s.child(st.missing...)) })
		if st.filter != nil {
			v = r.applyFilter(st.filter, v, s)
		}
		r.assign(st.target, v, s)
	case *withStmt:
		inner := s.child(st.missing...)
		for i, t := range st.targets {
			r.assign(t, r.eval(st.values[i], s), inner)
		}
		return r.statements(st.body, inner)
	case *macroStmt:
		s.set(st.name, &macroValue{st.name, st.sig, s})
	case *callStmt:
		call := st.call.(*callExpr)
		args, list := r.arguments(call.args, s)
		list = append(list, named{"caller", &macroValue{"caller", st.sig, s}})
		r.write(r.str(r.call(r.eval(call.of, s), args, list)))
	case *filterStmt:
		body := r.captured(func() { r.statements(st.body, s.child(st.missing...)) })
		r.write(r.str(r.applyFilter(st.filter, body, s)))
	case *scopeStmt:
		r.statements(st.body, s.child(st.missing...))
	case *breakStmt:
		return flowBreak
	case *continueStmt:
		return flowContinue
	}
	return flowOn
}

// assign sets a target of set, for or with.
func (r *run) assign(target expr, v any, s *scope) {
	switch t := target.(type) {
	case *nameExpr:
		s.set(t.name, v)
	case *nsTarget:
		ns, ok := s.get(t.name).(*namespaceValue)
		if !ok {
			throw("cannot assign attribute on non-namespace object")
		}
		ns.vars.Set(t.attr, v)
	case *tupleExpr:
		items := r.iterate(v)
		if len(items) > len(t.items) {
			throw("too many values to unpack (expected %d)", len(t.items))
		}
		if len(items) < len(t.items) {
			throw("not enough values to unpack (expected %d, got %d)", len(t.items), len(items))
		}
		for i, one := range t.items {
			r.assign(one, items[i], s)
		}
	}
}

// loopValue is the variable loop.
type loopValue struct {
	items   []any
	index   int
	depth   int
	changed []any                         // of the last changed()
	again   func(v any, depth int) string // of a recursive loop
}

// forLoop runs a loop over of, or over v where of is nil (a recursive call). What it returns is how its else ended,
// which may leave the loop around.
func (r *run) forLoop(st *forStmt, s *scope, of expr, v any, depth int) flow {
	if of != nil {
		v = r.eval(of, s)
	}
	items := r.iterate(v)
	if st.test != nil {
		var kept []any
		for _, x := range items {
			r.charge(1)
			inner := s.child()
			r.assign(st.target, x, inner)
			if truth(r.eval(st.test, inner)) {
				kept = append(kept, x)
			}
		}
		items = kept
	}
	loop := &loopValue{items: items, depth: depth}
	if st.recursive {
		loop.again = func(v any, depth int) string {
			defer r.enter()()
			return r.captured(func() { r.forLoop(st, s, nil, v, depth) })
		}
	}
	whole := false // an iteration ran to its end: else is for loops without one
	for i, x := range items {
		r.charge(1)
		loop.index = i
		inner := s.child(st.missing...)
		inner.set("loop", loop)
		r.assign(st.target, x, inner)
		f := r.statements(st.body, inner)
		if f == flowBreak {
			break
		}
		whole = whole || f == flowOn
	}
	if !whole {
		return r.statements(st.otherwise, s.child(st.missingElse...))
	}
	return flowOn
}

func (l *loopValue) attr(name string) (any, bool) {
	n, i := int64(len(l.items)), int64(l.index)
	switch name {
	case "index":
		return i + 1, true
	case "index0":
		return i, true
	case "revindex":
		return n - i, true
	case "revindex0":
		return n - i - 1, true
	case "first":
		return i == 0, true
	case "last":
		return i == n-1, true
	case "length":
		return n, true
	case "depth":
		return int64(l.depth + 1), true
	case "depth0":
		return int64(l.depth), true
	case "previtem":
		if i == 0 {
			return &undefined{"there is no previous item"}, true
		}
		return l.items[i-1], true
	case "nextitem":
		if i == n-1 {
			return &undefined{"there is no next item"}, true
		}
		return l.items[i+1], true
	case "cycle":
		return &builtin{name: "cycle", call: func(_ *run, args []any, _ []named) any {
			if len(args) == 0 {
				throw("no items for cycling given")
			}
			return args[l.index%len(args)]
		}}, true
	case "changed":
		return &builtin{name: "changed", call: func(r *run, args []any, _ []named) any {
			if l.changed != nil && r.equal(newTuple(l.changed...), newTuple(args...)) {
				return false
			}
			l.changed = append([]any{}, args...)
			return true
		}}, true
	}
	return nil, false
}

// callMacro binds arguments as jinja2 does and returns what the body writes.
func (r *run) callMacro(m *macroValue, args []any, list []named) any {
	defer r.enter()()
	sig := m.sig
	s := m.scope.child(sig.missing...)
	given := map[string]any{}
	extra := NewDict()
	for _, n := range list {
		if _, ok := given[n.name]; ok {
			throw("got multiple values for keyword argument %s", pythonQuote(n.name))
		}
		given[n.name] = n.value
	}
	for i, name := range sig.names {
		v, byName := given[name]
		delete(given, name)
		switch {
		case i < len(args) && byName:
			throw("macro %s() got multiple values for argument %s", m.name, pythonQuote(name))
		case i < len(args):
			v = args[i]
		case byName:
		case i >= len(sig.names)-len(sig.defaults):
			v = r.eval(sig.defaults[i-len(sig.names)+len(sig.defaults)], s)
		default:
			v = &undefined{sprintf("parameter %s was not provided", pythonQuote(name))}
		}
		s.set(name, v)
	}
	if sig.caller {
		v, ok := given["caller"]
		if !ok {
			v = &undefined{"No caller defined"}
		}
		delete(given, "caller")
		s.set("caller", v)
	}
	for _, n := range list {
		if v, ok := given[n.name]; ok {
			if !sig.kwargs {
				if n.name == "caller" {
					throw("macro %s was invoked with two values for the special caller argument. This is most likely a bug.", pythonQuote(m.name))
				}
				throw("macro %s takes no keyword argument %s", pythonQuote(m.name), pythonQuote(n.name))
			}
			extra.Set(n.name, v)
		}
	}
	if sig.kwargs {
		s.set("kwargs", extra)
	}
	if sig.varargs {
		s.set("varargs", newTuple(args[min(len(args), len(sig.names)):]...))
	} else if len(args) > len(sig.names) {
		throw("macro %s takes not more than %d argument(s)", pythonQuote(m.name), len(sig.names))
	}
	return r.captured(func() { r.statements(sig.body, s) })
}
