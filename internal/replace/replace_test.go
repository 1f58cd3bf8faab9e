package replace

import (
	"os"
	"path/filepath"
	"testing"
)

// TestReplace: nothing is seen of a file before it is whole, and nothing is left of one that was given up.
func TestReplace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := WriteFile(path, []byte("one"), 0o600); err != nil {
		t.Fatal(err)
	}
	holds := func(want string) {
		t.Helper()
		if b, err := os.ReadFile(path); string(b) != want || err != nil {
			t.Errorf("the file holds %q, want %q: %v", b, want, err)
		}
	}
	holds("one")
	for _, finish := range []bool{false, true} {
		f, err := New(path, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte("two")); err != nil {
			t.Fatal(err)
		}
		holds("one")
		if finish {
			if err := f.CloseAtomicallyReplace(); err != nil {
				t.Error(err)
			}
		}
		if err := f.Cleanup(); err != nil {
			t.Error(err)
		}
	}
	holds("two")
	if all, err := os.ReadDir(filepath.Dir(path)); len(all) != 1 || err != nil {
		t.Errorf("left beside the file: %v, %v", all, err)
	}
}
