package replace

import (
	"errors"
	"os"
	"path/filepath"
)

// File is a file under way. Cleanup after CloseAtomicallyReplace does nothing; without it, it removes what was written.
type File struct {
	*os.File
	path string
	done bool
}

// New begins a file that will replace the one at path. It lies in the same folder until then; permissions are the folder's. What
// processes that were killed have left there of the same file is removed; one that is open, as a living process has it, is not to be
// removed on Windows.
func New(path string, _ os.FileMode) (*File, error) {
	for _, name := range begun(path, 6) { // of 10 digits at most
		_ = os.Remove(name)
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"*")
	if err != nil {
		return nil, err
	}
	return &File{File: f, path: path}, nil
}

// Cleanup closes and removes what was written, unless it has replaced the file.
func (f *File) Cleanup() error {
	if f.done {
		return nil
	}
	f.done = true
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// CloseAtomicallyReplace flushes what was written and gives it the file's name.
func (f *File) CloseAtomicallyReplace() error {
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), f.path); err != nil {
		return err
	}
	f.done = true
	return nil
}

// WriteFile replaces a file by data.
func WriteFile(path string, data []byte, perm os.FileMode) error {
	f, err := New(path, perm)
	if err != nil {
		return err
	}
	if _, err := f.Write(data); err != nil {
		return errors.Join(err, f.Cleanup())
	}
	return errors.Join(f.CloseAtomicallyReplace(), f.Cleanup())
}
