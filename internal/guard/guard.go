// Package guard turns a panic of a request into an error, so that the request fails and the process goes on.
//
// What it owns: Crash and the one place that recovers. What it never does: hide a bug; the stack is kept.
package guard

import (
	"errors"
	"fmt"
	"runtime/debug"
)

// ErrInternal wraps a panic that a request caused: a bug.
var ErrInternal = errors.New("internal error")

// Crash is a panic that a request caused. It wraps ErrInternal and keeps the stack for who debugs it.
type Crash struct {
	Value any
	Stack []byte
}

func (c *Crash) Error() string {
	return fmt.Sprintf("%v: %v (a bug, please report it)", ErrInternal, c.Value)
}

// Unwrap makes a Crash match ErrInternal.
func (c *Crash) Unwrap() error { return ErrInternal }

// Run calls fn; a panic in it is returned as a Crash.
func Run(fn func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &Crash{Value: r, Stack: debug.Stack()}
		}
	}()
	return fn()
}
