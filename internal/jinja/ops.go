package jinja

import (
	"math"
	"slices"
	"strings"
)

// needs fails where one of the operands is undefined.
func (r *run) needs(values ...any) {
	for _, v := range values {
		if u, ok := v.(*undefined); ok {
			throw("%s", u.what)
		}
	}
}

func (r *run) binary(op string, a, b any) any {
	r.needs(a)
	if s, ok := text(a); ok && op == "%" {
		return r.percent(s, b)
	}
	r.needs(b)
	if v, ok := r.sequenceOp(op, a, b); ok {
		return v
	}
	x, okA := integer(a)
	y, okB := integer(b)
	if okA && okB {
		return r.integers(op, x, y)
	}
	if v, ok := r.bigs(op, a, b); ok {
		return v
	}
	f, okA := number(a)
	g, okB := number(b)
	if !okA || !okB {
		throw("unsupported operand type(s) for %s: %s and %s", op, pythonQuote(typeName(a)), pythonQuote(typeName(b)))
	}
	return floats(op, f, g)
}

// sequenceOp is + and * of texts and lists.
func (r *run) sequenceOp(op string, a, b any) (any, bool) {
	switch op {
	case "+":
		_, ma := a.(markup)
		_, mb := b.(markup)
		s, okA := text(a)
		t, okB := text(b)
		if okA && okB {
			r.fits(len(s) + len(t))
			if ma || mb {
				if !ma {
					s = escapeHTML(s)
				}
				if !mb {
					t = escapeHTML(t)
				}
				return markup(r.made(s + t)), true
			}
			return r.made(s + t), true
		}
		if okA {
			throw("can only concatenate str (not %q) to str", typeName(b))
		}
		l, okA := a.(*List)
		m, okB := b.(*List)
		if okA && okB && l.kind == m.kind && l.kind <= kindTuple {
			r.fits(16 * (len(l.Items) + len(m.Items)))
			sum := r.newList(slices.Concat(l.Items, m.Items))
			sum.kind = l.kind
			return sum, true
		}
	case "*":
		if _, ok := integer(a); ok {
			a, b = b, a
		}
		n, ok := integer(b)
		if !ok {
			return nil, false
		}
		n = max(n, 0)
		if s, ok := text(a); ok {
			if n > 0 && len(s) > r.limits.Output/int(min(n, int64(r.limits.Output)+1)) {
				r.limit("%d times %d bytes", n, len(s))
			}
			out := r.made(strings.Repeat(s, int(n)))
			if _, ok := a.(markup); ok {
				return markup(out), true
			}
			return out, true
		}
		if l, ok := a.(*List); ok && l.kind <= kindTuple {
			if n > 0 && 16*len(l.Items) > r.limits.Output/int(min(n, int64(r.limits.Output)+1)) {
				r.limit("%d times a list of %d", n, len(l.Items))
			}
			out := r.newList(slices.Repeat(l.Items, int(n)))
			out.kind = l.kind
			return out, true
		}
	}
	return nil, false
}

// integers computes with 64 bits where the result has no more.
func (r *run) integers(op string, x, y int64) any {
	switch op {
	case "+":
		if z := x + y; (z > x) == (y > 0) {
			return z
		}
	case "-":
		if z := x - y; (z < x) == (y > 0) {
			return z
		}
	case "*":
		if max(x, -x) < 1<<31 && max(y, -y) < 1<<31 {
			return x * y
		}
	case "/":
		if y == 0 {
			throw("division by zero")
		}
		return float64(x) / float64(y)
	case "**":
		if y < 0 {
			if x == 0 {
				throw("0.0 cannot be raised to a negative power")
			}
			return math.Pow(float64(x), float64(y))
		}
	}
	v, _ := r.bigs(op, x, y)
	return v
}

func floats(op string, x, y float64) any {
	switch op {
	case "+":
		return x + y
	case "-":
		return x - y
	case "*":
		return x * y
	case "**":
		if x == 0 && y < 0 {
			throw("0.0 cannot be raised to a negative power")
		}
		v := math.Pow(x, y)
		if math.IsInf(v, 0) && !math.IsInf(x, 0) && !math.IsInf(y, 0) {
			throw("result too large")
		}
		return v
	}
	if y == 0 {
		throw("float division by zero")
	}
	if op == "/" {
		return x / y
	}
	m := math.Mod(x, y)
	q := (x - m) / y
	switch {
	case m == 0:
		m = math.Copysign(0, y)
	case (m < 0) != (y < 0):
		m, q = m+y, q-1
	}
	if op == "%" {
		return m
	}
	if q == 0 {
		return math.Copysign(0, x/y)
	}
	if f := math.Floor(q); q-f <= 0.5 {
		return f
	}
	return math.Floor(q) + 1
}

func (r *run) unary(op string, v any) any {
	r.needs(v)
	if b, ok := v.(bigInt); ok {
		if op == "-" {
			v, _ := r.bigs("-", int64(0), b)
			return v
		}
		return b
	}
	if n, ok := integer(v); ok {
		if op == "-" {
			return -n
		}
		return n
	}
	x, ok := v.(float64)
	if !ok {
		throw("bad operand type for unary %s: %s", op, pythonQuote(typeName(v)))
	}
	if op == "-" {
		return -x
	}
	return x
}

func (r *run) compare(op string, a, b any) any {
	switch op {
	case "==":
		return r.equal(a, b)
	case "!=":
		return !r.equal(a, b)
	case "in":
		return r.contains(b, a)
	case "not in":
		return !r.contains(b, a)
	}
	r.needs(a, b)
	c, ok := r.order(a, b)
	if !ok {
		throw("%s not supported between instances of %s and %s", pythonQuote(op), pythonQuote(typeName(a)), pythonQuote(typeName(b)))
	}
	switch op {
	case "<":
		return c == -1
	case "<=":
		return c == -1 || c == 0
	case ">":
		return c == 1
	}
	return c == 1 || c == 0
}

// equal is Python's ==.
func (r *run) equal(a, b any) bool {
	r.charge(1)
	if x, ok := number(a); ok {
		y, ok := number(b)
		if i, isInt := integer(a); ok && isInt {
			if j, isInt := integer(b); isInt {
				return i == j
			}
		}
		if big, isBig := a.(bigInt); ok && isBig {
			if other, isBig := b.(bigInt); isBig {
				return big == other
			}
		}
		return ok && x == y
	}
	switch x := a.(type) {
	case nil:
		return b == nil
	case string, markup:
		s, _ := text(a)
		t, ok := text(b)
		r.charge(min(len(s), len(t)) / 16)
		return ok && s == t
	case *undefined:
		_, ok := b.(*undefined)
		return ok
	case *List:
		y, ok := b.(*List)
		if !ok || x.kind != y.kind || x.kind > kindTuple {
			return ok && x == y
		}
		if x == y {
			return true
		}
		return len(x.Items) == len(y.Items) && r.nested(func() bool {
			for i := range x.Items {
				if !r.equal(x.Items[i], y.Items[i]) {
					return false
				}
			}
			return true
		})
	case *Dict:
		y, ok := b.(*Dict)
		if !ok || x == y {
			return ok
		}
		return x.Len() == y.Len() && r.nested(func() bool {
			for i, k := range x.keys {
				v, ok := y.Get(k)
				if !ok || !r.equal(x.values[i], v) {
					return false
				}
			}
			return true
		})
	case *rangeValue:
		y, ok := b.(*rangeValue)
		return ok && x.length() == y.length() && (x.length() == 0 || x.start == y.start && (x.length() == 1 || x.step == y.step))
	}
	return a == b
}

// nested bounds how deep two values are compared.
func (r *run) nested(f func() bool) bool {
	defer r.enter()()
	return f()
}

// order is -1, 0 or 1, or 2 where one is not a number; false where the two have no order.
func (r *run) order(a, b any) (int, bool) {
	r.charge(1)
	if x, ok := asBig(a); ok {
		if y, ok := asBig(b); ok {
			return x.Cmp(y), true
		}
	}
	if x, ok := number(a); ok {
		y, ok := number(b)
		switch {
		case !ok:
			return 0, false
		case x < y:
			return -1, true
		case x > y:
			return 1, true
		case x == y:
			return 0, true
		}
		return 2, true
	}
	if s, ok := text(a); ok {
		t, ok := text(b)
		r.charge(min(len(s), len(t)) / 16)
		return strings.Compare(s, t), ok
	}
	l, okA := a.(*List)
	m, okB := b.(*List)
	if !okA || !okB || l.kind != m.kind || l.kind > kindTuple {
		return 0, false
	}
	for i := range min(len(l.Items), len(m.Items)) {
		if !r.equal(l.Items[i], m.Items[i]) {
			defer r.enter()()
			return r.order(l.Items[i], m.Items[i])
		}
	}
	switch {
	case len(l.Items) < len(m.Items):
		return -1, true
	case len(l.Items) > len(m.Items):
		return 1, true
	}
	return 0, true
}

// contains is Python's v in of.
func (r *run) contains(of, v any) bool {
	switch c := of.(type) {
	case string, markup:
		s, _ := text(of)
		t, ok := text(v)
		if !ok {
			r.needs(v)
			throw("'in <string>' requires string as left operand, not %s", typeName(v))
		}
		r.charge(len(s) / 8)
		return strings.Contains(s, t)
	case *Dict:
		_, ok := c.Get(v)
		return ok
	case *namespaceValue, nil, bool, int64, float64, bigInt:
		throw("argument of type %s is not iterable", pythonQuote(typeName(of)))
	}
	for _, x := range r.iterate(of) {
		if r.equal(x, v) {
			return true
		}
	}
	return false
}

// iterate lists what a loop over v sees.
func (r *run) iterate(v any) []any {
	switch v := v.(type) {
	case string, markup:
		s, _ := text(v)
		r.fits(16 * len(s) / 8)
		r.charge(16 * len(s))
		items := make([]any, 0, len(s))
		for _, c := range s {
			items = append(items, string(c))
		}
		return items
	case *List:
		if v.kind == kindGenerator {
			if v.used {
				return nil
			}
			v.used = true
			v.Items = v.later()
			r.fits(16 * len(v.Items))
			r.charge(16 * len(v.Items))
		}
		r.charge(len(v.Items))
		return v.Items
	case *Dict:
		r.charge(v.Len())
		return slices.Clone(v.keys)
	case *rangeValue:
		n := v.length()
		r.charge(16 * int(n))
		items := make([]any, n)
		for i := range items {
			items[i] = v.start + int64(i)*v.step
		}
		return items
	case *undefined:
		return nil
	case *loopValue:
		return v.items[v.index+1:]
	}
	throw("%s object is not iterable", pythonQuote(typeName(v)))
	return nil
}
