package report

import "errors"

var (
	// ErrNothing is a comparison without what was asked to be shown.
	ErrNothing = errors.New("nothing to show")
	// ErrPoint is a [BytesPoint] that cannot be read.
	ErrPoint = errors.New("unknown amount of KV")
)
