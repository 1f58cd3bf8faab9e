package mapped

import "errors"

var (
	// ErrNotRegular is returned for a path that is a directory, device, pipe or socket.
	ErrNotRegular = errors.New("not a regular file")
	// ErrChanged is returned where a file is no longer the one that was opened: cut, grown, rewritten or replaced.
	ErrChanged = errors.New("model file changed while in use")
)
