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
		set[name] = builtin
	}
	return exec.NewControlStructureSet(set)
}

// setNode is {% set target = value %} or {% set target %}…{% endset %}, with
// the value measured.
type setNode struct {
	measure func(values ...*exec.Value) error
	at      *tokens.Token
	Target  nodes.Expression
	Value   nodes.Expression
	Cond    nodes.Expression // {% set x = value if cond else other %}
	Other   nodes.Expression
	Body    *nodes.Wrapper
}

// Position implements nodes.Node.
func (s *setNode) Position() *tokens.Token { return s.at }

// String implements nodes.Node.
func (s *setNode) String() string { return "set" }

func (g *guard) parseSet(p, args *parser.Parser) (nodes.ControlStructure, error) {
	s := &setNode{measure: g.lim.measure, at: args.Current()}
	target, err := args.ParseVariableOrLiteral()
	if err != nil {
		return nil, err
	}
	switch target.(type) {
	case *nodes.Name, *nodes.GetAttribute, *nodes.GetItem:
	default:
		return nil, fmt.Errorf("set: %s cannot be assigned to", target)
	}
	s.Target = target
	if args.Match(tokens.Assign) == nil {
		if !args.End() {
			return nil, args.Error("set: expected '='", args.Current())
		}
		s.Body, _, err = p.WrapUntil("endset")
		return s, err
	}
	if s.Value, err = args.ParseExpression(); err != nil {
		return nil, err
	}
	if s.Cond, s.Other, err = args.ParseCondition(); err != nil {
		return nil, err
	}
	if !args.End() {
		return nil, args.Error("set: malformed value", args.Current())
	}
	return s, nil
}

// Execute implements exec.ControlStructure.
func (s *setNode) Execute(r *exec.Renderer, _ *nodes.ControlStructureBlock) error {
	value, err := s.eval(r)
	if err != nil {
		return err
	}
	if err := s.measure(value); err != nil {
		return err
	}
	switch n := s.Target.(type) {
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
	return fmt.Errorf("set: %s cannot be assigned to", s.Target)
}

func (s *setNode) eval(r *exec.Renderer) (*exec.Value, error) {
	if s.Body != nil {
		var buf bytes.Buffer
		sub := r.Inherit()
		sub.Output = &buf
		if err := sub.ExecuteWrapper(s.Body); err != nil {
			return nil, err
		}
		return exec.AsValue(buf.String()), nil
	}
	chosen := s.Value
	if s.Cond != nil {
		cond := r.Eval(s.Cond)
		if cond.IsError() {
			return nil, cond
		}
		if !cond.IsTrue() {
			if chosen = s.Other; chosen == nil {
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
	return s.measure(target)
}

// generationNode is {% generation %}…{% endgeneration %}, Hugging Face's mark
// of what the assistant said: only its body counts here.
type generationNode struct {
	at   *tokens.Token
	Body *nodes.Wrapper
}

// Position implements nodes.Node.
func (n *generationNode) Position() *tokens.Token { return n.at }

// String implements nodes.Node.
func (n *generationNode) String() string { return "generation" }

// Execute implements exec.ControlStructure.
func (n *generationNode) Execute(r *exec.Renderer, _ *nodes.ControlStructureBlock) error {
	return r.ExecuteIfWrapper(n.Body)
}

func (g *guard) parseGeneration(p, args *parser.Parser) (nodes.ControlStructure, error) {
	if !args.End() {
		return nil, args.Error("generation takes no arguments", args.Current())
	}
	body, _, err := p.WrapUntil("endgeneration")
	if err != nil {
		return nil, err
	}
	return &generationNode{body.Location, body}, nil
}
