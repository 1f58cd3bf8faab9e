package main

import (
	"fmt"
	"io"
	"os"

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
	schemaFile  string
	grammarFile string
}

func (f *constrainFlags) add(cmd *cobra.Command) {
	p := cmd.Flags()
	p.StringVar(&f.schemaFile, "json-schema", "", "the text is JSON that satisfies the schema in this file")
	p.StringVar(&f.grammarFile, "grammar", "", "the text is one of the GBNF grammar in this file")
}

// compile reads the file that is named, if one is; it needs no model.
func (f *constrainFlags) compile() (*grammar.Grammar, error) {
	name, file, compile := "--json-schema", f.schemaFile, schema.Compile
	if f.grammarFile != "" {
		if f.schemaFile != "" {
			return nil, usageErrorf("--json-schema and --grammar exclude each other")
		}
		name, file, compile = "--grammar", f.grammarFile, func(text []byte) (*grammar.Grammar, error) { return grammar.GBNF(string(text)) }
	}
	if file == "" {
		return nil, nil
	}
	text, err := readConstraint(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	g, err := compile(text)
	if err != nil {
		return nil, usageErrorf("%s %s: %v", name, file, err)
	}
	return g, nil
}

// text is what is in the file that is named, "" where none is.
func (f *constrainFlags) text() (string, error) {
	file := orDefault(f.schemaFile, f.grammarFile)
	if file == "" {
		return "", nil
	}
	b, err := readConstraint(file)
	return string(b), err
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
