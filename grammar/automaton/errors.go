package automaton

import "errors"

// Sentinels of this package.
var (
	ErrTooLarge    = errors.New("automaton too large")
	ErrSyntax      = errors.New("bad regular expression")
	ErrUnsupported = errors.New("not supported in a regular expression")
)
