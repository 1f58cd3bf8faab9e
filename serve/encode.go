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

// encode tokenises a text in a turn that gives way to others. Errors blame a field.
func (s *Server) encode(ctx context.Context, field, text string, o tokenizer.EncodeOptions) (ids []int, err error) {
	if len(text) > largeTextBytes { // its working memory is many times as much, and stays while it gives way
		t, err := s.large.take(ctx, keyOf(ctx))
		if err != nil {
			return nil, err
		}
		defer t.end()
	}
	t, err := s.encoding.take(ctx, keyOf(ctx))
	if err != nil {
		return nil, err
	}
	defer t.end()
	o.Pause = func() error { return t.pause(ctx) }
	switch ids, err = s.o.Tokenizer.EncodeWith(text, o); {
	case err == nil:
		return ids, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, tokenizer.ErrTooMany):
		return nil, s.tooLong(o.Most)
	}
	return nil, badField(field, "%s", oneLine(err))
}

// encodePrompt is encode of a prompt: one that is too long for the context by its bytes alone is refused without tokenising it.
func (s *Server) encodePrompt(ctx context.Context, field, text string, o tokenizer.EncodeOptions) ([]int, error) {
	window := s.o.Engine.Options().Context
	if s.o.Tokenizer.AtLeast(text) > window {
		return nil, s.tooLong(window)
	}
	o.Most = countedContexts * window
	return s.encode(ctx, field, text, o)
}

// tooLong refuses a prompt of more than some tokens.
func (s *Server) tooLong(tokens int) *Error {
	return &Error{Status: http.StatusBadRequest, Code: "context_length_exceeded",
		Message: fmt.Sprintf("the prompt has more than %d tokens; this server's context is %d tokens, the answer's included", tokens, s.o.Engine.Options().Context)}
}

// busy runs other work that takes processor time before a request is queued, a few at a time.
func (s *Server) busy(ctx context.Context, f func() error) error {
	t, err := s.working.take(ctx, keyOf(ctx))
	if err != nil {
		return err
	}
	defer t.end()
	return f()
}
