package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestServeModels: what several models cannot be served with is said before any is loaded.
func TestServeModels(t *testing.T) {
	other := filepath.Join(t.TempDir(), "other.gguf")
	data, err := os.ReadFile(tinyModel)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(other, data, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, c := range map[string]struct {
		code int
		args []string
	}{
		"named twice":                  {exitUsage, []string{tinyModel, tinyModel}},
		"--tier is of one model":       {exitUsage, []string{tinyModel, other, "--tier", "host=1MiB"}},
		"--lora is of one model":       {exitUsage, []string{tinyModel, other, "--lora", "x"}},
		"name all as arguments":        {exitUsage, []string{tinyModel, other, "--model", tinyModel}},
		"it is for several models":     {exitUsage, []string{tinyModel, "--models-memory", "1GiB"}},
		"want a size such as 8GiB":     {exitUsage, []string{tinyModel, other, "--models-memory", "much"}},
		"the models together may take": {exitMemory, []string{tinyModel, other, "--models-memory", "1KiB"}},
		"no such file":                 {exitData, []string{tinyModel, other + "x"}},
	} {
		code, _, errs := inferWith(t, "", append([]string{"serve", "--addr", "127.0.0.1:0"}, c.args...)...)
		if code != c.code || !strings.Contains(errs, want) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%v: exit %d, want %d and %q in one line: %q", c.args, code, c.code, want, errs)
		}
	}
}
