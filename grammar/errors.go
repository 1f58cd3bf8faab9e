package grammar

import "errors"

// Sentinels of this package.
var (
	ErrSyntax      = errors.New("bad grammar")
	ErrUnsupported = errors.New("not supported by the constraint")
	ErrEmpty       = errors.New("nothing can satisfy the constraint")
	ErrTooLarge    = errors.New("constraint too large")
	ErrForbidden   = errors.New("token forbidden by the constraint")
)
