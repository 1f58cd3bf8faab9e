package terrace

import (
	"context"
	"fmt"

	"terrace/grammar"
	"terrace/grammar/schema"
	"terrace/serve"
)

// Format is what an answer must be: no token is chosen that leads out of it. The zero value is anything; others are made by Schema,
// Object, Grammar, Regex and OneOf. What is wrong with one, or not supported, is an error of the answer, ErrOption.
type Format struct {
	key     string
	compile func() (*grammar.Grammar, error)
}

// Schema is JSON that a JSON schema describes.
func Schema(text string) Format {
	return Format{"schema " + text, func() (*grammar.Grammar, error) { return schema.Compile([]byte(text)) }}
}

// Object is any JSON object.
func Object() Format { return Format{"object", schema.Object} }

// Grammar is a text of a grammar in llama.cpp's form, GBNF.
func Grammar(gbnf string) Format {
	return Format{"grammar " + gbnf, func() (*grammar.Grammar, error) { return grammar.GBNF(gbnf) }}
}

// Regex is a text that a regular expression matches as a whole.
func Regex(pattern string) Format {
	return Format{"regex " + pattern, func() (*grammar.Grammar, error) { return schema.Regex(pattern) }}
}

// OneOf is one of some texts.
func OneOf(texts ...string) Format {
	return Format{fmt.Sprintf("choice %q", texts), func() (*grammar.Grammar, error) { return schema.Choice(texts) }}
}

// machine is a format over the model's tokens; nil = anything. Equal ones share what is computed for them, those of HTTP requests too.
func (m *Model) machine(ctx context.Context, f Format) (*grammar.Machine, error) {
	if f.compile == nil {
		return nil, nil
	}
	return serve.NewMachine(ctx, m.server, f.key, f.compile)
}
