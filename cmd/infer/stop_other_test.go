//go:build !unix

package main

import (
	"os/exec"
	"testing"
)

// stop skips the test: nothing stops a process here and lets it go on.
func stop(t *testing.T, _ *exec.Cmd) {
	t.Helper()
	t.Skip("no signals that stop a process here")
}

func goOn(*testing.T, *exec.Cmd) {}
