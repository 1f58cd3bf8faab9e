package tokenizer

import (
	"bytes"
	"fmt"

	controls "github.com/nikolalohinski/gonja/v2/builtins/control_structures"
	"github.com/nikolalohinski/gonja/v2/exec"
	"github.com/nikolalohinski/gonja/v2/nodes"
	"github.com/nikolalohinski/gonja/v2/parser"
	"github.com/nikolalohinski/gonja/v2/tokens"
)

// controlStructures are the statements a chat template may use: those of
// published templates. include, import and extends are not among them.
func (g *guard) controlStructures() *exec.ControlStructureSet {
	set := map[string]parser.ControlStructureParser{
		"set":        g.parseSet,
		"generation": g.parseGeneration,
	}
	for _, name := range []string{"for", "if", "macro", "raw", "break", "continue"} {
		builtin, ok := controls.All.Get(name)
		if !ok {
			panic("gonja has no " + name)
		}
		set[name] = func(p, args *parser.Parser) (nodes.ControlStructure, error) {
			parsed, err := builtin(p, args)
			if err != nil {
				return nil, err
			}
			return g.control(parsed)
		}
	}
	return exec.NewControlStructureSet(set)
}

// setNode is {% set target = value %} or {% set target %}…{% endset %}, with
// the value measured.
type setNode struct {
	lim    *limiter
	at     *tokens.Token
	target nodes.Expression
	value  nodes.Expression
	cond   nodes.Expression // {% set x = value if cond else other %}
	other  nodes.Expression
	body   *nodes.Wrapper
}

// Position implements nodes.Node.
func (s *setNode) Position() *tokens.Token { return s.at }

// String implements nodes.Node.
func (s *setNode) String() string { return "set" }

func (g *guard) parseSet(p, args *parser.Parser) (nodes.ControlStructure, error) {
	s := &setNode{lim: g.lim, at: args.Current()}
	target, err := args.ParseVariableOrLiteral()
	if err != nil {
		return nil, err
	}
	switch target.(type) {
	case *nodes.Name, *nodes.GetAttribute, *nodes.GetItem:
	default:
		return nil, fmt.Errorf("set: %s cannot be assigned to", target)
	}
	if s.target, err = g.expr(target, 0); err != nil {
		return nil, err
	}
	if args.Match(tokens.Assign) == nil {
		if !args.End() {
			return nil, args.Error("set: expected '='", args.Current())
		}
		if s.body, _, err = p.WrapUntil("endset"); err != nil {
			return nil, err
		}
		return s, g.body(s.body)
	}
	if s.value, err = args.ParseExpression(); err != nil {
		return nil, err
	}
	if s.cond, s.other, err = args.ParseCondition(); err != nil {
		return nil, err
	}
	if !args.End() {
		return nil, args.Error("set: malformed value", args.Current())
	}
	for _, e := range []*nodes.Expression{&s.value, &s.cond, &s.other} {
		if *e, err = g.expr(*e, 0); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Execute implements exec.ControlStructure.
func (s *setNode) Execute(r *exec.Renderer, _ *nodes.ControlStructureBlock) error {
	value, err := s.eval(r)
	if err != nil {
		return err
	}
	if err := s.lim.measure(value); err != nil {
		return err
	}
	switch n := s.target.(type) {
	case *nodes.Name:
		r.Environment.Context.Set(n.Name.Val, value.Interface())
		return nil
	case *nodes.GetAttribute:
		return s.assign(r, n.Node, exec.AsValue(n.Attribute), value)
	case *nodes.GetItem:
		key := r.Eval(n.Arg)
		if key.IsError() {
			return key
		}
		return s.assign(r, n.Node, key, value)
	}
	return fmt.Errorf("set: %s cannot be assigned to", s.target)
}

func (s *setNode) eval(r *exec.Renderer) (*exec.Value, error) {
	if s.body != nil {
		var buf bytes.Buffer
		sub := r.Inherit()
		sub.Output = &buf
		if err := sub.ExecuteWrapper(s.body); err != nil {
			return nil, err
		}
		return exec.AsValue(buf.String()), nil
	}
	chosen := s.value
	if s.cond != nil {
		cond := r.Eval(s.cond)
		if cond.IsError() {
			return nil, cond
		}
		if !cond.IsTrue() {
			if chosen = s.other; chosen == nil {
				return exec.AsValue(nil), nil
			}
		}
	}
	value := r.Eval(chosen)
	if value.IsError() {
		return nil, value
	}
	return value, nil
}

// assign sets a member of a namespace or a map, and measures the container
// afterwards, so that one that holds itself is found at once.
func (s *setNode) assign(r *exec.Renderer, holder nodes.Expression, key, value *exec.Value) error {
	target := r.Eval(holder)
	if target.IsError() {
		return target
	}
	if err := target.Set(key, value.Interface()); err != nil {
		return fmt.Errorf("set: %w", err)
	}
	return s.lim.measure(target)
}

// generationNode is {% generation %}…{% endgeneration %}, Hugging Face's mark
// of what the assistant said: only its body counts here.
type generationNode struct {
	at   *tokens.Token
	body *nodes.Wrapper
}

// Position implements nodes.Node.
func (n *generationNode) Position() *tokens.Token { return n.at }

// String implements nodes.Node.
func (n *generationNode) String() string { return "generation" }

// Execute implements exec.ControlStructure.
func (n *generationNode) Execute(r *exec.Renderer, _ *nodes.ControlStructureBlock) error {
	return r.ExecuteIfWrapper(n.body)
}

func (g *guard) parseGeneration(p, args *parser.Parser) (nodes.ControlStructure, error) {
	if !args.End() {
		return nil, args.Error("generation takes no arguments", args.Current())
	}
	body, _, err := p.WrapUntil("endgeneration")
	if err != nil {
		return nil, err
	}
	return &generationNode{body.Location, body}, g.body(body)
}
