package storage

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"path/filepath"
	"reflect"
	"sync/atomic"
	"syscall"
	"time"

	"terrace/internal/vfs"
)

// PageBytes is what places and sizes of records are multiples of, and what a file's header takes.
const PageBytes = 4096

// Direct is how people call I/O past the page cache.
const Direct = "O_DIRECT"

// Options of a folder; the zero value is the default.
type Options struct {
	FS       vfs.FS // nil = the system's
	Buffered bool   // through the page cache
	ReadOnly bool   // nothing is made or changed
}

// Folder is a directory of Terrace's files.
type Folder struct {
	FS       vfs.FS
	dir      string
	o        Options
	buffered atomic.Bool // the file system has no direct I/O, or nobody wants it
}

// OpenFolder opens a directory, made where it is not there.
func OpenFolder(dir string, o Options) (*Folder, error) {
	f := &Folder{FS: o.FS, dir: dir, o: o}
	if f.FS == nil {
		f.FS = vfs.OS{}
	}
	f.buffered.Store(o.Buffered)
	if !o.ReadOnly {
		if err := f.FS.MkdirAll(dir); err != nil {
			return nil, fmt.Errorf("storage: %w", err)
		}
	}
	if _, err := f.FS.List(dir); err != nil {
		return nil, fmt.Errorf("storage: %w", err)
	}
	return f, nil
}

// Path is a file's name with the directory.
func (f *Folder) Path(name string) string { return filepath.Join(f.dir, name) }

// Notice is one line about what the file system could not give to files opened so far; empty = nothing.
func (f *Folder) Notice() string {
	if f.buffered.Load() && !f.o.Buffered {
		return "no " + Direct + " on this file system: reads and writes go through the page cache"
	}
	return ""
}

// lockPoll is how often a lock that somebody holds is looked at.
const lockPoll = 3 * time.Millisecond

// Lock takes a lock file of the folder, waiting for whoever has it up to a time; ErrInUse names the holder, ErrReadOnly says that the folder
// cannot be changed. Closing it gives it back, and so does the end of the process.
func (f *Folder) Lock(ctx context.Context, name string, wait time.Duration) (io.Closer, error) {
	if f.o.ReadOnly {
		return nil, fmt.Errorf("storage: %s: %w", f.dir, ErrReadOnly)
	}
	for deadline := time.Now().Add(wait); ; {
		l, err := f.FS.Lock(f.Path(name))
		switch {
		case err == nil:
			return l, nil
		case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
			return nil, fmt.Errorf("storage: %w: %w", err, ErrReadOnly)
		case !errors.Is(err, vfs.ErrLocked):
			return nil, fmt.Errorf("storage: %w", err)
		case !time.Now().Before(deadline):
			return nil, fmt.Errorf("storage: %w: %w", err, ErrInUse)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(lockPoll):
		}
	}
}

// Open opens a file, directly where that can be.
func (f *Folder) Open(name string, o vfs.OpenOptions) (vfs.File, error) {
	o.Direct = !f.buffered.Load()
	file, err := f.FS.OpenFile(f.Path(name), o)
	if errors.Is(err, vfs.ErrNoDirect) {
		f.buffered.Store(true)
		o.Direct = false
		file, err = f.FS.OpenFile(f.Path(name), o)
	}
	if err != nil {
		return nil, fmt.Errorf("storage: %w", err)
	}
	return file, nil
}

// Reserve makes a file so long with its blocks taken; what it has already counts as room. ErrFull says what room there is.
func (f *Folder) Reserve(file vfs.File, name string, sizeBytes int64) error {
	have, err := file.Size()
	if err != nil {
		return fmt.Errorf("storage: %w", err)
	}
	room, err := f.FS.FreeBytes(f.dir)
	if err != nil {
		return fmt.Errorf("storage: %w", err)
	}
	if sizeBytes-have > room {
		return fmt.Errorf("storage: %s: %d bytes asked for, the file system has room for %d: %w", f.Path(name), sizeBytes, room+have, ErrFull)
	}
	if err := file.Preallocate(sizeBytes); err != nil {
		if errors.Is(err, vfs.ErrNoSpace) {
			err = fmt.Errorf("%w: %w", err, ErrFull)
		}
		return fmt.Errorf("storage: %d bytes asked for: %w", sizeBytes, err)
	}
	return nil
}

// Claim refuses a file that is there and does not begin as Terrace's do, with ErrShape: those may be written over.
func (f *Folder) Claim(name, magic string) (err error) {
	file, err := f.FS.OpenFile(f.Path(name), vfs.OpenOptions{})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("storage: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	b := make([]byte, PageBytes)
	n, err := file.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("storage: %s: reading the header: %w", f.Path(name), err)
	}
	if len(bytes.Trim(b, "\x00")) == 0 || string(b[:len(magic)]) == magic {
		return nil // empty, reserved but never begun, or Terrace's
	}
	return fmt.Errorf("storage: %s is there but is not Terrace's (begins with %.12q): move it or give another directory: %w", f.Path(name), b[:n], ErrShape)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum is the checksum of all that this package and its users keep: CRC-32C.
func Checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// ChecksumMore is the checksum of what has the checksum sum and of b behind it.
func ChecksumMore(sum uint32, b []byte) uint32 { return crc32.Update(sum, castagnoli, b) }

// magicBytes is the room of a header's magic.
const magicBytes = 16

// Header is a file's first page: magic, zero-padded to 16; u32 version; body; u32 CRC-32C over all before it.
func Header(magic string, version uint32, body []byte) []byte {
	b := append(make([]byte, 0, PageBytes), magic...)
	b = binary.LittleEndian.AppendUint32(append(b, make([]byte, magicBytes-len(magic))...), version)
	b = append(b, body...)
	return binary.LittleEndian.AppendUint32(b, Checksum(b))[:PageBytes]
}

// CheckHeader takes a header apart whose body has so many bytes. ErrShape: it is of something else, or of another version; ErrCorrupt.
func CheckHeader(b []byte, magic string, version uint32, bodyBytes int) (body []byte, err error) {
	at := magicBytes + 4 + bodyBytes
	if len(b) < at+4 || string(b[:len(magic)]) != magic {
		return nil, fmt.Errorf("storage: not a header of %s: %w", magic, ErrShape)
	}
	if Checksum(b[:at]) != binary.LittleEndian.Uint32(b[at:]) {
		return nil, fmt.Errorf("storage: the header's checksum is wrong: %w", ErrCorrupt)
	}
	if v := binary.LittleEndian.Uint32(b[magicBytes:]); v != version {
		return nil, fmt.Errorf("storage: header version %d, want %d: %w", v, version, ErrShape)
	}
	return b[magicBytes+4 : at], nil
}

// WriteHeader writes a header and reads it back.
func WriteHeader(file vfs.File, magic string, version uint32, body []byte) error {
	b, want := Aligned(PageBytes), Header(magic, version, body)
	copy(b, want)
	if _, err := file.WriteAt(b, 0); err != nil {
		return fmt.Errorf("storage: writing the header: %w", err)
	}
	clear(b)
	if _, err := file.ReadAt(b, 0); err != nil {
		return fmt.Errorf("storage: reading the header back: %w", err)
	}
	if !bytes.Equal(b, want) {
		return fmt.Errorf("storage: the header reads back as something else: %w", ErrCorrupt)
	}
	return nil
}

// Aligned is memory that begins at a multiple of PageBytes, for direct I/O; the garbage collector frees it.
func Aligned(n int) []byte {
	b := make([]byte, n+PageBytes)
	skip := 0
	if n > 0 {
		skip = int(-reflect.ValueOf(b).Pointer() & (PageBytes - 1))
	}
	return b[skip : skip+n : skip+n]
}

// RoundUp is n, or the next multiple of a number.
func RoundUp(n, to int) int { return (n + to - 1) / to * to }
