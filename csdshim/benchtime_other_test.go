//go:build !unix

package csdshim

import "testing"

// processorTime reports nothing: this system does not say.
func processorTime(*testing.B) (report func()) { return func() {} }
