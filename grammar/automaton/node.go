package automaton

import "slices"

// Range is an inclusive range of code points.
type Range struct{ Lo, Hi rune }

type op uint8

const (
	opEmpty op = iota
	opSet
	opCat
	opAlt
	opRepeat
	opBegin // start of the text
	opEnd   // end of the text
	opAhead // what follows has to match
	opNotAhead
	opRest // the rest of the text is in an automaton
)

// Node is a regular expression as a value.
type Node struct {
	op       op
	set      []Range
	sub      []*Node
	min, max int // max < 0: no limit
	rest     *DFA
}

// Cat is one after the other.
func Cat(sub ...*Node) *Node { return &Node{op: opCat, sub: sub} }

// Alt is one of several; none of none.
func Alt(sub ...*Node) *Node { return &Node{op: opAlt, sub: sub} }

// Repeat is min to max times; max < 0 is no limit.
func Repeat(n *Node, min, max int) *Node {
	return &Node{op: opRepeat, sub: []*Node{n}, min: min, max: max}
}

// Opt is once or not at all.
func Opt(n *Node) *Node { return Repeat(n, 0, 1) }

// Set is one code point of some ranges.
func Set(ranges ...Range) *Node { return &Node{op: opSet, set: ranges} }

// Not is one code point outside of some ranges.
func Not(ranges ...Range) *Node { return &Node{op: opSet, set: negate(ranges)} }

// Digit is one of lo to hi; nothing where lo > hi.
func Digit(lo, hi byte) *Node {
	if lo > hi {
		return Alt()
	}
	return Set(Range{rune(lo), rune(hi)})
}

// Text is a text as it stands.
func Text(s string) *Node {
	n := Cat()
	for _, r := range s {
		n.sub = append(n.sub, Set(Range{r, r}))
	}
	return n
}

// looks says whether an assertion about what follows is inside.
func (n *Node) looks() bool {
	if n.op == opAhead || n.op == opNotAhead {
		return true
	}
	return slices.ContainsFunc(n.sub, (*Node).looks)
}

// begins says whether the start of the text is asked for inside.
func (n *Node) begins() bool {
	return n.op == opBegin || slices.ContainsFunc(n.sub, (*Node).begins)
}

var anyRune = []Range{{0, 0xD7FF}, {0xE000, MaxRune}}
