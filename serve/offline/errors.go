package offline

import "errors"

// Sentinels of this package.
var (
	ErrOther = errors.New("output of other rows or settings")
	ErrBusy  = errors.New("output in use")
)
