package tokenizer

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nikolalohinski/gonja/v2/builtins"
	"github.com/nikolalohinski/gonja/v2/exec"
)

// environment is what a template can reach: functions, filters, tests and
// methods that cannot touch anything outside the template and whose results
// are bounded by the size of what goes in, or that are replaced here.
func (g *guard) environment() *exec.Environment {
	namespace, _ := builtins.GlobalFunctions.Get("namespace")
	dict, _ := builtins.GlobalFunctions.Get("dict")
	return &exec.Environment{
		Context: exec.NewContext(map[string]any{
			opName:            g.operator,
			checkName:         g.check,
			"range":           g.rangeList,
			"namespace":       namespace,
			"dict":            dict,
			"raise_exception": raiseException,
			"strftime_now":    strftimeNow,
		}),
		Filters:           g.filters(),
		Tests:             g.tests(),
		ControlStructures: g.controlStructures(),
		Methods:           g.methods(),
	}
}

func (g *guard) check(_ *exec.Evaluator, params *exec.VarArgs) *exec.Value {
	if len(params.Args) != 1 {
		return exec.AsValue(errors.New("check takes one value"))
	}
	if err := g.lim.measure(params.Args[0]); err != nil {
		return exec.AsValue(err)
	}
	return params.Args[0]
}

// rangeList is Python's range, as a list of bounded length.
func (g *guard) rangeList(_ *exec.Evaluator, params *exec.VarArgs) *exec.Value {
	start, stop, step := 0, 0, 1
	for _, arg := range params.Args {
		if !arg.IsInteger() {
			return exec.AsValue(fmt.Errorf("range: %s is not an integer", kindOf(arg)))
		}
	}
	switch args := params.Args; len(args) {
	case 1:
		stop = args[0].Integer()
	case 2:
		start, stop = args[0].Integer(), args[1].Integer()
	case 3:
		start, stop, step = args[0].Integer(), args[1].Integer(), args[2].Integer()
	default:
		return exec.AsValue(fmt.Errorf("range takes 1 to 3 integers, got %d", len(args)))
	}
	if step == 0 {
		return exec.AsValue(errors.New("range: step is 0"))
	}
	var list []any
	for i := start; step > 0 && i < stop || step < 0 && i > stop; i += step {
		if len(list) == renderMaxRange {
			return exec.AsValue(g.lim.fail("range(%d, %d, %d) has more than %d items", start, stop, step, renderMaxRange))
		}
		list = append(list, i)
	}
	return exec.AsValue(list)
}

func raiseException(_ *exec.Evaluator, params *exec.VarArgs) *exec.Value {
	text := "no reason given"
	if len(params.Args) > 0 {
		text = params.Args[0].String()
	}
	return exec.AsValue(fmt.Errorf("the template refuses: %.300s", text))
}

// now is the clock of strftime_now, a variable for tests.
var now = time.Now

// strftimeNow is Hugging Face's function of that name.
func strftimeNow(_ *exec.Evaluator, params *exec.VarArgs) *exec.Value {
	if len(params.Args) != 1 || !params.Args[0].IsString() {
		return exec.AsValue(errors.New("strftime_now takes one format string"))
	}
	text, err := strftime(now(), params.Args[0].String())
	if err != nil {
		return exec.AsValue(err)
	}
	return exec.AsValue(text)
}

var strftimeLayouts = map[byte]string{
	'Y': "2006", 'm': "01", 'd': "02", 'H': "15", 'M': "04", 'S': "05", 'y': "06", 'b': "Jan", 'B': "January",
	'a': "Mon", 'A': "Monday", 'I': "03", 'p': "PM", 'j': "002", 'Z': "MST", 'z': "-0700", 'e': "_2",
	'F': "2006-01-02", 'T': "15:04:05", 'D': "01/02/06", 'R': "15:04",
}

func strftime(at time.Time, format string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		layout, ok := strftimeLayouts[format[i]]
		switch {
		case format[i] == '%':
			b.WriteByte('%')
		case ok:
			b.WriteString(at.Format(layout))
		default:
			return "", fmt.Errorf("strftime_now: %%%c is not supported", format[i])
		}
	}
	return b.String(), nil
}

// safeFilters are gonja's filters whose result is no larger than what goes in.
var safeFilters = []string{
	"abs", "capitalize", "count", "d", "default", "dictsort", "first", "float", "int", "items", "last",
	"length", "list", "lower", "map", "max", "min", "reject", "rejectattr", "reverse", "round", "safe",
	"select", "selectattr", "sort", "string", "sum", "title", "trim", "unique", "upper",
}

func (g *guard) filters() *exec.FilterSet {
	set := map[string]exec.FilterFunction{}
	bound := func(name string, f exec.FilterFunction) {
		set[name] = func(e *exec.Evaluator, in *exec.Value, params *exec.VarArgs) *exec.Value {
			if err := g.lim.measure(append([]*exec.Value{in}, params.Args...)...); err != nil {
				return exec.AsValue(err)
			}
			out := f(e, in, params)
			if err := g.lim.measure(out); err != nil {
				return exec.AsValue(err)
			}
			return out
		}
	}
	for _, name := range safeFilters {
		f, ok := builtins.Filters.Get(name)
		if !ok {
			panic("gonja has no filter " + name)
		}
		bound(name, f)
	}
	bound("join", g.filterJoin)
	bound("replace", g.filterReplace)
	bound("indent", g.filterIndent)
	bound("tojson", g.filterJSON)
	return exec.NewFilterSet(set)
}

func (g *guard) filterJoin(_ *exec.Evaluator, in *exec.Value, params *exec.VarArgs) *exec.Value {
	sep := ""
	if v, ok := argument(params, 0, "d"); ok {
		sep = v.String()
	}
	if !in.IsList() && !in.IsString() {
		return exec.AsValue(fmt.Errorf("filter join: %s is no list", kindOf(in)))
	}
	parts := make([]string, in.Len())
	size := 0
	for i := range parts {
		parts[i] = in.Index(i).String()
		size += len(parts[i]) + len(sep)
	}
	if err := g.lim.fits(size); err != nil {
		return exec.AsValue(err)
	}
	return exec.AsValue(strings.Join(parts, sep))
}

func argument(params *exec.VarArgs, i int, name string) (*exec.Value, bool) {
	if i < len(params.Args) {
		return params.Args[i], true
	}
	v, ok := params.KwArgs[name]
	return v, ok
}

func (g *guard) filterReplace(_ *exec.Evaluator, in *exec.Value, params *exec.VarArgs) *exec.Value {
	old, ok1 := argument(params, 0, "old")
	with, ok2 := argument(params, 1, "new")
	if !ok1 || !ok2 {
		return exec.AsValue(errors.New("filter replace takes two strings"))
	}
	text, err := g.replace(in.String(), old.String(), with.String(), -1)
	if err != nil {
		return exec.AsValue(err)
	}
	return exec.AsValue(text)
}

func (g *guard) replace(s, old, with string, n int) (string, error) {
	count := strings.Count(s, old)
	if n >= 0 {
		count = min(count, n)
	}
	if len(with) > 0 && count > g.lim.maxBytes/len(with) {
		return "", g.lim.fail("replace: %d times %d bytes", count, len(with))
	}
	if err := g.lim.fits(len(s) + count*len(with)); err != nil {
		return "", err
	}
	return strings.Replace(s, old, with, n), nil
}

func (g *guard) filterIndent(_ *exec.Evaluator, in *exec.Value, params *exec.VarArgs) *exec.Value {
	width, first := 4, false
	if v, ok := argument(params, 0, "width"); ok {
		width = v.Integer()
	}
	if v, ok := argument(params, 1, "first"); ok {
		first = v.IsTrue()
	}
	if width < 0 || width > 256 {
		return exec.AsValue(fmt.Errorf("filter indent: width %d, limit 256", width))
	}
	pad := strings.Repeat(" ", width)
	lines := strings.Split(in.String(), "\n")
	if err := g.lim.fits(in.Len() + len(lines)*width); err != nil {
		return exec.AsValue(err)
	}
	for i, line := range lines {
		if line != "" && (i > 0 || first) {
			lines[i] = pad + line
		}
	}
	return exec.AsValue(strings.Join(lines, "\n"))
}

// safeTests are gonja's tests whose work does not grow with the square of their
// operands.
var safeTests = []string{
	"!=", "<", "<=", "==", ">", ">=", "boolean", "callable", "defined", "divisibleby", "eq", "equalto", "even",
	"false", "float", "ge", "greaterthan", "gt", "integer", "iterable", "le", "lessthan", "lower", "lt",
	"mapping", "ne", "none", "number", "odd", "sameas", "sequence", "string", "true", "undefined", "upper",
}

func (g *guard) tests() *exec.TestSet {
	set := map[string]exec.TestFunction{
		"in": timed(g.lim, func(_ *exec.Context, in *exec.Value, params *exec.VarArgs) (bool, error) {
			if len(params.Args) != 1 {
				return false, errors.New("test in takes one value")
			}
			return params.Args[0].Contains(in), nil
		}),
	}
	for _, name := range safeTests {
		f, ok := builtins.Tests.Get(name)
		if !ok {
			panic("gonja has no test " + name)
		}
		switch f := f.(type) {
		case func(*exec.Context, *exec.Value, *exec.VarArgs) (bool, error):
			set[name] = timed(g.lim, f)
		case func(*exec.Evaluator, *exec.Value, *exec.VarArgs) (bool, error):
			set[name] = timed(g.lim, f)
		default:
			panic("gonja's test " + name + " has another form")
		}
	}
	return exec.NewTestSet(set)
}

// timed is a test that looks at the deadline first.
func timed[E any](lim *limiter, f func(E, *exec.Value, *exec.VarArgs) (bool, error)) exec.TestFunction {
	return func(env E, in *exec.Value, params *exec.VarArgs) (bool, error) {
		if err := lim.step(); err != nil {
			return false, err
		}
		return f(env, in, params)
	}
}

// safeStringMethods are gonja's string methods whose result is no larger than
// what goes in.
var safeStringMethods = []string{
	"capitalize", "count", "endswith", "find", "isalnum", "isalpha", "isascii", "isdecimal", "isdigit",
	"islower", "isnumeric", "isspace", "istitle", "isupper", "lower", "lstrip", "partition",
	"removeprefix", "removesuffix", "rfind", "rpartition", "rsplit", "rstrip", "split", "splitlines",
	"startswith", "strip", "swapcase", "title", "upper",
}

func (g *guard) methods() exec.Methods {
	text := map[string]exec.Method[string]{
		"replace": func(self string, _ *exec.Value, args *exec.VarArgs) (any, error) {
			if len(args.Args) < 2 {
				return nil, errors.New("replace takes two strings")
			}
			n := -1
			if len(args.Args) > 2 {
				n = args.Args[2].Integer()
			}
			return g.replace(self, args.Args[0].String(), args.Args[1].String(), n)
		},
		"join": func(self string, _ *exec.Value, args *exec.VarArgs) (any, error) {
			if len(args.Args) != 1 {
				return nil, errors.New("join takes one list")
			}
			if err := g.lim.measure(args.Args[0]); err != nil {
				return nil, err
			}
			out := g.filterJoin(nil, args.Args[0], &exec.VarArgs{Args: []*exec.Value{exec.AsValue(self)}})
			if out.IsError() {
				return nil, out
			}
			return out.String(), nil
		},
	}
	for _, name := range safeStringMethods {
		text[name] = bounded(g.lim, name, builtins.Methods.Str)
	}
	dict := map[string]exec.Method[map[string]any]{}
	for _, name := range []string{"get", "items", "keys", "values"} {
		dict[name] = inOrder(name, bounded(g.lim, name, builtins.Methods.Dict))
	}
	list := map[string]exec.Method[[]any]{"append": bounded(g.lim, "append", builtins.Methods.List)}
	return exec.Methods{
		Bool:  exec.NewMethodSet(map[string]exec.Method[bool]{}),
		Int:   exec.NewMethodSet(map[string]exec.Method[int]{}),
		Float: exec.NewMethodSet(map[string]exec.Method[float64]{}),
		Str:   exec.NewMethodSet(text),
		Dict:  exec.NewMethodSet(dict),
		List:  exec.NewMethodSet(list),
	}
}

// bounded wraps one of gonja's methods: its values are measured.
func bounded[T any](lim *limiter, name string, set *exec.MethodSet[T]) exec.Method[T] {
	method, ok := set.Get(name)
	if !ok {
		panic("gonja has no method " + name)
	}
	return func(self T, value *exec.Value, args *exec.VarArgs) (any, error) {
		if err := lim.measure(append([]*exec.Value{value}, args.Args...)...); err != nil {
			return nil, err
		}
		out, err := method(self, value, args)
		if err == nil {
			err = lim.measure(value, exec.AsValue(out)) // append changes value
		}
		return out, err
	}
}

// inOrder answers items, keys and values of a map written in the template in
// the order it was written, as Python does; gonja sorts.
func inOrder(name string, sorted exec.Method[map[string]any]) exec.Method[map[string]any] {
	return func(self map[string]any, value *exec.Value, args *exec.VarArgs) (any, error) {
		out, err := sorted(self, value, args)
		d, ok := value.Interface().(*exec.Dict)
		if err != nil || !ok || name == "get" {
			return out, err
		}
		list := make([]any, len(d.Pairs))
		for i, pair := range d.Pairs {
			switch name {
			case "items":
				list[i] = []any{pair.Key.Interface(), pair.Value.Interface()}
			case "keys":
				list[i] = pair.Key.Interface()
			case "values":
				list[i] = pair.Value.Interface()
			}
		}
		return list, nil
	}
}
