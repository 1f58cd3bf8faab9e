package vfs

import (
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"sync"
)

// Mem is a file system in memory with a cap: for tests.
type Mem struct {
	mu       sync.Mutex
	capBytes int64
	files    map[string]*memFile
	locks    map[string]bool
}

// NewMem returns an empty file system that holds at most capBytes.
func NewMem(capBytes int64) *Mem {
	return &Mem{capBytes: capBytes, files: map[string]*memFile{}, locks: map[string]bool{}}
}

// memFile is a file's content; handles to it share it.
type memFile struct {
	m    *Mem
	name string
	data []byte
}

// OpenFile opens or makes a file; direct I/O there is none.
func (m *Mem) OpenFile(name string, o OpenOptions) (File, error) {
	if o.Direct {
		return nil, fmt.Errorf("vfs: %s: in memory: %w", name, ErrNoDirect)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	name = filepath.Clean(name)
	f := m.files[name]
	if f == nil {
		if !o.Create {
			return nil, fmt.Errorf("vfs: %s: %w", name, fs.ErrNotExist)
		}
		f = &memFile{m: m, name: name}
		m.files[name] = f
	}
	return f, nil
}

// MkdirAll does nothing: folders are part of names.
func (m *Mem) MkdirAll(string) error { return nil }

// Remove deletes a file; handles to it go on.
func (m *Mem) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	name = filepath.Clean(name)
	if m.files[name] == nil {
		return fmt.Errorf("vfs: %s: %w", name, fs.ErrNotExist)
	}
	delete(m.files, name)
	return nil
}

// Names are the files that exist.
func (m *Mem) Names() (names []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name := range m.files {
		names = append(names, name)
	}
	return names
}

// memLock is a taken lock.
type memLock struct {
	m    *Mem
	name string
}

// Lock takes a name that nobody holds.
func (m *Mem) Lock(name string) (io.Closer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.locks[name] {
		return nil, fmt.Errorf("vfs: %s is held by this process: %w", filepath.Dir(name), ErrLocked)
	}
	m.locks[name] = true
	return memLock{m, name}, nil
}

// Close gives the lock back.
func (l memLock) Close() error {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	delete(l.m.locks, l.name)
	return nil
}

// FreeBytes is the cap less what files hold.
func (m *Mem) FreeBytes(string) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.free(), nil
}

func (m *Mem) free() int64 {
	left := m.capBytes
	for _, f := range m.files {
		left -= int64(len(f.data))
	}
	return left
}

func (f *memFile) grow(size int64) error {
	if more := size - int64(len(f.data)); more > f.m.free() {
		return fmt.Errorf("vfs: %s: %d bytes more, %d free: %w", f.name, more, f.m.free(), ErrNoSpace)
	} else if more > 0 {
		f.data = append(f.data, make([]byte, more)...)
	}
	return nil
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if off >= int64(len(f.data)) {
		return 0, io.EOF
	}
	n := copy(p, f.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.grow(off + int64(len(p))); err != nil {
		return 0, err
	}
	return copy(f.data[off:], p), nil
}

func (f *memFile) ReadVecAt(bufs [][]byte, off int64) (int, error) { return vecAt(f.ReadAt, bufs, off) }
func (f *memFile) WriteVecAt(bufs [][]byte, off int64) (int, error) {
	return vecAt(f.WriteAt, bufs, off)
}

func (f *memFile) Preallocate(size int64) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	return f.grow(size)
}

func (f *memFile) Size() (int64, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	return int64(len(f.data)), nil
}

func (f *memFile) Sync() error     { return nil }
func (f *memFile) Alignment() int  { return 1 }
func (f *memFile) FD() (int, bool) { return -1, false }
func (f *memFile) Close() error    { return nil }
