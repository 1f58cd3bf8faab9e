package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestRename: module lines and imports change, of nested modules and of the root package too; other texts do not.
func TestRename(t *testing.T) {
	root := t.TempDir()
	files := map[string][2]string{
		"go.mod":       {"module old\n\nrequire other.org/old v1.0.0\n", "module new.org/x\n\nrequire other.org/old v1.0.0\n"},
		"sub/go.mod":   {"module old/sub\n", "module new.org/x/sub\n"},
		"a.go":         {"package a\n\nimport (\n\t\"old\"\n\tb \"old/b\"\n\t\"older/b\"\n)\n\nvar s = \"old/b\" // old/b\n", "package a\n\nimport (\n\t\"new.org/x\"\n\tb \"new.org/x/b\"\n\t\"older/b\"\n)\n\nvar s = \"old/b\" // old/b\n"},
		"testdata/x":   {"import \"old\"\n", "import \"old\"\n"},
		"docs/read.md": {"old/b\n", "old/b\n"},
	}
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text[0]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, bad := range []string{"", "a b", "/x", "x//y", "X.org/y"} {
		if n, err := rename(root, bad); n != 0 || !errors.Is(err, errPath) {
			t.Errorf("%q: %d files, %v", bad, n, err)
		}
	}
	if n, err := rename(root, "new.org/x"); n != 3 || err != nil {
		t.Errorf("%d files, %v", n, err)
	}
	for name, text := range files {
		if got, err := os.ReadFile(filepath.Join(root, name)); err != nil || string(got) != text[1] {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}
