package eval

import "errors"

var (
	// ErrData marks benchmark data that is missing, malformed or not what a suite needs; the message names file and line.
	ErrData = errors.New("bad evaluation data")
	// ErrOption marks a suite or run option that is out of range or unknown.
	ErrOption = errors.New("bad evaluation option")
	// ErrTooLong is a sample that does not fit the model's context with what is to be generated.
	ErrTooLong = errors.New("sample does not fit the context")
)
