package schema

import (
	"errors"
	"testing"

	"terrace/grammar"
)

// TestPlainTexts: what an expression or a list of texts lets be written, and what neither does.
func TestPlainTexts(t *testing.T) {
	v, _ := vocabulary()
	regex := func(s string) func() (*grammar.Grammar, error) {
		return func() (*grammar.Grammar, error) { return Regex(s) }
	}
	for name, c := range map[string]struct {
		compile func() (*grammar.Grammar, error)
		yes, no []string
	}{
		"digits":   {regex("[0-9]{3}"), []string{"123"}, []string{"12", "1234", "12a"}},
		"anchored": {regex("^(yes|no)$"), []string{"yes", "no"}, []string{"maybe", "yesno"}},
		"choice":   {func() (*grammar.Grammar, error) { return Choice([]string{"é", "eb", "e"}) }, []string{"é", "eb", "e"}, []string{"b", "ebb"}},
	} {
		g, err := c.compile()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		m := machineOf(t, g, v)
		for want, list := range map[bool][]string{true: c.yes, false: c.no} {
			for _, text := range list {
				s := m.Start()
				if got := s.AcceptText([]byte(text)) == nil && s.CanEnd(); got != want {
					t.Errorf("%s: %q is %v", name, text, got)
				}
			}
		}
	}
	if _, err := Regex("("); !errors.Is(err, grammar.ErrSyntax) {
		t.Error(err)
	}
	if _, err := Choice(nil); !errors.Is(err, grammar.ErrEmpty) {
		t.Error(err)
	}
}
