package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"terrace/internal/vfs/view"
)

// OS is the system's file system.
type OS struct{}

// OpenFile opens a regular file, private to its owner where it is made.
func (OS) OpenFile(name string, o OpenOptions) (File, error) {
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("vfs: %s is not a regular file: %w", name, fs.ErrInvalid)
	}
	flags := os.O_RDWR
	if o.Read {
		flags = os.O_RDONLY
	}
	if o.Create {
		flags |= os.O_CREATE
	}
	align := 1
	if o.Direct {
		if directFlag == 0 {
			return nil, fmt.Errorf("vfs: %s: this system has none: %w", name, ErrNoDirect)
		}
		flags |= directFlag
	}
	f, err := os.OpenFile(name, flags, 0o600)
	if err != nil {
		if o.Direct && refusesDirect(err) {
			return nil, fmt.Errorf("vfs: %s: %w: %w", name, err, ErrNoDirect)
		}
		return nil, fmt.Errorf("vfs: %w", err)
	}
	if o.Direct {
		if align, err = directAlignment(f); err != nil {
			return nil, errors.Join(fmt.Errorf("vfs: %s: %w", name, err), f.Close())
		}
	}
	return &osFile{f, align}, nil
}

// MkdirAll makes a directory for its owner only.
func (OS) MkdirAll(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("vfs: %w", err)
	}
	return nil
}

// Remove deletes a file.
func (OS) Remove(name string) error {
	if err := os.Remove(name); err != nil {
		return fmt.Errorf("vfs: %w", err)
	}
	return nil
}

// Rename renames a file and syncs its new folder.
func (y OS) Rename(from, to string) error { return y.RenameAll([]string{from}, []string{to}) }

// RenameAll renames files and syncs their folder once.
func (OS) RenameAll(from, to []string) error {
	for i := range from {
		if err := os.Rename(from[i], to[i]); err != nil {
			return fmt.Errorf("vfs: %w", err)
		}
	}
	if len(from) == 0 {
		return nil
	}
	dir, err := os.Open(filepath.Dir(to[0]))
	if err != nil {
		return fmt.Errorf("vfs: %w", err)
	}
	if err := errors.Join(dir.Sync(), dir.Close()); err != nil {
		return fmt.Errorf("vfs: renaming to %s: %w", to[0], err)
	}
	return nil
}

// SetTime sets when a file was modified.
func (OS) SetTime(name string, t time.Time) error {
	if err := os.Chtimes(name, time.Time{}, t); err != nil {
		return fmt.Errorf("vfs: %w", err)
	}
	return nil
}

// List lists the regular files of a directory; one that goes meanwhile is not there.
func (OS) List(dir string) ([]Info, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("vfs: %w", err)
	}
	var list []Info
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		if info, err := e.Info(); err == nil {
			list = append(list, Info{e.Name(), info.Size(), info.ModTime()})
		}
	}
	return list, nil
}

// Lock locks a file, made where it does not exist, and writes the process's number into it. The file stays.
func (OS) Lock(name string) (io.Closer, error) {
	l := flock.New(name, flock.SetPermissions(0o600))
	got, err := l.TryLock()
	if err != nil {
		return nil, fmt.Errorf("vfs: lock %s: %w", name, err)
	}
	if !got {
		holder, _ := os.ReadFile(name)
		who := strings.TrimSpace(string(holder))
		if who == "" || len(who) > 64 {
			who = "another process"
		}
		return nil, fmt.Errorf("vfs: %s is held by %s: %w", filepath.Dir(name), who, ErrLocked)
	}
	if err := sign(name); err != nil {
		return nil, errors.Join(fmt.Errorf("vfs: lock: %w", err), l.Close())
	}
	return l, nil
}

// sign writes this process's number into a lock, in place: a file that is cut and written again is flushed by some file
// systems, which takes long on a busy disk.
func sign(name string) error {
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%-28s\n", fmt.Sprintf("process %d", os.Getpid()))
	return errors.Join(err, f.Close())
}

// osFile is a file of the system's.
type osFile struct {
	*os.File
	align int
}

// Size is the file's length.
func (f *osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, fmt.Errorf("vfs: %w", err)
	}
	return info.Size(), nil
}

// Alignment is O_DIRECT's, or 1.
func (f *osFile) Alignment() int { return f.align }

// FD is the file's descriptor.
func (f *osFile) FD() (int, bool) { return int(f.Fd()), true }

// Map shows the file as memory.
func (f *osFile) Map(bytes int64) (*view.View, error) {
	v, err := view.Map(int(f.Fd()), bytes)
	if err != nil {
		return nil, fmt.Errorf("vfs: %s: %w", f.Name(), err)
	}
	return v, nil
}
