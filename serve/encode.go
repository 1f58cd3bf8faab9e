package serve

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"terrace/tokenizer"
)

// countedContexts is up to how many contexts a prompt's tokens are counted: a longer one is refused as soon as that is known.
const countedContexts = 4

// largeTextBytes is from how many bytes on texts are tokenised largeTexts at a time.
const (
	largeTextBytes = 64 << 10
	largeTexts     = 2
)

// promptWriter makes a prompt's tokens from what clients send: by the model's template, in turns that share the processors.
type promptWriter struct {
	tok      *tokenizer.Tokenizer
	window   int    // tokens that a text may have
	special  bool   // Options.SpecialInContent
	encoding *turns // of texts that are tokenised
	large    *turns // of those that are large, from their beginning to their end
	working  *turns // of templates that are rendered and grammars that are compiled
}

func newPromptWriter(o *Options) *promptWriter {
	e := o.Engine.Options()
	return &promptWriter{tok: o.Tokenizer, window: e.Context, special: o.SpecialInContent, encoding: newTurns(max(2, e.Threads)), large: newTurns(largeTexts), working: newTurns(max(2, e.Threads/2))}
}

// encode tokenises a text in a turn that gives way to others. Errors blame a field.
func (w *promptWriter) encode(ctx context.Context, field, text string, o tokenizer.EncodeOptions) (ids []int, err error) {
	if len(text) > largeTextBytes { // its working memory is many times as much, and stays while it gives way
		t, err := w.large.take(ctx, keyOf(ctx))
		if err != nil {
			return nil, err
		}
		defer t.end()
	}
	t, err := w.encoding.take(ctx, keyOf(ctx))
	if err != nil {
		return nil, err
	}
	defer t.end()
	o.Pause = func() error { return t.pause(ctx) }
	switch ids, err = w.tok.EncodeWith(text, o); {
	case err == nil:
		return ids, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, tokenizer.ErrTooMany):
		return nil, w.tooLong(o.Most)
	}
	return nil, badField(field, "%s", oneLine(err))
}

// encodePrompt is encode of a prompt: one that is too long for the context by its bytes alone is refused without tokenising it.
func (w *promptWriter) encodePrompt(ctx context.Context, field, text string, o tokenizer.EncodeOptions) ([]int, error) {
	window := w.window
	if w.tok.AtLeast(text) > window {
		return nil, w.tooLong(window)
	}
	o.Most = countedContexts * window
	return w.encode(ctx, field, text, o)
}

// tooLong refuses a prompt of more than some tokens.
func (w *promptWriter) tooLong(tokens int) *Error {
	return &Error{Status: http.StatusBadRequest, Code: "context_length_exceeded",
		Message: fmt.Sprintf("the prompt has more than %d tokens; the context is %d tokens, the answer's included", tokens, w.window)}
}

// busy runs other work that takes processor time before a request is queued, a few at a time.
func (w *promptWriter) busy(ctx context.Context, f func() error) error {
	t, err := w.working.take(ctx, keyOf(ctx))
	if err != nil {
		return err
	}
	defer t.end()
	return f()
}
