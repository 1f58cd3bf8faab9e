// Package golden finds test oracles and real models for tests: the folder ../shared beside the checkout (or
// TERRACE_SHARED), and models named by TERRACE_TEST_SMOLLM2 and TERRACE_TEST_GEMMA3 or lying in the model cache. A test that
// needs what is not there skips and says what it misses.
//
// It is imported by tests only, and reads the environment for them.
package golden

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Thorough reports whether tables of cases are run whole, as CI does by TERRACE_TEST_THOROUGH=1. Otherwise a test that takes many
// seconds runs those of its cases that differ most.
func Thorough() bool { return os.Getenv("TERRACE_TEST_THOROUGH") != "" }

// Shared returns the path of a file or folder under the shared oracles, or skips the test.
func Shared(t testing.TB, path ...string) string {
	t.Helper()
	dir := os.Getenv("TERRACE_SHARED")
	if dir == "" {
		dir = filepath.Join(filepath.Dir(root(t)), "shared")
	}
	p := filepath.Join(append([]string{dir}, path...)...)
	if _, err := os.Stat(p); err != nil {
		t.Skipf("needs the shared oracle %s (beside the checkout, or TERRACE_SHARED)", filepath.Join(path...))
	}
	return p
}

// root is the folder of go.mod.
func root(t testing.TB) string {
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Fatal("no go.mod above the test's folder")
		}
		dir = up
	}
}

// models are the real models that tests may use: environment variable and place in the cache.
var models = map[string]struct{ env, file string }{
	"smollm2:135m": {"TERRACE_TEST_SMOLLM2", "smollm2"},
	"gemma3:270m":  {"TERRACE_TEST_GEMMA3", "gemma3"},
	"minilm:l6":    {"TERRACE_TEST_MINILM", "minilm"},
}

// Model returns the path of a real model, a GGUF file or a folder with safetensors, or skips the test.
func Model(t testing.TB, name string) string {
	t.Helper()
	m := models[name]
	if p := os.Getenv(m.env); p != "" {
		return p
	}
	home := os.Getenv("TERRACE_HOME")
	if home == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			t.Skipf("needs the model %s: run 'infer pull %s' or set %s", name, name, m.env)
		}
		home = filepath.Join(cache, "terrace")
	}
	var found string
	_ = filepath.WalkDir(home, func(path string, d os.DirEntry, err error) error {
		if err != nil || !strings.Contains(strings.ToLower(filepath.ToSlash(path)), m.file) {
			return nil
		}
		switch {
		case strings.HasSuffix(path, ".gguf"):
			found = path
		case d.Name() == "model.safetensors":
			found = filepath.Dir(path)
		default:
			return nil
		}
		return filepath.SkipAll
	})
	if found == "" {
		t.Skipf("needs the model %s: run 'infer pull %s' or set %s", name, name, m.env)
	}
	return found
}

// Lines decodes a JSONL file into values of one type.
func Lines[T any](t testing.TB, path string) []T {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out []T
	for line := range strings.Lines(string(data)) {
		var v T
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		out = append(out, v)
	}
	return out
}
