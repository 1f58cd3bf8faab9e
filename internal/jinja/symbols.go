package jinja

import "maps"

// symbols says which names a scope refers to, as jinja2's IdentifierTracking does. A name that a scope sets before it
// reads it, and that no scope around refers to, is undefined there until it is set: the variable of that name that was
// passed to the template is not seen, not even by loops and macros that stand before the assignment.
type symbols struct {
	around *symbols
	refs   map[string]ref
	stores map[string]bool
}

// ref is what a name is when its scope begins.
type ref uint8

const (
	refOuter   ref = iota // looked up in the scopes around, then among the variables passed
	refMissing            // undefined
)

func newSymbols(around *symbols, params ...string) *symbols {
	s := &symbols{around, map[string]ref{}, map[string]bool{}}
	for _, p := range params {
		s.refs[p] = refOuter
	}
	return s
}

func (s *symbols) knows(name string) bool {
	for ; s != nil; s = s.around {
		if _, ok := s.refs[name]; ok {
			return true
		}
	}
	return false
}

func (s *symbols) load(name string) {
	if !s.knows(name) {
		s.refs[name] = refOuter
	}
}

func (s *symbols) store(name string) {
	s.stores[name] = true
	if _, ok := s.refs[name]; ok {
		return
	}
	s.refs[name] = refMissing
	if s.around.knows(name) {
		s.refs[name] = refOuter
	}
}

// branches joins the copies of s that the branches of an if made: what only some of them set is looked up outside.
func (s *symbols) branches(list ...*symbols) {
	count := map[string]int{}
	for _, b := range list {
		for name := range b.stores {
			if !s.stores[name] {
				count[name]++
			}
		}
	}
	for _, b := range list {
		maps.Copy(s.refs, b.refs)
		maps.Copy(s.stores, b.stores)
	}
	for name, n := range count {
		if n < len(list) {
			s.refs[name] = refOuter
		}
	}
}

// missing lists the names that begin undefined.
func (s *symbols) missing() (names []string) {
	for name, r := range s.refs {
		if r == refMissing {
			names = append(names, name)
		}
	}
	return names
}

// frame analyses a body that has a scope of its own, and those within it; it returns the names that begin undefined.
func frame(around *symbols, body []stmt, params ...string) []string {
	s := newSymbols(around, params...)
	for _, st := range body {
		s.visit(st)
	}
	for _, st := range body {
		s.inside(st)
	}
	return s.missing()
}

// visit notes what a statement reads and sets in the scope it stands in.
func (s *symbols) visit(st stmt) {
	switch st := st.(type) {
	case *outputStmt:
		s.reads(st.of)
	case *forStmt:
		s.reads(st.of)
	case *ifStmt:
		s.visitIf(st)
	case *setStmt:
		s.reads(st.value)
		s.writes(st.target)
	case *setBlock:
		s.writes(st.target)
	case *withStmt:
		for _, v := range st.values {
			s.reads(v)
		}
	case *macroStmt:
		s.store(st.name)
	case *callStmt:
		s.reads(st.call)
	case *filterStmt:
		s.reads(st.filter)
	}
}

func (s *symbols) visitIf(st *ifStmt) {
	s.reads(st.branches[0].test)
	branch := func(f func(b *symbols)) *symbols {
		b := &symbols{s.around, maps.Clone(s.refs), maps.Clone(s.stores)}
		f(b)
		return b
	}
	body := func(list []stmt) func(b *symbols) {
		return func(b *symbols) {
			for _, x := range list {
				b.visit(x)
			}
		}
	}
	rest, last := st.branches[1:], []stmt(nil)
	if n := len(rest); n > 0 && rest[n-1].test == nil {
		last, rest = rest[n-1].body, rest[:n-1]
	}
	s.branches(branch(body(st.branches[0].body)), branch(func(b *symbols) {
		for _, other := range rest {
			b.visitIf(&ifStmt{[]branchStmt{other}})
		}
	}), branch(body(last)))
}

// inside analyses the scopes within a statement.
func (s *symbols) inside(st stmt) {
	switch st := st.(type) {
	case *forStmt:
		st.missing = frame(s, st.body, append(targetNames(st.target), "loop")...)
		st.missingElse = frame(s, st.otherwise)
	case *ifStmt:
		for _, b := range st.branches {
			for _, x := range b.body {
				s.inside(x)
			}
		}
	case *setBlock:
		st.missing = frame(s, st.body)
	case *withStmt:
		var names []string
		for _, t := range st.targets {
			names = append(names, targetNames(t)...)
		}
		st.missing = frame(s, st.body, names...)
	case *macroStmt:
		st.sig.analyse(s)
	case *callStmt:
		st.sig.analyse(s)
	case *filterStmt:
		st.missing = frame(s, st.body)
	case *scopeStmt:
		st.missing = frame(s, st.body)
	}
}

func (sig *signature) analyse(around *symbols) {
	sig.missing = frame(around, sig.body, append([]string{"caller", "varargs", "kwargs"}, sig.names...)...)
}

func targetNames(target expr) (names []string) {
	switch t := target.(type) {
	case *nameExpr:
		return []string{t.name}
	case *tupleExpr:
		for _, x := range t.items {
			names = append(names, targetNames(x)...)
		}
	}
	return names
}

func (s *symbols) writes(target expr) {
	if ns, ok := target.(*nsTarget); ok {
		s.load(ns.name)
	}
	if t, ok := target.(*tupleExpr); ok {
		for _, x := range t.items {
			s.writes(x)
		}
		return
	}
	for _, name := range targetNames(target) {
		s.store(name)
	}
}

// reads notes the names in an expression.
func (s *symbols) reads(list ...expr) {
	for _, e := range list {
		switch e := e.(type) {
		case *nameExpr:
			s.load(e.name)
		default:
			s.reads(parts(e)...)
		}
	}
}

// parts are the expressions within an expression.
func parts(e expr) []expr {
	call := func(of expr, a arguments) []expr {
		list := append([]expr{of}, a.list...)
		for _, k := range a.named {
			list = append(list, k.value)
		}
		return append(list, a.rest, a.more)
	}
	switch e := e.(type) {
	case *tupleExpr:
		return e.items
	case *listExpr:
		return e.items
	case *dictExpr:
		return append(append([]expr{}, e.keys...), e.values...)
	case *condExpr:
		return []expr{e.test, e.yes, e.no}
	case *orExpr:
		return []expr{e.left, e.right}
	case *andExpr:
		return []expr{e.left, e.right}
	case *notExpr:
		return []expr{e.of}
	case *compareExpr:
		list := []expr{e.left}
		for _, op := range e.ops {
			list = append(list, op.right)
		}
		return list
	case *binaryExpr:
		return []expr{e.left, e.right}
	case *concatExpr:
		return e.parts
	case *unaryExpr:
		return []expr{e.of}
	case *attrExpr:
		return []expr{e.of}
	case *itemExpr:
		return []expr{e.of, e.key}
	case *sliceExpr:
		return []expr{e.start, e.stop, e.step}
	case *callExpr:
		return call(e.of, e.args)
	case *filterExpr:
		return call(e.of, e.args)
	case *testExpr:
		return call(e.of, e.args)
	}
	return nil
}
