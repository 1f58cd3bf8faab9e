package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"
)

const keptTraces = 1000

// traceFolder has a file for each request (serve --trace DIR), the newest of this run.
type traceFolder struct {
	dir string

	mu    sync.Mutex
	files []string // of this run, the oldest first
}

// open makes the folder; nil where none is named.
func (t *traceFolder) open() (func(id string) (io.WriteCloser, error), error) {
	if t.dir == "" {
		return nil, nil
	}
	if err := os.MkdirAll(t.dir, 0o700); err != nil {
		return nil, fmt.Errorf("--trace %s: %w", t.dir, err)
	}
	return t.create, nil
}

// create begins the file of a request that has ended, and removes the oldest where there are too many.
func (t *traceFolder) create(id string) (io.WriteCloser, error) {
	name := filepath.Join(t.dir, time.Now().UTC().Format("20060102T150405.000000Z")+"-"+id+".json")
	t.mu.Lock()
	t.files = append(t.files, name)
	oldest := ""
	if len(t.files) > keptTraces {
		oldest, t.files = t.files[0], t.files[1:]
	}
	t.mu.Unlock()
	if oldest != "" {
		if err := os.Remove(oldest); err != nil && !os.IsNotExist(err) {
			return nil, err
		}
	}
	return os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
}
