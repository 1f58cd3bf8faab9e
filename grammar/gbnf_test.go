package grammar

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// bytesVocabulary has every byte and some longer tokens; the last id ends a text.
func bytesVocabulary(more ...string) *Vocabulary {
	var tokens [][]byte
	for b := range 256 {
		tokens = append(tokens, []byte{byte(b)})
	}
	for _, s := range more {
		tokens = append(tokens, []byte(s))
	}
	return NewVocabulary(append(tokens, []byte("</s>")), []int{len(tokens)})
}

func allowed(mask []uint64, id int) bool { return mask[id>>6]>>(id&63)&1 != 0 }

// pattern is a random grammar as a tree: the slow recogniser below reads the same tree that is printed as GBNF.
type pattern struct {
	text   string // a literal
	sub    []*pattern
	alt    bool
	lo, hi int // a repetition of sub[0] where hi != 0
	rule   int // a call where > 0
}

func randomPattern(rng *rand.Rand, depth, rules, self int) *pattern {
	switch k := rng.IntN(6); {
	case depth == 0 || k < 2:
		return &pattern{text: "abc"[:][rng.IntN(3):][:1] + strings.Repeat("b", rng.IntN(2))}
	case k == 2 && self < rules: // only later rules: no left recursion
		return &pattern{rule: self + 1 + rng.IntN(rules-self)}
	case k == 3:
		lo := rng.IntN(3)
		return &pattern{sub: []*pattern{randomPattern(rng, depth-1, rules, self)}, lo: lo, hi: max(1, lo+rng.IntN(3))}
	default:
		p := &pattern{alt: k == 4}
		for range 1 + rng.IntN(3) {
			p.sub = append(p.sub, randomPattern(rng, depth-1, rules, self))
		}
		if p.alt && rng.IntN(3) == 0 {
			p.sub = append(p.sub, &pattern{})
		}
		return p
	}
}

func (p *pattern) String() string {
	var parts []string
	for _, s := range p.sub {
		parts = append(parts, s.String())
	}
	switch {
	case p.rule > 0:
		return fmt.Sprintf("r%d", p.rule)
	case p.hi != 0:
		return fmt.Sprintf("(%s){%d,%d}", parts[0], p.lo, p.hi)
	case p.alt:
		return "(" + strings.Join(parts, " | ") + ")"
	case len(parts) > 0:
		return "(" + strings.Join(parts, " ") + ")"
	}
	return fmt.Sprintf("%q", p.text)
}

// ends are the places where p can end that begins at a place in text: the independent, slow recogniser.
func (p *pattern) ends(text string, at int, rules []*pattern) map[int]bool {
	out := map[int]bool{}
	switch {
	case p.rule > 0:
		return rules[p.rule].ends(text, at, rules)
	case p.hi != 0:
		now := map[int]bool{at: true}
		for n := 0; n <= p.hi; n++ {
			next := map[int]bool{}
			for e := range now {
				if n >= p.lo {
					out[e] = true
				}
				for f := range p.sub[0].ends(text, e, rules) {
					next[f] = true
				}
			}
			now = next
		}
	case p.alt:
		for _, s := range p.sub {
			for e := range s.ends(text, at, rules) {
				out[e] = true
			}
		}
	case len(p.sub) > 0:
		now := map[int]bool{at: true}
		for _, s := range p.sub {
			next := map[int]bool{}
			for e := range now {
				for f := range s.ends(text, e, rules) {
					next[f] = true
				}
			}
			now = next
		}
		return now
	case strings.HasPrefix(text[at:], p.text):
		out[at+len(p.text)] = true
	}
	return out
}

// TestRandomGrammars: a text is accepted where the recogniser accepts it; whatever can be read can be completed; and masks of
// long tokens allow what reading their bytes allows.
func TestRandomGrammars(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	v := bytesVocabulary("ab", "abb", "bb", "ca", "cab", "bbb", "aab", "bca")
	for range 150 {
		const n = 3
		rules := []*pattern{nil}
		text := ""
		for i := 1; i <= n; i++ {
			rules = append(rules, randomPattern(rng, 3, n, i))
			text += fmt.Sprintf("r%d ::= %s\n", i, rules[i])
		}
		g, err := GBNF(text + "root ::= r1 # the first\n")
		if err != nil {
			t.Fatalf("%s%v", text, err)
		}
		m := machineOf(t, g, v)
		for range 150 {
			word := make([]byte, rng.IntN(8))
			for i := range word {
				word[i] = "abc"[rng.IntN(3)]
			}
			s := m.Start()
			got := s.AcceptText(word) == nil && s.CanEnd()
			if want := rules[1].ends(string(word), 0, rules)[len(word)]; got != want {
				t.Fatalf("%s%q: %v, want %v", text, word, got, want)
			}
		}
		for range 10 {
			walk(t, rng, m, v, func(word string) bool { return rules[1].ends(word, 0, rules)[len(word)] }, text)
		}
	}
}

func machineOf(t *testing.T, g *Grammar, v *Vocabulary) *Machine {
	t.Helper()
	m, err := NewMachine(g, v)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func maskOf(t *testing.T, s *State) []uint64 {
	t.Helper()
	mask, err := s.Mask()
	if err != nil {
		t.Fatal(err)
	}
	return mask
}

// walk draws allowed tokens until the text ends, and checks each mask against reading bytes.
func walk(t *testing.T, rng *rand.Rand, m *Machine, v *Vocabulary, valid func(string) bool, name string) {
	s, word := m.Start(), ""
	for range 200 {
		mask := maskOf(t, s)
		var can []int
		for id := range v.Size() - 1 {
			f := s.Fork()
			ok := f.Accept(id) == nil
			if ok != allowed(mask, id) {
				t.Fatalf("%s%q: token %q: mask %v, reading %v", name, word, v.tokens[id], allowed(mask, id), ok)
			}
			if ok {
				can = append(can, id)
			}
		}
		if allowed(mask, v.Size()-1) != s.CanEnd() {
			t.Fatalf("%s%q: the end: mask %v, state %v", name, word, !s.CanEnd(), s.CanEnd())
		}
		if len(can) == 0 && !s.CanEnd() {
			t.Fatalf("%s%q: a dead end", name, word)
		}
		if s.CanEnd() && (len(can) == 0 || rng.IntN(4) == 0) {
			if !valid(word) {
				t.Fatalf("%s%q ended, which is not valid", name, word)
			}
			if s.Ended() != (len(can) == 0) {
				t.Fatalf("%s%q: ended %v with %d tokens to come", name, word, s.Ended(), len(can))
			}
			return
		}
		id := can[rng.IntN(len(can))]
		if err := s.Accept(id); err != nil {
			t.Fatal(err)
		}
		word += string(v.tokens[id])
	}
}

func TestGBNF(t *testing.T) {
	for _, c := range []struct {
		grammar string
		yes, no []string
	}{
		{`root ::= "yes" | "no" ", " [a-c]{2}`, []string{"yes", "no, ab"}, []string{"no, a", "yesno", "no, abc"}},
		{"# comment\nroot ::= (\n  item (\",\" item)*\n)\nitem ::= [^,\\n]+ |\n  \"\\\"\" .  \"\\\"\"\n", []string{"a,b", `","`, "é,日本"}, []string{"", "a,,b", "a\n", "a\xff"}},
		{`root ::= [0-9]{3,} "é"? "\u00e9\x41"`, []string{"123éA", "12345ééA"}, []string{"12éA"}},
		{`root ::= "(" root ")" | ""`, []string{"", "((()))"}, []string{"(()", "())"}},
		{`root ::= ("a"? "b"?){100,100000}`, []string{"", "abab", "ba"}, []string{"c"}},
		{`root ::= [a-z]{1000}`, []string{strings.Repeat("q", 1000)}, []string{strings.Repeat("q", 999), strings.Repeat("q", 1001)}},
		{"root ::= a\na ::= \"x\" a | \"x\" b | \"y\"\nb ::= \"x\" a | \"z\"", []string{"xxxy", "xxz"}, []string{"zx"}},
	} {
		g, err := GBNF(c.grammar)
		if err != nil {
			t.Fatalf("%s: %v", c.grammar, err)
		}
		m := machineOf(t, g, bytesVocabulary())
		for _, s := range c.yes {
			if st := m.Start(); st.AcceptText([]byte(s)) != nil || !st.CanEnd() {
				t.Errorf("%s refuses %q", c.grammar, s)
			}
		}
		for _, s := range c.no {
			if st := m.Start(); st.AcceptText([]byte(s)) == nil && st.CanEnd() {
				t.Errorf("%s takes %q", c.grammar, s)
			}
		}
	}
}

func TestGBNFRefuses(t *testing.T) {
	for text, want := range map[string]error{"": ErrSyntax, "root ::= (not valid": ErrSyntax, "root ::= nope": ErrSyntax, "a ::= \"x\"": ErrSyntax, `root ::= "a`: ErrSyntax, `root ::= [a`: ErrSyntax,
		`root ::= "a" {2`: ErrSyntax, "root ::= \"a\"\nroot ::= \"b\"": ErrSyntax, "root ::= root \"a\" | \"b\"": ErrUnsupported, "root ::= a \"x\"\na ::= b\nb ::= \"\" root | \"q\"": ErrUnsupported,
		"root ::= \"a\" root": ErrEmpty, `root ::= <think>`: ErrUnsupported, "root ::= " + strings.Repeat("(", 60000): ErrTooLarge, `root ::= "a"{9999999}`: ErrTooLarge, `root ::= "\q"`: ErrSyntax, "root ::= \"a\" )": ErrSyntax} {
		if _, err := GBNF(text); !errors.Is(err, want) {
			t.Errorf("%.50q: %v, want %v", text, err, want)
		}
	}
}

// TestHostileGrammars stay small: states with exponentially many stacks are united.
func TestHostileGrammars(t *testing.T) {
	for _, text := range []string{"root ::= a\na ::= \"x\" b | \"x\" c | \"y\"\nb ::= a \"1\"\nc ::= a \"2\"", "root ::= (\"x\" | \"xx\" | \"xxx\")*", "root ::= \"x\" root \"y\" | \"x\" root \"z\" | \"xx\" root | \"\"", "root ::= ((\"x\"?){1000}){1000}"} {
		g, err := GBNF(text)
		if err != nil {
			t.Fatal(err)
		}
		m := machineOf(t, g, bytesVocabulary())
		s := m.Start()
		for i := range 300 {
			if err := s.AcceptText([]byte("x")); err != nil {
				t.Fatal(text, err)
			}
			if n := len(s.c.threads); n > 20 {
				t.Fatalf("%s: %d threads after %d bytes", text, n, i)
			}
		}
		maskOf(t, s)
	}
}
