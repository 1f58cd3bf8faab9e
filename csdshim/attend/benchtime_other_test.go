//go:build !unix

package attend

import "testing"

// processorTime reports nothing: this system does not say.
func processorTime(*testing.B) (report func()) { return func() {} }
