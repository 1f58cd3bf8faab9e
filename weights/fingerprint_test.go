package weights

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// TestFingerprint: it follows what a model computes, not what its files are called.
func TestFingerprint(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, text []byte) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	of := func(path string, adapters ...Adapter) string {
		t.Helper()
		got, err := Fingerprint(path, adapters...)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	long := make([]byte, 3<<20)
	a := write("a.gguf", long)
	first := of(a)
	if len(first) != 24 || of(write("b.gguf", long)) != first {
		t.Errorf("%q is not that of the same bytes under another name", first)
	}
	if got := of(write("empty", nil)); got != "9a271f2a916b0b6ee6cecb24" {
		t.Errorf("of a size of 0: %s", got)
	}
	long[2<<20+1] = 1
	if of(write("c.gguf", long)) == first {
		t.Error("the last MiB does not count")
	}
	if of(write("d.gguf", make([]byte, 3<<20+1))) == first {
		t.Error("the size does not count")
	}
	write("folder/config.json", []byte("{}"))
	folder := of(filepath.Join(dir, "folder"))
	write("folder/README.md", []byte("x"))
	if of(filepath.Join(dir, "folder")) != folder {
		t.Error("a file that is not the model's counts")
	}
	write("folder/model.safetensors", []byte("x"))
	if of(filepath.Join(dir, "folder")) == folder {
		t.Error("the weights do not count")
	}
	one, two := of(a, Adapter{a, 1}), of(a, Adapter{a, 2})
	if one == first || one == two || of(a, Adapter{a, 1}, Adapter{a, 1}) == one {
		t.Errorf("adapters: %s %s %s", first, one, two)
	}
	if _, err := Fingerprint(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if _, err := Fingerprint(a, Adapter{filepath.Join(dir, "none"), 1}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no adapter: %v", err)
	}
}
