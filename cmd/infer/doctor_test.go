package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"terrace/internal/kernels"
)

// TestDoctor: every kernel path gives the tokens of the self-test; a folder of models that cannot be, and wrong tokens, are said.
func TestDoctor(t *testing.T) {
	args := []string{"doctor", "--disk=false", "--home"}
	code, out, errs := inferWith(t, "", append(args, t.TempDir())...)
	if n := strings.Count(out, "ten tokens, as they should be"); code != 0 || n != len(kernels.Available()) {
		t.Errorf("exit %d, %d of %d paths right: %s%s", code, n, len(kernels.Available()), out, errs)
	}
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out, _ := inferWith(t, "", append(args, filepath.Join(file, "home"))...); code != exitCheck || !strings.Contains(out, "give another --home") {
		t.Errorf("no folder of models: exit %d: %s", code, out)
	}
	right := selfTokens
	defer func() { selfTokens = right }()
	selfTokens = slices.Clone(right)
	selfTokens[9]++
	if code, out, _ := inferWith(t, "", append(args, t.TempDir(), "--json")...); code != exitCheck || strings.Count(out, "do not trust this path") != len(kernels.Available()) {
		t.Errorf("other tokens: exit %d: %s", code, out)
	}
}
