package main

import (
	"errors"
	"fmt"
	"os"

	"terrace/internal/clock"
	"terrace/internal/trace"
)

// timeline writes what each resource does when (--trace FILE).
type timeline struct {
	file *os.File
	rec  *trace.Recorder
}

// start begins the timeline; an empty name gives no recorder. A second call gives the same one.
func (t *timeline) start(name string) (*trace.Recorder, error) {
	if name == "" || t.rec != nil {
		return t.rec, nil
	}
	f, err := os.Create(name)
	if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	t.file, t.rec = f, trace.New(f, clock.Real().Now)
	return t.rec, nil
}

func (t *timeline) stop() error {
	if t.rec == nil {
		return nil
	}
	return errors.Join(t.rec.Close(), t.file.Close())
}
