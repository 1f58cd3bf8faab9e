package grammar

import (
	"fmt"
)

// Bounds of one grammar.
const (
	maxCode  = 2 << 20 // instructions
	maxRules = 1 << 19
	maxDepth = 2000 // of expressions
)

// Builder collects rules.
type Builder struct {
	bodies []*Expr
	names  []string
}

// Rule declares a rule; its body comes by Set. The name is for messages.
func (b *Builder) Rule(name string) Rule {
	b.bodies, b.names = append(b.bodies, nil), append(b.names, name)
	return Rule(len(b.bodies) - 1)
}

// Set gives a rule its body.
func (b *Builder) Set(r Rule, body *Expr) { b.bodies[r] = body }

type opcode uint8

const (
	opBytes opcode = iota
	opText
	opChars
	opSplit
	opCall
	opRepeat
	opReturn
)

type instr struct {
	op   opcode
	next int32
	to   int32   // opCall: the rule's start; opRepeat: the body's
	alts []int32 // opSplit
	e    *Expr   // opBytes, opText, opChars, opRepeat
}

// Grammar is a compiled language.
type Grammar struct {
	code  []instr
	start int32
}

// Instructions is the size of the grammar.
func (g *Grammar) Instructions() int { return len(g.code) }

// Compile makes a grammar of what a rule produces. ErrEmpty: it produces nothing; ErrUnsupported: a rule begins with itself.
func (b *Builder) Compile(root Rule) (*Grammar, error) {
	if len(b.bodies) > maxRules {
		return nil, fmt.Errorf("grammar: %d rules, at most %d: %w", len(b.bodies), maxRules, ErrTooLarge)
	}
	c := &compiler{b: b, productive: make([]bool, len(b.bodies)), nullable: make([]bool, len(b.bodies)), at: make([]int32, len(b.bodies))}
	for _, mark := range []struct {
		rules []bool
		holds func(*Expr) bool
	}{{c.productive, c.produces}, {c.nullable, c.nulls}} {
		c.fixpoint(mark.rules, mark.holds)
	}
	if !c.productive[root] {
		return nil, fmt.Errorf("grammar: %w", ErrEmpty)
	}
	if err := c.leftRecursion(root); err != nil {
		return nil, err
	}
	for i := range c.at {
		c.at[i] = -1
	}
	c.todo = []Rule{root}
	c.at[root] = 0
	c.g.code = []instr{{op: opReturn}, {op: opReturn}} // 0 is nobody's; endPC
	starts := map[Rule]int32{}
	for len(c.todo) > 0 {
		r := c.todo[len(c.todo)-1]
		c.todo = c.todo[:len(c.todo)-1]
		start, err := c.emit(b.bodies[r], endPC, 0)
		if err != nil {
			return nil, err
		}
		starts[r] = start
	}
	for i := range c.g.code {
		if in := &c.g.code[i]; in.op == opCall {
			in.to = starts[Rule(in.to)]
		}
	}
	c.g.start = starts[root]
	return &c.g, nil
}

type compiler struct {
	b                    *Builder
	productive, nullable []bool
	at                   []int32 // [rule]: 0 once it is to be emitted
	todo                 []Rule
	g                    Grammar
}

// fixpoint marks rules until nothing changes, visiting only those that use what changed.
func (c *compiler) fixpoint(marks []bool, holds func(*Expr) bool) {
	users := make([][]Rule, len(marks))
	var collect func(e *Expr, by Rule)
	collect = func(e *Expr, by Rule) {
		if e.kind == kindRule {
			users[e.rule] = append(users[e.rule], by)
		}
		for _, s := range e.sub {
			collect(s, by)
		}
	}
	var todo []Rule
	for r, body := range c.b.bodies {
		if body != nil {
			collect(body, Rule(r))
			todo = append(todo, Rule(r))
		}
	}
	for len(todo) > 0 {
		r := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if !marks[r] && holds(c.b.bodies[r]) {
			marks[r] = true
			todo = append(todo, users[r]...)
		}
	}
}

// produces says whether e produces a text at all, as far as is known.
func (c *compiler) produces(e *Expr) bool {
	switch e.kind {
	case kindBytes:
		return e.set != [4]uint64{}
	case kindText:
		return !e.dfa.Empty() && (e.near == nil || e.max < 0 || e.min <= e.max && int(e.near[0]) <= e.max)
	case kindChars:
		return (e.max < 0 || e.min <= e.max) && !(e.max == 0 && e.names != nil && e.names.full[0])
	case kindRule:
		return c.productive[e.rule]
	case kindRepeat:
		return e.min == 0 || (e.max < 0 || e.min <= e.max) && c.produces(e.sub[0])
	case kindAlt:
		for _, s := range e.sub {
			if c.produces(s) {
				return true
			}
		}
		return false
	}
	for _, s := range e.sub {
		if !c.produces(s) {
			return false
		}
	}
	return true
}

// nulls says whether e produces the empty text.
func (c *compiler) nulls(e *Expr) bool {
	switch e.kind {
	case kindBytes:
		return false
	case kindText:
		return !e.dfa.Empty() && e.dfa.Accepts(0) && e.min == 0
	case kindChars:
		return e.min == 0 && !(e.names != nil && e.names.full[0])
	case kindRule:
		return c.nullable[e.rule]
	case kindRepeat:
		return e.min == 0 || c.nulls(e.sub[0])
	case kindAlt:
		for _, s := range e.sub {
			if c.nulls(s) {
				return true
			}
		}
		return false
	}
	for _, s := range e.sub {
		if !c.nulls(s) {
			return false
		}
	}
	return true
}

// leftRecursion refuses a rule that can begin with itself.
func (c *compiler) leftRecursion(root Rule) error {
	const open, done = 1, 2
	mark := make([]uint8, len(c.b.bodies))
	var rule func(r Rule, depth int) error
	var left func(e *Expr, depth int) error
	left = func(e *Expr, depth int) error {
		switch {
		case e.kind == kindRule:
			return rule(e.rule, depth+1)
		case e.kind == kindSeq:
			for _, s := range e.sub {
				if err := left(s, depth); err != nil || !c.nulls(s) {
					return err
				}
			}
			return nil
		}
		for _, s := range e.sub {
			if err := left(s, depth); err != nil {
				return err
			}
		}
		return nil
	}
	rule = func(r Rule, depth int) error {
		switch {
		case !c.productive[r] || mark[r] == done:
			return nil
		case mark[r] == open:
			return fmt.Errorf("grammar: rule %q begins with itself (left recursion); write it as a repetition: %w", c.b.names[r], ErrUnsupported)
		case depth > maxDepth:
			return fmt.Errorf("grammar: rules begin with each other more than %d deep: %w", maxDepth, ErrTooLarge)
		}
		mark[r] = open
		if err := left(c.b.bodies[r], depth); err != nil {
			return err
		}
		mark[r] = done
		return nil
	}
	for r := range c.b.bodies {
		if err := rule(Rule(r), 0); err != nil {
			return err
		}
	}
	return rule(root, 0)
}

func (c *compiler) add(in instr) (int32, error) {
	if len(c.g.code) >= maxCode {
		return 0, fmt.Errorf("grammar: more than %d instructions: %w", maxCode, ErrTooLarge)
	}
	c.g.code = append(c.g.code, in)
	return int32(len(c.g.code) - 1), nil
}

// emit writes the code of a productive expression that goes on at next, and returns where it starts.
func (c *compiler) emit(e *Expr, next int32, depth int) (int32, error) {
	if depth > maxDepth {
		return 0, fmt.Errorf("grammar: expressions nest deeper than %d: %w", maxDepth, ErrTooLarge)
	}
	switch e.kind {
	case kindBytes:
		return c.add(instr{op: opBytes, next: next, e: e})
	case kindText:
		return c.add(instr{op: opText, next: next, e: e})
	case kindChars:
		return c.add(instr{op: opChars, next: next, e: e})
	case kindRule:
		if c.at[e.rule] < 0 {
			c.at[e.rule] = 0
			c.todo = append(c.todo, e.rule)
		}
		return c.add(instr{op: opCall, next: next, to: int32(e.rule)})
	case kindSeq:
		var err error
		for i := len(e.sub) - 1; i >= 0; i-- {
			if next, err = c.emit(e.sub[i], next, depth+1); err != nil {
				return 0, err
			}
		}
		return next, nil
	case kindAlt:
		return c.emitAlt(e, next, depth)
	}
	return c.emitRepeat(e, next, depth)
}

func (c *compiler) emitAlt(e *Expr, next int32, depth int) (int32, error) {
	var alts []int32
	for _, s := range e.sub {
		if !c.produces(s) {
			continue
		}
		at, err := c.emit(s, next, depth+1)
		if err != nil {
			return 0, err
		}
		alts = append(alts, at)
	}
	if len(alts) == 1 {
		return alts[0], nil
	}
	return c.add(instr{op: opSplit, alts: alts})
}

// emitRepeat: a body that may be empty is repeated any number of times up to max, so that counts always consume text.
func (c *compiler) emitRepeat(e *Expr, next int32, depth int) (int32, error) {
	body := e.sub[0]
	if e.max == 0 || !c.produces(body) {
		return next, nil
	}
	lo := e.min
	if c.nulls(body) {
		lo = 0
	}
	if lo <= 1 && e.max == 1 {
		at, err := c.emit(body, next, depth+1)
		if err != nil || lo == 1 {
			return at, err
		}
		return c.add(instr{op: opSplit, alts: []int32{at, next}})
	}
	start, err := c.emit(body, endPC, depth+1)
	if err != nil {
		return 0, err
	}
	return c.add(instr{op: opRepeat, next: next, to: start, e: &Expr{min: lo, max: e.max}})
}
