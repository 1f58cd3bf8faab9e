package run

import "errors"

var (
	// ErrChanged is returned when a folder holds a run with other options; the message names the field and both values.
	ErrChanged = errors.New("folder holds a run with other options")
	// ErrBusy is returned when another process works in the folder; the message has its process id.
	ErrBusy = errors.New("folder is in use")
	// ErrFolder marks a folder whose files cannot be what a run left there.
	ErrFolder = errors.New("not a run folder")
)
