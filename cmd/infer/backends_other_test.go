//go:build !xla

package main

import (
	"strings"
	"testing"
)

// TestXLANotBuiltIn: without the build tag the XLA backends are wrong usage, and the line says how to build them.
func TestXLANotBuiltIn(t *testing.T) {
	for _, backend := range []string{"xla:cpu", "xla:cuda"} {
		code, _, errs := runCommand("bench", "-m", "none.gguf", "--backend", backend)
		if code != exitUsage || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, "-tags xla") {
			t.Errorf("%s: exit %d: %q", backend, code, errs)
		}
	}
}
