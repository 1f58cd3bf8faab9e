package jinja

import "strings"

// eval computes an expression.
func (r *run) eval(e expr, s *scope) any {
	r.charge(1)
	switch e := e.(type) {
	case *constExpr:
		return e.value
	case *nameExpr:
		return s.get(e.name)
	case *tupleExpr:
		l := r.newList(r.all(e.items, s))
		l.kind = kindTuple
		return l
	case *listExpr:
		return r.newList(r.all(e.items, s))
	case *dictExpr:
		d := NewDict()
		for i, k := range e.keys {
			key := r.eval(k, s)
			d.Set(key, r.eval(e.values[i], s))
		}
		r.charge(32 * d.Len())
		return d
	case *condExpr:
		switch {
		case truth(r.eval(e.test, s)):
			return r.eval(e.yes, s)
		case e.no != nil:
			return r.eval(e.no, s)
		}
		return &undefined{"the inline if-expression evaluated to false and no else section was defined."}
	case *orExpr:
		if v := r.eval(e.left, s); truth(v) {
			return v
		}
		return r.eval(e.right, s)
	case *andExpr:
		if v := r.eval(e.left, s); !truth(v) {
			return v
		}
		return r.eval(e.right, s)
	case *notExpr:
		return !truth(r.eval(e.of, s))
	case *compareExpr:
		return r.compareChain(e, s)
	case *binaryExpr:
		left := r.eval(e.left, s)
		return r.binary(e.op, left, r.eval(e.right, s))
	case *concatExpr:
		var b strings.Builder
		for _, p := range e.parts {
			t := r.str(r.eval(p, s))
			r.fits(b.Len() + len(t))
			b.WriteString(t)
		}
		return r.made(b.String())
	case *unaryExpr:
		return r.unary(e.op, r.eval(e.of, s))
	}
	return r.evalAccess(e, s)
}

// evalAccess computes what reaches into a value or applies something to it.
func (r *run) evalAccess(e expr, s *scope) any {
	switch e := e.(type) {
	case *attrExpr:
		return r.attr(r.eval(e.of, s), e.name)
	case *itemExpr:
		of := r.eval(e.of, s)
		if sl, ok := e.key.(*sliceExpr); ok {
			return r.slice(of, r.bound(sl.start, s), r.bound(sl.stop, s), r.bound(sl.step, s))
		}
		return r.item(of, r.eval(e.key, s))
	case *callExpr:
		of := r.eval(e.of, s)
		args, list := r.arguments(e.args, s)
		return r.call(of, args, list)
	case *filterExpr:
		return r.applyFilter(e, nil, s)
	case *testExpr:
		v := r.eval(e.of, s)
		args, list := r.arguments(e.args, s)
		return r.test(e.name, v, args, list)
	case *sliceExpr:
		throw("a slice stands where no slice can")
	}
	throw("%T cannot be computed", e)
	return nil
}

func (r *run) all(list []expr, s *scope) []any {
	items := make([]any, len(list))
	size := 0
	for i, e := range list {
		items[i] = r.eval(e, s)
		if t, ok := text(items[i]); ok {
			size += len(t)
			r.charge(len(t) / 16)
		}
	}
	return items
}

// bound evaluates a bound of a slice; nil = not given.
func (r *run) bound(e expr, s *scope) any {
	if e == nil {
		return nil
	}
	return r.eval(e, s)
}

func (r *run) compareChain(e *compareExpr, s *scope) any {
	left := r.eval(e.left, s)
	var result any = true
	for _, op := range e.ops {
		right := r.eval(op.right, s)
		if result = r.compare(op.op, left, right); !truth(result) {
			return result
		}
		left = right
	}
	return result
}

// arguments evaluates what a call passes.
func (r *run) arguments(a arguments, s *scope) (args []any, list []named) {
	for _, e := range a.list {
		args = append(args, r.eval(e, s))
	}
	for _, k := range a.named {
		list = append(list, named{k.name, r.eval(k.value, s)})
	}
	if a.rest != nil {
		args = append(args, r.iterate(r.eval(a.rest, s))...)
	}
	if a.more != nil {
		d, ok := r.eval(a.more, s).(*Dict)
		if !ok {
			throw("argument after ** must be a mapping")
		}
		for i, k := range d.keys {
			list = append(list, named{r.str(k), d.values[i]})
		}
	}
	return args, list
}

// call calls what can be called.
func (r *run) call(f any, args []any, list []named) any {
	r.charge(1)
	switch f := f.(type) {
	case *builtin:
		return f.call(r, args, list)
	case *macroValue:
		return r.callMacro(f, args, list)
	case *loopValue:
		if f.again == nil {
			throw("The loop must have the 'recursive' marker to be called recursively.")
		}
		if len(args) != 1 {
			throw("loop() takes one value")
		}
		return f.again(args[0], f.depth+1)
	case *joinerValue:
		if !f.used {
			f.used = true
			return ""
		}
		return f.sep
	case *undefined:
		throw("%s", f.what)
	}
	throw("%s object is not callable", pythonQuote(typeName(f)))
	return nil
}

// applyFilter applies filters; the innermost works on body where it has no operand.
func (r *run) applyFilter(e expr, body any, s *scope) any {
	f := e.(*filterExpr)
	var v any
	if inner, ok := f.of.(*filterExpr); ok {
		v = r.applyFilter(inner, body, s)
	} else if f.of != nil {
		v = r.eval(f.of, s)
	} else {
		v = body
	}
	args, list := r.arguments(f.args, s)
	return r.filter(f.name, v, args, list)
}
