package vfs

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// Mem is a file system in memory with a cap: for tests.
type Mem struct {
	mu       sync.Mutex
	capBytes int64
	files    map[string]*memFile
	locks    map[string]bool
	crashes  *rand.Rand // nil: what is written is durable at once
}

// NewMem returns an empty file system that holds at most capBytes.
func NewMem(capBytes int64) *Mem {
	return &Mem{capBytes: capBytes, files: map[string]*memFile{}, locks: map[string]bool{}}
}

// NewCrashMem is NewMem for a machine that may lose its power (Crash). What becomes of writes that were not synced is drawn by
// the seed. It keeps every write until the next Sync.
func NewCrashMem(capBytes int64, seed uint64) *Mem {
	m := NewMem(capBytes)
	m.crashes = rand.New(rand.NewPCG(seed, 2))
	return m
}

// memFile is a file's content; handles to it share it.
type memFile struct {
	m        *Mem
	name     string
	data     []byte
	modified time.Time
	durable  []byte     // what a loss of power leaves for certain; with Mem.crashes
	pending  []memWrite // since the last Sync; with Mem.crashes
}

// memWrite is a write that is not durable yet.
type memWrite struct {
	off  int64
	data []byte
}

// Crash turns the machine off and on: of each write that was not synced all, nothing or a beginning is left, locks are free,
// and what removed or renamed a file has happened.
func (m *Mem) Crash() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.locks = map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(m.files)) {
		f := m.files[name]
		for _, w := range f.pending {
			switch m.crashes.IntN(3) {
			case 0: // lost
			case 1:
				f.durable = put(f.durable, w)
			default: // torn at 64 bytes
				w.data = w.data[:m.crashes.IntN(len(w.data)+1)/64*64]
				f.durable = put(f.durable, w)
			}
		}
		f.pending, f.data = nil, bytes.Clone(f.durable)
	}
}

func put(b []byte, w memWrite) []byte {
	if more := int(w.off) + len(w.data) - len(b); more > 0 {
		b = append(b, make([]byte, more)...)
	}
	copy(b[w.off:], w.data)
	return b
}

// wrote notes a write; m.mu is held.
func (f *memFile) wrote(off int64, p []byte) {
	if f.m.crashes != nil {
		f.pending = append(f.pending, memWrite{off, bytes.Clone(p)})
	}
}

// settle makes what was written durable; m.mu is held.
func (f *memFile) settle() {
	for _, w := range f.pending {
		f.durable = put(f.durable, w)
	}
	f.pending = nil
}

// unsynced forgets what was written since the last Sync, as kernels do after one that failed: it can be read still, and is not
// there any more after a loss of power.
func (f *memFile) unsynced() {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	f.pending = nil
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
		f = &memFile{m: m, name: name, modified: time.Now()}
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

// Rename puts a file in another's place.
func (m *Mem) Rename(from, to string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	from, to = filepath.Clean(from), filepath.Clean(to)
	f := m.files[from]
	if f == nil {
		return fmt.Errorf("vfs: %s: %w", from, fs.ErrNotExist)
	}
	delete(m.files, from)
	f.name, m.files[to] = to, f
	return nil
}

// RenameAll puts files in others' places.
func (m *Mem) RenameAll(from, to []string) error {
	for i := range from {
		if err := m.Rename(from[i], to[i]); err != nil {
			return err
		}
	}
	return nil
}

// SetTime sets when a file was modified.
func (m *Mem) SetTime(name string, t time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := m.files[filepath.Clean(name)]
	if f == nil {
		return fmt.Errorf("vfs: %s: %w", name, fs.ErrNotExist)
	}
	f.modified = t
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

// List lists the files of a directory.
func (m *Mem) List(dir string) (list []Info, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir = filepath.Clean(dir)
	for _, name := range slices.Sorted(maps.Keys(m.files)) {
		if f := m.files[name]; filepath.Dir(name) == dir {
			list = append(list, Info{filepath.Base(name), int64(len(f.data)), f.modified})
		}
	}
	return list, nil
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
	f.wrote(off, p)
	f.modified = time.Now()
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

// Truncate is durable at once.
func (f *memFile) Truncate(size int64) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.grow(size); err != nil {
		return err
	}
	f.data = f.data[:size:size]
	if f.m.crashes != nil {
		f.settle()
		f.durable = put(f.durable, memWrite{off: size})[:size]
	}
	return nil
}

func (f *memFile) PunchHole(off, size int64) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if to := min(off+size, int64(len(f.data))); off < to {
		clear(f.data[off:to])
		f.wrote(off, f.data[off:to])
	}
	return nil
}

func (f *memFile) Sync() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if f.m.crashes != nil {
		f.settle()
		f.durable = put(f.durable, memWrite{off: int64(len(f.data))}) // the length too, where room was reserved
	}
	return nil
}

func (f *memFile) Alignment() int  { return 1 }
func (f *memFile) FD() (int, bool) { return -1, false }
func (f *memFile) Close() error    { return nil }
