package tokenizer

import (
	"fmt"
	"math"
	"strings"

	"github.com/nikolalohinski/gonja/v2/exec"
)

// operator is every binary operator of a template but and/or, with Python's
// meaning and the limiter's bounds. Its arguments are the operator, left,
// right.
func (g *guard) operator(_ *exec.Evaluator, params *exec.VarArgs) *exec.Value {
	if len(params.Args) != 3 {
		return exec.AsValue(fmt.Errorf("operator with %d arguments", len(params.Args)))
	}
	if err := g.lim.measure(params.Args...); err != nil {
		return exec.AsValue(err)
	}
	op, left, right := params.Args[0].String(), params.Args[1], params.Args[2]
	v, err := g.apply(op, left, right)
	if err != nil {
		return exec.AsValue(err)
	}
	return v
}

func (g *guard) apply(op string, left, right *exec.Value) (*exec.Value, error) {
	switch op {
	case "~":
		return g.concat(left.String(), right.String())
	case "==":
		return exec.AsValue(left.EqualValueTo(right)), nil
	case "!=":
		return exec.AsValue(!left.EqualValueTo(right)), nil
	case "in":
		return exec.AsValue(right.Contains(left)), nil
	case "<", "<=", ">", ">=":
		return compare(op, left, right)
	case "+":
		if left.IsString() && right.IsString() {
			return g.concat(left.String(), right.String())
		}
		if left.IsList() && right.IsList() {
			return g.joinLists(left, right)
		}
	case "*":
		if left.IsString() && right.IsInteger() {
			return g.repeat(left.String(), right.Integer())
		}
		if left.IsInteger() && right.IsString() {
			return g.repeat(right.String(), left.Integer())
		}
	}
	return arithmetic(op, left, right)
}

func (g *guard) concat(a, b string) (*exec.Value, error) {
	if err := g.lim.fits(len(a) + len(b)); err != nil {
		return nil, err
	}
	return exec.AsValue(a + b), nil
}

func (g *guard) repeat(s string, n int) (*exec.Value, error) {
	n = max(n, 0)
	if len(s) > 0 && n > g.lim.maxBytes/len(s) {
		return nil, g.lim.fail("a string of %d bytes repeated %d times", len(s), n)
	}
	if err := g.lim.fits(len(s) * n); err != nil {
		return nil, err
	}
	return exec.AsValue(strings.Repeat(s, n)), nil
}

func (g *guard) joinLists(left, right *exec.Value) (*exec.Value, error) {
	var joined []any
	for _, side := range []*exec.Value{left, right} {
		for i := range side.Len() {
			joined = append(joined, side.Index(i).Interface())
		}
	}
	v := exec.AsValue(joined)
	return v, g.lim.measure(v)
}

func compare(op string, left, right *exec.Value) (*exec.Value, error) {
	var order int
	switch {
	case left.IsNumber() && right.IsNumber():
		l, r := left.Float(), right.Float()
		if l < r {
			order = -1
		} else if l > r {
			order = 1
		}
	case left.IsString() && right.IsString():
		order = strings.Compare(left.String(), right.String())
	default:
		return nil, fmt.Errorf("operator %s: %s and %s have no order", op, kindOf(left), kindOf(right))
	}
	return exec.AsValue(map[string]bool{"<": order < 0, "<=": order <= 0, ">": order > 0, ">=": order >= 0}[op]), nil
}

func kindOf(v *exec.Value) string {
	switch {
	case v.IsNil():
		return "none"
	case v.IsString():
		return "a string"
	case v.IsBool():
		return "a boolean"
	case v.IsNumber():
		return "a number"
	case v.IsList():
		return "a list"
	case v.IsDict():
		return "a map"
	}
	return "a value"
}

// arithmetic is Python's on integers and floats; a boolean counts as 0 or 1.
func arithmetic(op string, left, right *exec.Value) (*exec.Value, error) {
	number := func(v *exec.Value) bool { return v.IsNumber() || v.IsBool() }
	if !number(left) || !number(right) {
		return nil, fmt.Errorf("operator %s does not work on %s and %s", op, kindOf(left), kindOf(right))
	}
	if left.IsFloat() || right.IsFloat() || op == "/" || op == "**" {
		return floatArithmetic(op, left.Float(), right.Float(), left.IsFloat() || right.IsFloat())
	}
	l, r := left.Integer(), right.Integer()
	if r == 0 && (op == "//" || op == "%") {
		return nil, fmt.Errorf("operator %s: division by zero", op)
	}
	switch op {
	case "+":
		return exec.AsValue(l + r), nil
	case "-":
		return exec.AsValue(l - r), nil
	case "*":
		return exec.AsValue(l * r), nil
	case "//":
		return exec.AsValue(int(math.Floor(float64(l) / float64(r)))), nil
	case "%":
		return exec.AsValue(((l % r) + r) % r), nil
	}
	return nil, fmt.Errorf("operator %s is not supported", op)
}

func floatArithmetic(op string, l, r float64, isFloat bool) (*exec.Value, error) {
	var x float64
	switch op {
	case "+":
		x = l + r
	case "-":
		x = l - r
	case "*":
		x = l * r
	case "/":
		x, isFloat = l/r, true
	case "//":
		x = math.Floor(l / r)
	case "%":
		x = l - r*math.Floor(l/r)
	case "**":
		x = math.Pow(l, r)
	default:
		return nil, fmt.Errorf("operator %s is not supported", op)
	}
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return nil, fmt.Errorf("operator %s: %v and %v have no finite result", op, l, r)
	}
	if !isFloat && math.Abs(x) < 1<<53 {
		return exec.AsValue(int(x)), nil
	}
	return exec.AsValue(x), nil
}
