// Package texts has what policies let a model read beside its prompt: a sample, whose queries or keys infinigen and kvswap decompose,
// and the words that ask for a prompt once more (kvzip).
package texts

import (
	_ "embed" // for the sample
	"errors"
	"fmt"
	"strings"

	"terrace/engine"
	"terrace/tokenizer"
)

//go:embed calibration.txt
var calibration string

// Calibration tokenises the sample, for engine.Options.Calibration.
func Calibration(tok *tokenizer.Tokenizer) ([]int, error) {
	ids, err := tok.Encode(calibration, true, false)
	if err != nil {
		return nil, fmt.Errorf("texts: the sample: %w", err)
	}
	return ids, nil
}

// KVzip's words (arXiv 2505.23416; kvpress's KVzipPress).
const (
	repeatFirst = "\n\nRepeat the previous context exactly."
	repeatNext  = "\n\nRepeat the part of the previous context exactly, starting with"
)

// Repeat tokenises what asks a model to say its context again, with the chat template's text around the user's words. An error is
// that of a template which does not render them.
func Repeat(tok *tokenizer.Tokenizer) (*engine.RepeatText, error) {
	const words = "THE-USERS-WORDS"
	before, after := "", "\n"
	if tok.HasTemplate() {
		rendered, err := tok.RenderChat([]tokenizer.Message{{Role: "user", Content: words}}, true)
		if err != nil && !errors.Is(err, tokenizer.ErrNoTemplate) {
			return nil, err
		}
		if b, a, ok := strings.Cut(rendered, words); ok {
			before, after = b, a
		}
	}
	r := &engine.RepeatText{}
	for _, part := range []struct {
		text  string
		parse bool
		ids   *[]int
	}{{before, true, &r.Prefix}, {repeatFirst, false, &r.First}, {repeatNext, false, &r.Next}, {after, true, &r.Suffix}} {
		ids, err := tok.Encode(part.text, false, part.parse)
		if err != nil {
			return nil, err
		}
		*part.ids = ids
	}
	return r, nil
}
