package convert

import (
	"os"
	"path/filepath"
	"testing"
)

// shared finds a file of the material shared beside the repository (or under TERRACE_SHARED); the test is skipped without it.
func shared(t testing.TB, parts ...string) string {
	t.Helper()
	root := os.Getenv("TERRACE_SHARED")
	for dir := "."; root == ""; dir = filepath.Join("..", dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			root = filepath.Join(dir, "..", "shared")
		} else if abs, _ := filepath.Abs(dir); abs == filepath.Dir(abs) {
			t.Skip("no go.mod above the test")
		}
	}
	path := filepath.Join(append([]string{root}, parts...)...)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("skipped: %s is not there (set TERRACE_SHARED)", path)
	}
	return path
}
