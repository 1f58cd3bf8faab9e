package schema

import (
	"errors"
	"fmt"

	"terrace/grammar"
	"terrace/grammar/automaton"
)

// texts is a set of strings: those of an automaton (nil: all) with min to max code points (max < 0: no limit).
type texts struct {
	dfa      *automaton.DFA
	min, max int
}

var allTexts = texts{nil, 0, -1}

// empty says that there is none; what a length and an automaton leave is seen when they are combined.
func (t texts) empty() bool {
	return t.max >= 0 && t.min > t.max || t.dfa != nil && t.dfa.Empty()
}

func (t texts) counted() bool { return t.min > 0 || t.max >= 0 }

func (t texts) and(u texts) (texts, error) {
	out := texts{t.dfa, max(t.min, u.min), t.max}
	if out.max < 0 || u.max >= 0 && u.max < out.max {
		out.max = u.max
	}
	switch {
	case t.dfa == nil:
		out.dfa = u.dfa
	case u.dfa != nil && u.dfa != t.dfa:
		d, err := automaton.Intersect(t.dfa, u.dfa)
		if err != nil {
			return texts{}, tooLarge(err)
		}
		out.dfa = d
	}
	if out.dfa == nil || !out.counted() || out.empty() {
		return out, nil
	}
	near, extends := out.dfa.Distances()
	if out.max >= 0 && int(near[0]) > out.max {
		return texts{nil, 1, 0}, nil
	}
	if int(near[0]) >= out.min { // no text is shorter
		out.min = 0
	}
	if (extends || out.min == 0) && out.size() > 500 {
		return out, nil // counted as it is read
	}
	return out.whole()
}

// size is how many states an automaton that counts has at most.
func (t texts) size() int { return t.dfa.States() * (max(t.min, t.max) + 1) }

// whole puts the lengths into the automaton.
func (t texts) whole() (texts, error) {
	if t.dfa == nil || !t.counted() {
		return t, nil
	}
	err := error(automaton.ErrTooLarge)
	var lengths *automaton.DFA
	if t.size() <= 8*automaton.MaxStates { // otherwise most of them would have to be equal
		lengths, err = automaton.Lengths(t.min, t.max)
	}
	if err != nil {
		return texts{}, tooLarge(fmt.Errorf("pattern or format together with minLength %d, maxLength %d: %w", t.min, t.max, err))
	}
	d, err := automaton.Intersect(t.dfa, lengths)
	if err != nil {
		return texts{}, tooLarge(fmt.Errorf("pattern or format together with minLength %d, maxLength %d: %w", t.min, t.max, err))
	}
	return texts{d, 0, -1}, nil
}

// not are the strings outside.
func (t texts) not() (out []texts, err error) {
	if t.dfa != nil {
		d, err := automaton.Complement(t.dfa)
		if err != nil {
			return nil, tooLarge(err)
		}
		out = append(out, texts{d, 0, -1})
	}
	if t.min > 0 {
		out = append(out, texts{nil, 0, t.min - 1})
	}
	if t.max >= 0 {
		out = append(out, texts{nil, t.max + 1, -1})
	}
	return out, nil
}

// automatonOf is the union of sets as one automaton; nil is all strings.
func automatonOf(list []texts) (*automaton.DFA, error) {
	var out *automaton.DFA
	for i, t := range list {
		if t == allTexts {
			return nil, nil
		}
		if t.dfa == nil {
			t.dfa = automaton.All()
		}
		t, err := t.whole()
		if err != nil {
			return nil, err
		}
		if i == 0 {
			out = t.dfa
		} else if out, err = automaton.Union(out, t.dfa); err != nil {
			return nil, tooLarge(err)
		}
	}
	if out == nil {
		return automaton.Texts(nil)
	}
	return out, nil
}

// tooLarge gives an error of package automaton its meaning here.
func tooLarge(err error) error {
	switch {
	case errors.Is(err, automaton.ErrSyntax):
		return fmt.Errorf("%v: %w", err, grammar.ErrSyntax)
	case errors.Is(err, automaton.ErrUnsupported):
		return fmt.Errorf("%v: %w", err, grammar.ErrUnsupported)
	}
	return fmt.Errorf("%v: %w", err, grammar.ErrTooLarge)
}

// pattern is the automaton of a regular expression found anywhere in a string.
func pattern(expr string) (*automaton.DFA, error) {
	n, err := automaton.Parse(expr)
	if err != nil {
		return nil, tooLarge(err)
	}
	d, err := automaton.Search(n)
	if err != nil {
		return nil, tooLarge(fmt.Errorf("pattern %.80q: %w", expr, err))
	}
	return d, nil
}
