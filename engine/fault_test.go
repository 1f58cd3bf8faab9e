package engine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"terrace/internal/golden"
	"terrace/weights"
)

// TestModelCutWhileInUse truncates the mapped file, before the weights were read and after: the request fails with one
// error that says so, and the process lives on.
func TestModelCutWhileInUse(t *testing.T) {
	data, err := os.ReadFile(golden.Shared(t, "data", "golden", "tiny_gguf", "tiny-Q8_0.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	for _, warm := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "cut.gguf")
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		m := openFile(t, path)
		e, err := Open(m, Options{Threads: 2})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		s, err := e.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if warm {
			if err := s.Prefill(context.Background(), []int{1, 2, 3}, PrefillHooks{}); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Truncate(path, 4096); err != nil {
			t.Fatal(err)
		}
		if err := s.Prefill(context.Background(), []int{4, 5, 6}, PrefillHooks{}); !errors.Is(err, weights.ErrFileChanged) {
			t.Errorf("warm %v: %v, want ErrFileChanged", warm, err)
		}
	}
}
