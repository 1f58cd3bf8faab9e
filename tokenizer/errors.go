package tokenizer

import "errors"

var (
	// ErrVocab is wrapped by every error about a vocabulary that contradicts
	// itself: an id out of range, a merge of unknown parts, lists of unequal
	// length. The message names the entry.
	ErrVocab = errors.New("bad vocabulary")

	// ErrUnsupported is wrapped when a vocabulary is well formed but asks for
	// something this package does not do; the message names it and lists what
	// is known.
	ErrUnsupported = errors.New("unsupported tokenizer")

	// ErrEncode is wrapped when a text cannot be encoded: the model's own split
	// pattern ran out of time, the text is too long, or a character has no
	// token and the vocabulary has no way to say so.
	ErrEncode = errors.New("cannot encode")

	// ErrTooMany is wrapped when a text has more tokens than were asked for.
	ErrTooMany = errors.New("too many tokens")

	// ErrNoTemplate is returned by RenderChat when the model has no chat
	// template.
	ErrNoTemplate = errors.New("the model has no chat template")

	// ErrTemplate is wrapped by every failure of a chat template: it cannot be
	// parsed, it raised an exception, it ran past a limit.
	ErrTemplate = errors.New("chat template failed")
)
