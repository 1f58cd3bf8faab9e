package tokenizer

import (
	"fmt"

	controls "github.com/nikolalohinski/gonja/v2/builtins/control_structures"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/nodes"
	"github.com/nikolalohinski/gonja/v2/tokens"
)

// guard rewrites a parsed template so that everything it can spend is charged:
// operators become calls of the limiter's own (gonja's would build a 10 GB
// string for 'x' * 10000000000), outputs are measured before they are written
// as text, and every body starts with a node that takes fuel.
type guard struct {
	lim *limiter
}

// Names of the functions the rewritten template calls; no template can write
// them.
const (
	opName    = "\x00op"
	checkName = "\x00check"
)

// nodes guards a list of nodes.
func (g *guard) nodes(list []nodes.Node) ([]nodes.Node, error) {
	text := 0
	for _, n := range list {
		switch n := n.(type) {
		case *nodes.Data:
			text += len(n.Data.Val)
		case *nodes.Output:
			if err := g.output(n); err != nil {
				return nil, err
			}
		}
	}
	toll := &nodes.ControlStructureBlock{Location: noToken, Name: "toll", ControlStructure: &tollNode{g.lim, text}}
	return append([]nodes.Node{toll}, list...), nil
}

func (g *guard) output(n *nodes.Output) (err error) {
	if n.Expression, err = g.checked(n.Expression); err != nil {
		return err
	}
	if n.Condition, err = g.expr(n.Condition, 0); err != nil {
		return err
	}
	if n.Alternative != nil {
		n.Alternative, err = g.checked(n.Alternative)
	}
	return err
}

var noToken = &tokens.Token{Type: tokens.Name}

// body guards a wrapper in place.
func (g *guard) body(w *nodes.Wrapper) (err error) {
	if w != nil {
		w.Nodes, err = g.nodes(w.Nodes)
	}
	return err
}

// checked guards an expression whose value leaves it: the value is measured.
func (g *guard) checked(e nodes.Expression) (nodes.Expression, error) {
	e, err := g.expr(e, 0)
	if err != nil || e == nil {
		return e, err
	}
	return g.call(checkName, e), nil
}

func (g *guard) call(name string, args ...nodes.Expression) nodes.Expression {
	return &nodes.Call{
		Location: args[len(args)-1].Position(),
		Func:     &nodes.Name{Name: &tokens.Token{Type: tokens.Name, Val: name}},
		Args:     args,
	}
}

// expr guards one expression and all inside it.
func (g *guard) expr(e nodes.Expression, depth int) (nodes.Expression, error) {
	if e == nil {
		return nil, nil
	}
	if depth > templateMaxChain {
		return nil, fmt.Errorf("an expression deeper than the limit of %d", templateMaxChain)
	}
	w := exprWalk{g: g, depth: depth}
	w.children(e)
	if w.err != nil {
		return nil, w.err
	}
	if n, ok := e.(*nodes.BinaryExpression); ok {
		if op := n.Operator.Token.Val; op != "and" && op != "or" {
			return g.call(opName, &nodes.String{Location: n.Operator.Token, Val: op}, n.Left, n.Right), nil
		}
	}
	return e, nil
}

// exprWalk guards the parts of one expression in place and keeps the first
// error.
type exprWalk struct {
	g     *guard
	depth int
	err   error
}

func (w *exprWalk) sub(p *nodes.Expression) {
	if w.err == nil && *p != nil {
		*p, w.err = w.g.expr(*p, w.depth+1)
	}
}

func (w *exprWalk) node(p *nodes.Node) {
	if e := nodes.Expression(*p); e != nil {
		w.sub(&e)
		*p = e
	}
}

func (w *exprWalk) list(args []nodes.Expression) {
	for i := range args {
		w.sub(&args[i])
	}
}

func (w *exprWalk) named(args map[string]nodes.Expression) {
	for k, v := range args {
		w.sub(&v)
		args[k] = v
	}
}

func (w *exprWalk) children(e nodes.Expression) {
	switch n := e.(type) {
	case *nodes.BinaryExpression:
		w.sub(&n.Left)
		w.sub(&n.Right)
	case *nodes.UnaryExpression:
		w.sub(&n.Term)
	case *nodes.Negation:
		w.sub(&n.Term)
	case *nodes.FilteredExpression:
		w.sub(&n.Expression)
		for _, f := range n.Filters {
			w.list(f.Args)
			w.named(f.Kwargs)
		}
	case *nodes.TestExpression:
		w.sub(&n.Expression)
		w.list(n.Test.Args)
		w.named(n.Test.Kwargs)
	case *nodes.List:
		w.list(n.Val)
	case *nodes.Tuple:
		w.list(n.Val)
	case *nodes.Dict:
		for _, pair := range n.Pairs {
			w.sub(&pair.Key)
			w.sub(&pair.Value)
		}
	case *nodes.Pair:
		w.sub(&n.Key)
		w.sub(&n.Value)
	case *nodes.Call:
		w.list(n.Args)
		w.named(n.Kwargs)
		w.callee(n)
	case *nodes.GetItem:
		w.node(&n.Node)
		w.node(&n.Arg)
	case *nodes.GetAttribute:
		w.node(&n.Node)
	case *nodes.GetSlice:
		for _, part := range []*nodes.Node{&n.Node, &n.Start, &n.End, &n.Step} {
			w.node(part)
		}
	case *nodes.Name, *nodes.String, *nodes.Integer, *nodes.Float, *nodes.Bool, *nodes.None, *nodes.Error:
	default:
		w.err = fmt.Errorf("an expression of kind %T is not supported", e)
	}
}

// callee guards the function of a call. A method call holds its object twice,
// as the parent and inside the attribute; both must stay one expression.
func (w *exprWalk) callee(n *nodes.Call) {
	if attr, ok := n.Func.(*nodes.GetAttribute); ok && n.Parent != nil {
		w.node(&attr.Node)
		n.Parent = attr.Node
		return
	}
	w.node(&n.Func)
}

// tollNode starts every body: it charges a step and the body's own text.
type tollNode struct {
	lim  *limiter
	text int
}

// Position implements nodes.Node.
func (t *tollNode) Position() *tokens.Token { return noToken }

// String implements nodes.Node.
func (t *tollNode) String() string { return "toll" }

// Execute implements exec.ControlStructure.
func (t *tollNode) Execute(*exec.Renderer, *nodes.ControlStructureBlock) error {
	if err := t.lim.step(1); err != nil {
		return err
	}
	return t.lim.charge(t.text)
}

// control guards what gonja's parser made of a for, if or macro block.
func (g *guard) control(parsed nodes.ControlStructure) (_ nodes.ControlStructure, err error) {
	switch c := parsed.(type) {
	case *controls.ForControlStructure:
		if c.Recursive {
			return nil, fmt.Errorf("a recursive for loop is not supported")
		}
		if c.ObjectEvaluator, err = g.checked(c.ObjectEvaluator); err != nil {
			return nil, err
		}
		if c.IfCondition, err = g.expr(c.IfCondition, 0); err != nil {
			return nil, err
		}
		if err = g.body(c.BodyWrapper); err == nil {
			err = g.body(c.EmptyWrapper)
		}
	case *controls.IfControlStructure:
		for i := range c.Conditions {
			if c.Conditions[i], err = g.expr(c.Conditions[i], 0); err != nil {
				return nil, err
			}
		}
		for _, w := range c.Wrappers {
			if err = g.body(w); err != nil {
				return nil, err
			}
		}
	case *controls.MacroControlStructure:
		for _, arg := range c.Kwargs {
			if arg.Value, err = g.expr(arg.Value, 0); err != nil {
				return nil, err
			}
		}
		if err = g.body(c.Wrapper); err != nil {
			return nil, err
		}
		return &macroNode{c, g.lim}, nil
	}
	return parsed, err
}

// macroNode defines a macro whose calls are counted and measured.
type macroNode struct {
	*controls.MacroControlStructure
	lim *limiter
}

// Execute implements exec.ControlStructure.
func (m *macroNode) Execute(r *exec.Renderer, _ *nodes.ControlStructureBlock) error {
	call, err := exec.MacroNodeToFunc(m.Macro, r)
	if err != nil {
		return err
	}
	r.Environment.Context.Set(m.Name, exec.Macro(func(params *exec.VarArgs) *exec.Value {
		if err := m.lim.enter(); err != nil {
			return exec.AsValue(err)
		}
		defer m.lim.leave()
		for _, arg := range params.Args {
			if err := m.lim.measure(arg); err != nil {
				return exec.AsValue(err)
			}
		}
		out := call(params)
		if err := m.lim.measure(out); err != nil {
			return exec.AsValue(err)
		}
		return out
	}))
	return nil
}
