package main

import (
	"fmt"
	"os"
	"path/filepath"

	"terrace/weights"
)

// modelName is the name that results carry: of a path only the last part, so that machines agree on it.
func modelName(name string) string {
	if _, err := os.Stat(name); err == nil {
		return filepath.Base(filepath.Clean(name))
	}
	return name
}

// nameOfAll is the name that results carry, with those of the adapters.
func (l *loaded) nameOfAll() string {
	name := modelName(l.name)
	for _, a := range l.adapters {
		name += fmt.Sprintf("+%s", filepath.Base(filepath.Clean(a.Path)))
		if a.Scale != 1 {
			name += fmt.Sprintf("=%g", a.Scale)
		}
	}
	return name
}

// fingerprint identifies the model's files, and the adapters' with their scales.
func (l *loaded) fingerprint() (string, error) {
	print, err := weights.Fingerprint(l.path, l.adapters...)
	if err != nil {
		return "", dataErrorf("%v", err)
	}
	return print, nil
}
