package units

import "errors"

var (
	// ErrSyntax is wrapped by every error about text that is not a quantity of the asked kind.
	ErrSyntax = errors.New("not a quantity")
	// ErrRange is wrapped by every error about a quantity that is negative, too large for its type or outside what the
	// kind allows.
	ErrRange = errors.New("out of range")
)
