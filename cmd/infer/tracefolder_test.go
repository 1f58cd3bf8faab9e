package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// TestTraceFolder: the newest files of a run are kept, and what was there before.
func TestTraceFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "traces")
	f := traceFolder{dir: dir}
	create, err := f.open()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "old.json"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range keptTraces + 5 {
		w, err := create(fmt.Sprintf("req_%d", i))
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "*-req_*.json"))
	if err != nil || len(files) != keptTraces {
		t.Fatalf("%d files, want %d", len(files), keptTraces)
	}
	for i := range 5 {
		if gone, _ := filepath.Glob(filepath.Join(dir, fmt.Sprintf("*-req_%d.json", i))); len(gone) > 0 {
			t.Errorf("%s is still there", gone[0])
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "old.json")); err != nil {
		t.Error(err)
	}
	if create, err := (&traceFolder{}).open(); create != nil || err != nil {
		t.Error("a folder without a name", err)
	}
}
