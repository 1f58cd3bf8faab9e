package report

import "errors"

// ErrNothing is a comparison without what was asked to be drawn.
var ErrNothing = errors.New("nothing to draw")
