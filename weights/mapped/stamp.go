package mapped

import (
	"fmt"
	"os"
	"time"
)

// Identity is what a file was when it was looked at.
type Identity struct {
	path string
	stat os.FileInfo
}

// Stamp records what the file at a path is now.
func Stamp(path string) (*Identity, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("weights: %w", err)
	}
	return &Identity{path, st}, nil
}

// SizeBytes is the size of the file when it was looked at.
func (i *Identity) SizeBytes() int64 { return i.stat.Size() }

// CheckUnchanged compares the file now at the path with what it was: the same file, size and time of change. Errors wrap
// ErrChanged.
func (i *Identity) CheckUnchanged() error {
	now, err := os.Stat(i.path)
	if err != nil {
		return fmt.Errorf("weights: %s: %w: %w", i.path, ErrChanged, err)
	}
	switch {
	case now.Size() != i.stat.Size():
		return fmt.Errorf("weights: %s: %w: size is %d bytes, was %d", i.path, ErrChanged, now.Size(), i.stat.Size())
	case !os.SameFile(now, i.stat):
		return fmt.Errorf("weights: %s: %w: another file is there", i.path, ErrChanged)
	case !now.ModTime().Equal(i.stat.ModTime()):
		return fmt.Errorf("weights: %s: %w: written at %s", i.path, ErrChanged, now.ModTime().Format(time.RFC3339))
	}
	return nil
}
