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
func (g *guard) expr(e nodes.Expression, depth int) (_ nodes.Expression, err error) {
	if depth > templateMaxChain {
		return nil, fmt.Errorf("an expression deeper than the limit of %d", templateMaxChain)
	}
	sub := func(p *nodes.Expression) {
		if err == nil && *p != nil {
			*p, err = g.expr(*p, depth+1)
		}
	}
	subNode := func(p *nodes.Node) {
		if e := nodes.Expression(*p); e != nil {
			sub(&e)
			*p = e
		}
	}
	list := func(args []nodes.Expression) {
		for i := range args {
			sub(&args[i])
		}
	}
	named := func(args map[string]nodes.Expression) {
		for k, v := range args {
			sub(&v)
			args[k] = v
		}
	}
	switch n := e.(type) {
	case nil:
		return nil, nil
	case *nodes.BinaryExpression:
		sub(&n.Left)
		sub(&n.Right)
		if op := n.Operator.Token.Val; err == nil && op != "and" && op != "or" {
			return g.call(opName, &nodes.String{Location: n.Operator.Token, Val: op}, n.Left, n.Right), nil
		}
	case *nodes.UnaryExpression:
		sub(&n.Term)
	case *nodes.Negation:
		sub(&n.Term)
	case *nodes.FilteredExpression:
		sub(&n.Expression)
		for _, f := range n.Filters {
			list(f.Args)
			named(f.Kwargs)
		}
	case *nodes.TestExpression:
		sub(&n.Expression)
		list(n.Test.Args)
		named(n.Test.Kwargs)
	case *nodes.List:
		list(n.Val)
	case *nodes.Tuple:
		list(n.Val)
	case *nodes.Dict:
		for _, pair := range n.Pairs {
			sub(&pair.Key)
			sub(&pair.Value)
		}
	case *nodes.Pair:
		sub(&n.Key)
		sub(&n.Value)
	case *nodes.Call:
		list(n.Args)
		named(n.Kwargs)
		g.callee(n, subNode)
	case *nodes.GetItem:
		subNode(&n.Node)
		subNode(&n.Arg)
	case *nodes.GetAttribute:
		subNode(&n.Node)
	case *nodes.GetSlice:
		subNode(&n.Node)
		subNode(&n.Start)
		subNode(&n.End)
		subNode(&n.Step)
	case *nodes.Name, *nodes.String, *nodes.Integer, *nodes.Float, *nodes.Bool, *nodes.None, *nodes.Error:
	default:
		return nil, fmt.Errorf("an expression of kind %T is not supported", e)
	}
	return e, err
}

// callee guards the function of a call. A method call holds its object twice,
// as the parent and inside the attribute; both must stay one expression.
func (g *guard) callee(n *nodes.Call, sub func(*nodes.Node)) {
	if attr, ok := n.Func.(*nodes.GetAttribute); ok && n.Parent != nil {
		sub(&attr.Node)
		n.Parent = attr.Node
		return
	}
	sub(&n.Func)
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
