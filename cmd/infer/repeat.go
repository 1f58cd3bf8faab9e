package main

import (
	"errors"
	"strings"

	"terrace/engine"
	"terrace/tokenizer"
)

// KVzip's words (arXiv 2505.23416; kvpress's KVzipPress).
const (
	repeatFirst = "\n\nRepeat the previous context exactly."
	repeatNext  = "\n\nRepeat the part of the previous context exactly, starting with"
)

// repeatText tokenises what asks a model to say its context again, with the chat template's text around the user's words.
func repeatText(tok *tokenizer.Tokenizer) (*engine.RepeatText, error) {
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
