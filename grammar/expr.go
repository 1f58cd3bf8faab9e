package grammar

import (
	"terrace/grammar/automaton"
)

type kind uint8

const (
	kindBytes kind = iota // one byte of a set
	kindText              // a text of an automaton
	kindChars             // characters of a JSON string
	kindSeq
	kindAlt
	kindRepeat
	kindRule
)

// Expr is a part of a grammar. The zero value of its list kinds is the empty text.
type Expr struct {
	kind     kind
	set      [4]uint64
	dfa      *automaton.DFA
	json     bool
	names    *names
	sub      []*Expr
	min, max int     // max < 0: no limit
	near     []int32 // of a text whose characters are counted: Distances of the automaton
	rule     Rule
}

// Rule is the number of a rule of a Builder.
type Rule int

// Literal is a text as it stands.
func Literal(text string) *Expr {
	e := &Expr{kind: kindSeq}
	for i := range len(text) {
		e.sub = append(e.sub, oneByte(text[i]))
	}
	return e
}

func oneByte(b byte) *Expr {
	e := &Expr{kind: kindBytes}
	e.set[b>>6] = 1 << (b & 63)
	return e
}

// Text is a text that an automaton accepts, in UTF-8.
func Text(d *automaton.DFA) *Expr { return &Expr{kind: kindText, dfa: d, max: -1} }

// JSONText is what stands between the quotes of a JSON string whose value an automaton accepts. Characters that a serialiser
// may escape may be escaped.
func JSONText(d *automaton.DFA) *Expr { return &Expr{kind: kindText, dfa: d, json: true, max: -1} }

// JSONTextBetween is JSONText of min to max code points (max < 0: no limit). With a min the automaton must extend every text
// (Distances).
func JSONTextBetween(d *automaton.DFA, min, max int) *Expr {
	e := JSONText(d)
	e.min, e.max = min, max
	e.near, _ = d.Distances()
	return e
}

// JSONChars is what stands between the quotes of a JSON string of min to max code points (max < 0: no limit) whose value is
// none of some texts. Every escape is allowed.
func JSONChars(min, max int, but []string) *Expr {
	return &Expr{kind: kindChars, min: min, max: max, names: newNames(but)}
}

// Seq is one after the other.
func Seq(sub ...*Expr) *Expr { return &Expr{kind: kindSeq, sub: sub} }

// Alt is one of several; of none, nothing.
func Alt(sub ...*Expr) *Expr { return &Expr{kind: kindAlt, sub: sub} }

// Repeat is min to max times; max < 0 is no limit. Counts cost no space.
func Repeat(e *Expr, min, max int) *Expr {
	return &Expr{kind: kindRepeat, sub: []*Expr{e}, min: min, max: max}
}

// Call is what a rule produces.
func Call(r Rule) *Expr { return &Expr{kind: kindRule, rule: r} }

// names is a trie of texts that a string must not be; node 0 is the start.
type names struct {
	next map[nameEdge]int32
	full []bool // [node]
}

type nameEdge struct {
	node int32
	r    rune
}

const offNames = int32(-1) // no text of the trie begins like this

func newNames(texts []string) *names {
	if len(texts) == 0 {
		return nil
	}
	t := &names{next: map[nameEdge]int32{}, full: []bool{false}}
	for _, text := range texts {
		at := int32(0)
		for _, r := range text {
			e := nameEdge{at, r}
			to, ok := t.next[e]
			if !ok {
				to = int32(len(t.full))
				t.full = append(t.full, false)
				t.next[e] = to
			}
			at = to
		}
		t.full[at] = true
	}
	return t
}

func (t *names) step(node int32, r rune) int32 {
	if node == offNames {
		return offNames
	}
	if to, ok := t.next[nameEdge{node, r}]; ok {
		return to
	}
	return offNames
}

func (t *names) forbids(node int32) bool { return node != offNames && t.full[node] }
