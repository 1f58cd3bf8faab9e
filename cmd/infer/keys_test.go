package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// TestReadKeys: a byte order mark is no part of a key, a line that is too long is refused and not cut, a file that others can read is
// warned of.
func TestReadKeys(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	for _, c := range []struct {
		text  string
		mode  os.FileMode
		keys  []string
		warns bool
	}{
		{"\uFEFFsk-first-key\r\n# none\n\n sk-second-key \n", 0o600, []string{"sk-first-key", "sk-second-key"}, false},
		{"sk-first-key", 0o644, []string{"sk-first-key"}, true},
		{"sk-first-key\n" + strings.Repeat("k", maxKeyBytes+1), 0o600, nil, false},
		{strings.Repeat("k", maxKeyBytes), 0o600, []string{strings.Repeat("k", maxKeyBytes)}, false},
		{"short", 0o600, nil, false},
		{"# none\n", 0o600, nil, false},
	} {
		if err := os.WriteFile(path, []byte(c.text), c.mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, c.mode); err != nil {
			t.Fatal(err)
		}
		var told bytes.Buffer
		keys, err := (&serveCommand{app: newApp(context.Background(), nil, nil, &told)}).readKeys("--api-key-file", path)
		if !slices.Equal(keys, c.keys) || (err == nil) != (c.keys != nil) {
			t.Errorf("%.40q: %d keys, %v", c.text, len(keys), err)
		}
		if warned := strings.Contains(told.String(), "0644"); warned != (c.warns && runtime.GOOS != "windows") {
			t.Errorf("%.40q: %q", c.text, told.String())
		}
	}
}
