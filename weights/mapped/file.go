package mapped

import (
	"fmt"
	"math"
	"os"
	"syscall"
)

// File is a mapped file.
type File struct {
	path     string
	data     []byte
	mapping  []byte // what munmap gets; nil for an empty file
	identity Identity
}

// Open maps a regular file read-only. It does not wait for the writer of a pipe. Errors wrap ErrNotRegular or those of the
// system.
func Open(path string) (*File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("weights: %w", err)
	}
	defer f.Close() // the mapping stays
	return fromHandle(path, f)
}

func fromHandle(path string, f *os.File) (*File, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("weights: %w", err)
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("weights: %s: %w (%s)", path, ErrNotRegular, kindOf(st.Mode()))
	}
	m := &File{path: path, identity: Identity{path, st}}
	if st.Size() == 0 {
		return m, nil
	}
	if st.Size() > math.MaxInt {
		return nil, fmt.Errorf("weights: %s: size %d is more than can be mapped", path, st.Size())
	}
	m.mapping, err = mapFile(f, int(st.Size()))
	if err != nil {
		return nil, fmt.Errorf("weights: %s: mmap: %w", path, err)
	}
	m.data = m.mapping
	remember(m.mapping)
	return m, nil
}

func kindOf(m os.FileMode) string {
	switch {
	case m.IsDir():
		return "directory"
	case m&os.ModeNamedPipe != 0:
		return "pipe"
	case m&os.ModeDevice != 0:
		return "device"
	case m&os.ModeSocket != 0:
		return "socket"
	}
	return m.Type().String()
}

// Path is the name the file was opened by.
func (m *File) Path() string { return m.path }

// Bytes is the whole file; reading it may fault if the file was cut (see Guard).
func (m *File) Bytes() []byte { return m.data }

// SizeBytes is the size of the file when it was opened.
func (m *File) SizeBytes() int64 { return m.identity.SizeBytes() }

// Close unmaps the file; slices of Bytes must not be used any more.
func (m *File) Close() error {
	if m.mapping == nil {
		return nil
	}
	unremember(m.mapping)
	err := unmap(m.mapping)
	m.mapping, m.data = nil, nil
	if err != nil {
		return fmt.Errorf("weights: %s: munmap: %w", m.path, err)
	}
	return nil
}

// CheckUnchanged compares the file now at the path with the one that was opened: the same file, size and time of change.
// Errors wrap ErrChanged.
func (m *File) CheckUnchanged() error { return m.identity.CheckUnchanged() }
