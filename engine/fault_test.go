package engine

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"terrace/engine/fakes"
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
		s, err := e.NewSession(e.Policy())
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

// TestModelWrittenOver writes the model's file again, in place, in the middle of each kind of run: none of them may end as
// if nothing had happened.
func TestModelWrittenOver(t *testing.T) {
	data, err := os.ReadFile(golden.Shared(t, "data", "golden", "tiny_gguf", "tiny-Q8_0.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	ids := fakes.IDs(40, 3)
	for name, run := range map[string]func(e *Engine, change func()) error{
		"prefill": func(e *Engine, change func()) error {
			s, err := e.NewSession(e.Policy())
			if err != nil {
				return err
			}
			defer s.Close()
			return s.Prefill(t.Context(), ids, PrefillHooks{Progress: func(int, int) { change() }})
		},
		"logits of every token": func(e *Engine, change func()) error {
			s, err := e.NewSession(e.Policy())
			if err != nil {
				return err
			}
			defer s.Close()
			return s.Prefill(t.Context(), ids, PrefillHooks{Each: func(int, []float32) error { change(); return nil }})
		},
		"generate": func(e *Engine, change func()) error {
			_, err := e.Generate(t.Context(), Request{IDs: ids, MaxTokens: 4, Text: letters{}, OnText: func(string) error { change(); return nil }})
			return err
		},
	} {
		path := filepath.Join(t.TempDir(), "over.gguf")
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		past := time.Now().Add(-time.Hour)
		if err := os.Chtimes(path, past, past); err != nil {
			t.Fatal(err)
		}
		e := openModel(t, path, Options{Threads: 2})
		if err := run(e, func() {}); err != nil {
			t.Errorf("%s, file left alone: %v", name, err)
		}
		changed := false
		err := run(e, func() {
			if err := os.WriteFile(path, data, 0o644); err != nil {
				t.Fatal(err)
			}
			changed = true
		})
		if !changed || !errors.Is(err, weights.ErrFileChanged) {
			t.Errorf("%s: %v (written over: %v), want ErrFileChanged", name, err, changed)
		}
	}
}

// TestModelWrittenOverWithNaN writes weights that give NaN over the model's file, in place, in the middle of a run: what is
// wrong is that the file changed, not that the arithmetic is broken. (At least the rows of embeddings are read where they lie.)
func TestModelWrittenOverWithNaN(t *testing.T) {
	data, err := os.ReadFile(golden.Shared(t, "data", "golden", "tiny_gguf", "tiny-F32.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	const header = 16 << 10
	broken := append(slices.Clone(data[:header]), bytes.Repeat([]byte{0xff}, len(data)-header)...)
	for name, run := range map[string]func(e *Engine, change func()) (*Session, error){
		"logits of every token": func(e *Engine, change func()) (*Session, error) {
			s, err := e.NewSession(e.Policy())
			if err != nil {
				return nil, err
			}
			return s, s.Prefill(t.Context(), fakes.IDs(40, 3), PrefillHooks{Each: func(_ int, logits []float32) error {
				change()
				return CheckFinite(logits)
			}})
		},
		"generate": func(e *Engine, change func()) (*Session, error) {
			s, err := e.NewSession(e.Policy())
			if err != nil {
				return nil, err
			}
			_, err = s.Generate(t.Context(), Request{IDs: fakes.IDs(40, 3), MaxTokens: 8, Text: letters{}, OnText: func(string) error { change(); return nil }})
			return s, err
		},
	} {
		path := filepath.Join(t.TempDir(), "over.gguf")
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		past := time.Now().Add(-time.Hour)
		if err := os.Chtimes(path, past, past); err != nil {
			t.Fatal(err)
		}
		e := openModel(t, path, Options{Threads: 2, ChunkTokens: 16})
		s, err := run(e, func() {
			if err := os.WriteFile(path, broken, 0o644); err != nil {
				t.Fatal(err)
			}
		})
		if !errors.Is(err, weights.ErrFileChanged) || errors.Is(err, ErrNotFinite) {
			t.Errorf("%s: %v, want ErrFileChanged alone", name, err)
		}
		if n := len(s.IDs()); n == 40 || n == 47 {
			t.Errorf("%s came to its end of %d tokens: the weights written over gave no NaN", name, n)
		}
		s.Close()
	}
}
