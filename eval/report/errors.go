package report

import "errors"

// ErrNothing is a comparison without what was asked to be shown.
var ErrNothing = errors.New("nothing to show")
