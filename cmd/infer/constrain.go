package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"terrace/engine"
	"terrace/grammar"
	"terrace/grammar/schema"
	"terrace/tokenizer"
)

// maxConstraintBytes bounds a file with a schema or a grammar.
const maxConstraintBytes = 4 << 20

// constrainFlags say what a text may be.
type constrainFlags struct {
	schema  string // JSON, or the name of a file
	grammar string // GBNF, or the name of a file
	format  string // json, or a schema as JSON: Ollama's flag
}

func (f *constrainFlags) add(cmd *cobra.Command) {
	p := cmd.Flags()
	p.StringVar(&f.schema, "json-schema", "", "the text is JSON that satisfies this schema: JSON ({…), or a file with it")
	p.StringVar(&f.grammar, "grammar", "", "the text is one of this grammar: GBNF (root ::= …), or a file with it")
	p.StringVar(&f.format, "format", "", "json: the text is a JSON object; or a schema, as --json-schema")
}

// anyObject is the schema of --format json.
const anyObject = `{"type": "object"}`

// given is the flag that was given, its value, and the constraint's text; name is empty where none was.
func (f *constrainFlags) given() (name, value, text string, err error) {
	for _, x := range []struct {
		name, value string
		inline      bool
	}{
		{"--json-schema", f.schema, strings.HasPrefix(strings.TrimSpace(f.schema), "{")},
		{"--grammar", f.grammar, strings.Contains(f.grammar, "::=")},
		{"--format", f.format, strings.HasPrefix(strings.TrimSpace(f.format), "{")},
	} {
		switch {
		case x.value == "":
			continue
		case name != "":
			return "", "", "", usageErrorf("%s and %s exclude each other", name, x.name)
		}
		name, value, text = x.name, x.value, x.value
		switch {
		case x.inline:
			value = "given"
		case x.name == "--format":
			if text = anyObject; x.value != "json" {
				return "", "", "", usageErrorf("--format %s: want json, or a JSON schema", x.value)
			}
		default:
			b, err := readConstraint(x.value)
			if err != nil {
				return "", "", "", fmt.Errorf("%s: %w", name, err)
			}
			text = string(b)
		}
	}
	return name, value, text, nil
}

// compile compiles the constraint, nil where there is none; it needs no model.
func (f *constrainFlags) compile() (*grammar.Grammar, error) {
	name, value, text, err := f.given()
	if name == "" || err != nil {
		return nil, err
	}
	var g *grammar.Grammar
	if name == "--grammar" {
		g, err = grammar.GBNF(text)
	} else {
		g, err = schema.Compile([]byte(text))
	}
	if err != nil {
		return nil, usageErrorf("%s %s: %v", name, value, err)
	}
	return g, nil
}

// text is the constraint's text, "" where there is none.
func (f *constrainFlags) text() (string, error) {
	_, _, text, err := f.given()
	return text, err
}

func readConstraint(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxConstraintBytes+1))
	if len(text) > maxConstraintBytes {
		return nil, fmt.Errorf("%s is larger than %d bytes", file, maxConstraintBytes)
	}
	return text, err
}

// constraint is what a text under g may be; nil where g is.
func constraint(g *grammar.Grammar, tok *tokenizer.Tokenizer) (engine.Constraint, error) {
	if g == nil {
		return nil, nil
	}
	m, err := grammar.NewMachine(g, grammar.NewVocabulary(tok.Pieces(nil)))
	if err != nil {
		return nil, err
	}
	return m.Start(), nil
}
