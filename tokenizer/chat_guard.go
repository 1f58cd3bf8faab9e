package tokenizer

import (
	"fmt"
	"reflect"

	controls "github.com/nikolalohinski/gonja/v2/builtins/control_structures"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/nodes"
	"github.com/nikolalohinski/gonja/v2/tokens"
)

// guard puts the limiter where gonja has no hook for it. A goroutine cannot be
// stopped from outside, so a loop must look at the deadline itself, even one
// that writes nothing; gonja's own operators would build a 10 GB string for
// 'x' * 10000000000, and its recursive macros would end the process.
type guard struct {
	lim  *limiter
	seen map[any]nodes.Expression // nodes already guarded, with what stands for them
}

// Names of the functions that a guarded template calls; no template can write
// them.
const (
	opName    = "\x00op"
	checkName = "\x00check"
)

// protect guards all that a parser made: operators become calls of operator,
// what is printed is measured first, bodies start with a toll, macros count
// their depth. v is a node, or holds nodes; what it cannot look into is an
// error.
func (g *guard) protect(v reflect.Value, depth int) error {
	if depth > templateMaxChain {
		return fmt.Errorf("an expression deeper than the limit of %d", templateMaxChain)
	}
	switch v.Kind() {
	case reflect.Interface:
		if v.IsNil() {
			return nil
		}
		if err := g.protect(v.Elem(), depth+1); err != nil {
			return err
		}
		return g.swap(v)
	case reflect.Pointer:
		if _, token := v.Interface().(*tokens.Token); token || v.IsNil() {
			return nil
		}
		if _, done := g.seen[v.Interface()]; done {
			return nil
		}
		g.seen[v.Interface()] = nil
		if err := g.protect(v.Elem(), depth); err != nil {
			return err
		}
		return g.change(v.Interface())
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			switch {
			case f.IsExported():
				if err := g.protect(v.Field(i), depth); err != nil {
					return err
				}
			case f.Type != reflect.TypeFor[*tokens.Token]() && f.Type != reflect.TypeFor[*nodes.Data]() && f.Type.Kind() != reflect.Func:
				return fmt.Errorf("a part of kind %s is not supported", v.Type())
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			if err := g.protect(v.Index(i), depth); err != nil {
				return err
			}
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			value := reflect.New(v.Type().Elem()).Elem()
			value.Set(v.MapIndex(key))
			if err := g.protect(value, depth); err != nil {
				return err
			}
			v.SetMapIndex(key, value)
		}
	}
	return nil
}

// swap puts another node in the place of one that gonja runs itself. A method
// call holds its object twice; both must stay one expression.
func (g *guard) swap(place reflect.Value) error {
	switch n := place.Interface().(type) {
	case *nodes.BinaryExpression:
		if op := n.Operator.Token.Val; op != "and" && op != "or" {
			if g.seen[n] == nil {
				g.seen[n] = call(opName, &nodes.String{Location: n.Operator.Token, Val: op}, n.Left, n.Right)
			}
			place.Set(reflect.ValueOf(g.seen[n]))
		}
	case *controls.MacroControlStructure:
		place.Set(reflect.ValueOf(&macroNode{n, g.lim}))
	}
	return nil
}

// change guards a node in place, after all inside it.
func (g *guard) change(node any) error {
	switch n := node.(type) {
	case *nodes.Wrapper:
		n.Nodes = g.withToll(n.Nodes)
	case *nodes.Output:
		n.Expression = call(checkName, n.Expression)
		if n.Alternative != nil {
			n.Alternative = call(checkName, n.Alternative)
		}
	case *controls.ForControlStructure:
		if n.Recursive {
			return fmt.Errorf("a recursive for loop is not supported")
		}
	}
	return nil
}

func call(name string, args ...nodes.Expression) nodes.Expression {
	return &nodes.Call{
		Location: args[len(args)-1].Position(),
		Func:     &nodes.Name{Name: &tokens.Token{Type: tokens.Name, Val: name}},
		Args:     args,
	}
}

func (g *guard) withToll(list []nodes.Node) []nodes.Node {
	toll := &nodes.ControlStructureBlock{Location: noToken, Name: "toll", ControlStructure: &tollNode{g.lim}}
	return append([]nodes.Node{toll}, list...)
}

var noToken = &tokens.Token{Type: tokens.Name}

// tollNode starts every body: it looks at the deadline, and counts what the
// body writes, which may go to a macro's own buffer.
type tollNode struct{ lim *limiter }

// Position implements nodes.Node.
func (t *tollNode) Position() *tokens.Token { return noToken }

// String implements nodes.Node.
func (t *tollNode) String() string { return "toll" }

// Execute implements exec.ControlStructure.
func (t *tollNode) Execute(r *exec.Renderer, _ *nodes.ControlStructureBlock) error {
	if _, capped := r.Output.(*cappedWriter); !capped {
		r.Output = &cappedWriter{lim: t.lim, out: r.Output}
	}
	return t.lim.step()
}

// macroNode defines a macro whose calls are counted and measured.
type macroNode struct {
	*controls.MacroControlStructure
	lim *limiter
}

// Execute implements exec.ControlStructure.
func (m *macroNode) Execute(r *exec.Renderer, _ *nodes.ControlStructureBlock) error {
	run, err := exec.MacroNodeToFunc(m.Macro, r)
	if err != nil {
		return err
	}
	r.Environment.Context.Set(m.Name, exec.Macro(func(params *exec.VarArgs) *exec.Value {
		if err := m.lim.enter(); err != nil {
			return exec.AsValue(err)
		}
		defer m.lim.leave()
		if err := m.lim.measure(params.Args...); err != nil {
			return exec.AsValue(err)
		}
		out := run(params)
		if err := m.lim.measure(out); err != nil {
			return exec.AsValue(err)
		}
		return out
	}))
	return nil
}
