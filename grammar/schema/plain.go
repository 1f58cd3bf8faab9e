package schema

import (
	"fmt"

	"terrace/grammar"
	"terrace/grammar/automaton"
)

// Regex is the grammar of the texts that a regular expression (ECMA-262, as in pattern) matches from start to end.
func Regex(expr string) (*grammar.Grammar, error) {
	n, err := automaton.Parse(expr)
	if err != nil {
		return nil, tooLarge(err)
	}
	d, err := automaton.Whole(n)
	if err != nil {
		return nil, tooLarge(fmt.Errorf("pattern %.80q: %w", expr, err))
	}
	return plain(grammar.Text(d))
}

// Choice is the grammar of some texts alone.
func Choice(texts []string) (*grammar.Grammar, error) {
	d, err := automaton.Texts(texts)
	if err != nil {
		return nil, tooLarge(err)
	}
	return plain(grammar.Text(d))
}

func plain(e *grammar.Expr) (*grammar.Grammar, error) {
	var b grammar.Builder
	root := b.Rule("root")
	b.Set(root, e)
	return b.Compile(root)
}
