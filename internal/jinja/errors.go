package jinja

import (
	"errors"
	"fmt"
)

// ErrLimit is inside every error that comes from a limit of a rendering.
var ErrLimit = errors.New("limit reached")

// SyntaxError is a template that cannot be parsed.
type SyntaxError struct {
	Line int
	Text string
}

// Error implements error.
func (e *SyntaxError) Error() string { return fmt.Sprintf("syntax: line %d: %s", e.Line, e.Text) }

// Raised is what a template refuses by raise_exception.
type Raised struct{ Text string }

// Error implements error.
func (e *Raised) Error() string { return e.Text }

// thrown carries an error of a rendering or of parsing to the recover of Render and Parse.
type thrown struct{ err error }

func throw(format string, args ...any) { panic(thrown{fmt.Errorf(format, args...)}) }

// caught turns a thrown error into a returned one; any other panic goes on.
func caught(err *error) {
	switch p := recover().(type) {
	case nil:
	case thrown:
		*err = p.err
	default:
		panic(p)
	}
}
