package main

import (
	"errors"
	"fmt"
	"os"

	"terrace"
)

// timeline writes what each resource does when (--trace FILE).
type timeline struct {
	file *os.File
	line *terrace.Timeline
}

// start begins the timeline; an empty name gives none. A second call gives the same one.
func (t *timeline) start(name string) (*terrace.Timeline, error) {
	if name == "" || t.line != nil {
		return t.line, nil
	}
	f, err := os.Create(name)
	if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	t.file, t.line = f, terrace.NewTimeline(f)
	return t.line, nil
}

func (t *timeline) stop() error {
	if t.line == nil {
		return nil
	}
	return errors.Join(t.line.Close(), t.file.Close())
}
