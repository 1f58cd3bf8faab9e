package bert

import "errors"

var (
	// ErrNotEncoder is wrapped where a model is no BERT encoder.
	ErrNotEncoder = errors.New("not an encoder")
	// ErrTooLong is wrapped where a text has more tokens than the encoder takes.
	ErrTooLong = errors.New("text too long for the encoder")
	// ErrModel is wrapped by every error about figures or tensors of an encoder.
	ErrModel = errors.New("bad encoder model")
	// ErrToken is wrapped where an id is not in the vocabulary, or a text has no token.
	ErrToken = errors.New("bad token")
)
