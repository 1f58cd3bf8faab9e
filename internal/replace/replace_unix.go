//go:build !windows

package replace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/gofrs/flock"
	"github.com/google/renameio/v2"
)

// File is a file under way. Cleanup after CloseAtomicallyReplace does nothing; without it, it removes what was written.
type File struct {
	*renameio.PendingFile
	lock *flock.Flock // of what is written, until it has its name: who has it lives
}

// New begins a file that will replace the one at path, with those permissions less the umask. It lies in the same folder until then;
// what processes that were killed have left there of the same file is removed.
func New(path string, perm os.FileMode) (*File, error) {
	return begin(path, renameio.WithPermissions(perm))
}

// begin makes a file and takes its lock.
func begin(path string, o ...renameio.Option) (*File, error) {
	sweep(path)
	for range 100 {
		p, err := renameio.NewPendingFile(path, append(o, renameio.WithTempDir(filepath.Dir(path)))...)
		if err != nil {
			return nil, err
		}
		f := &File{PendingFile: p, lock: lockOf(p.Name())}
		held, err := f.lock.TryLock()
		if held && f.there() || err != nil && !errors.Is(err, fs.ErrNotExist) { // a file system without locks, where nobody sweeps
			return f, nil
		}
		_ = f.Cleanup() // somebody who sweeps came between the two calls and takes it for one that was left
	}
	return nil, fmt.Errorf("replace: %s: what is begun beside it is taken away each time", path)
}

// lockOf is the lock on a file that is there.
func lockOf(name string) *flock.Flock {
	return flock.New(name, flock.SetFlag(os.O_RDONLY|syscall.O_NOFOLLOW))
}

// there reports whether the file still has the name that it was begun under.
func (f *File) there() bool {
	own, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Lstat(f.Name())
	return err == nil && os.SameFile(own, named)
}

// sweep removes what was begun for path by processes that are gone: nobody has its lock.
func sweep(path string) {
	for _, name := range begun(path, 15) { // of 19 digits at most
		lock := lockOf(name)
		if held, err := lock.TryLock(); held && err == nil {
			_ = os.Remove(name)
		}
		_ = lock.Close()
	}
}

// Cleanup closes and removes what was written, unless it has replaced the file.
func (f *File) Cleanup() error { return errors.Join(f.PendingFile.Cleanup(), f.lock.Close()) }

// CloseAtomicallyReplace flushes what was written and gives it the file's name.
func (f *File) CloseAtomicallyReplace() error {
	if err := f.PendingFile.CloseAtomicallyReplace(); err != nil {
		return err
	}
	return f.lock.Close()
}

// WriteFile replaces a file by data; permissions are those of the file that was there, or perm less the umask.
func WriteFile(path string, data []byte, perm os.FileMode) error {
	f, err := begin(path, renameio.WithPermissions(perm), renameio.WithExistingPermissions())
	if err != nil {
		return err
	}
	if _, err := f.Write(data); err != nil {
		return errors.Join(err, f.Cleanup())
	}
	return errors.Join(f.CloseAtomicallyReplace(), f.Cleanup())
}
