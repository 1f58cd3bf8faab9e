package vfs

import (
	"errors"
	"io"
	"time"

	"terrace/internal/vfs/view"
)

// FS is a file system.
type FS interface {
	// OpenFile opens or creates a regular file for reading and writing. With o.Direct it fails with ErrNoDirect where the
	// file system goes through the page cache.
	OpenFile(name string, o OpenOptions) (File, error)
	// MkdirAll makes a directory, readable by its owner only, and those above it.
	MkdirAll(dir string) error
	// Remove deletes a file; fs.ErrNotExist where there is none.
	Remove(name string) error
	// Rename puts a file in another's place, in one step that survives a loss of power.
	Rename(from, to string) error
	// RenameAll does so with several files of one directory, each in a step of its own; all of them survive once it has returned.
	RenameAll(from, to []string) error
	// SetTime sets when a file was modified.
	SetTime(name string, t time.Time) error
	// Lock takes a lock file for this process; ErrLocked names the holder. Close gives it back, and so does the process's
	// end.
	Lock(name string) (io.Closer, error)
	// List lists the regular files of a directory in the order of their names; a symbolic link is none.
	List(dir string) ([]Info, error)
	// FreeBytes is what the file system of a directory has room for.
	FreeBytes(dir string) (int64, error)
}

// Info is what a directory says of a file.
type Info struct {
	Name     string // without the directory
	Bytes    int64
	Modified time.Time
}

// OpenOptions say how to open a file.
type OpenOptions struct {
	Create bool // where it does not exist
	Direct bool // O_DIRECT
	Read   bool // for reading only
}

// File is a regular file.
type File interface {
	io.ReaderAt
	io.WriterAt
	// ReadVecAt fills several buffers, at most 1024, with consecutive bytes; fewer bytes than asked come with io.EOF or another
	// error.
	ReadVecAt(bufs [][]byte, off int64) (int, error)
	// WriteVecAt writes several buffers, at most 1024, one after another; fewer bytes than given come with io.ErrShortWrite or
	// another error.
	WriteVecAt(bufs [][]byte, off int64) (int, error)
	// Preallocate makes the file size bytes long with its blocks reserved: later writes find room. ErrNoSpace otherwise.
	Preallocate(size int64) error
	// Truncate cuts the file, or makes it longer with zeros.
	Truncate(size int64) error
	// PunchHole gives the space of a range back to the file system: it reads as zeros. errors.ErrUnsupported where the file
	// system cannot.
	PunchHole(off, size int64) error
	// Sync makes what was written survive a loss of power. What was written before a Sync that failed may be lost, also where
	// a later one succeeds.
	Sync() error
	// Size is the file's length.
	Size() (int64, error)
	// Alignment is what offsets, lengths and addresses of direct I/O must be multiples of; 1 where the file is not direct.
	Alignment() int
	// FD is the descriptor for an engine of the system's; ok is false where there is none.
	FD() (fd int, ok bool)
	Close() error
}

// Mapper is a File of the system's that can be read as memory.
type Mapper interface {
	// Map shows the file's first bytes, as many as it has or will have.
	Map(bytes int64) (*view.View, error)
}

// vecAt does fn for each buffer in turn: ReadVecAt and WriteVecAt of files that have nothing better.
func vecAt(fn func(p []byte, off int64) (int, error), bufs [][]byte, off int64) (total int, err error) {
	for _, b := range bufs {
		n, err := fn(b, off+int64(total))
		total += n
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

// maxVectors is the most buffers of one call (IOV_MAX).
const maxVectors = 1024

// ReadFull fills all buffers with consecutive bytes, however often that takes a call; io.ErrUnexpectedEOF where the file ends
// before.
func ReadFull(f File, bufs [][]byte, off int64) error { return full(f.ReadVecAt, bufs, off) }

// WriteFull writes all buffers one after another, however often that takes a call.
func WriteFull(f File, bufs [][]byte, off int64) error { return full(f.WriteVecAt, bufs, off) }

func full(move func([][]byte, int64) (int, error), bufs [][]byte, off int64) error {
	list := make([][]byte, 0, min(len(bufs), maxVectors))
	for len(bufs) > 0 {
		list = append(list[:0], bufs[:min(len(bufs), maxVectors)]...)
		bufs = bufs[len(list):]
		for left := total(list); left > 0; {
			n, err := move(list, off)
			switch {
			case n == 0 && (err == nil || errors.Is(err, io.EOF)):
				return io.ErrUnexpectedEOF
			case err != nil && n < left && (n == 0 || !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrShortWrite)):
				return err
			}
			off, left = off+int64(n), left-n
			for len(list) > 0 && n >= len(list[0]) {
				n -= len(list[0])
				list = list[1:]
			}
			if n > 0 {
				list[0] = list[0][n:]
			}
		}
	}
	return nil
}

func total(bufs [][]byte) (n int) {
	for _, b := range bufs {
		n += len(b)
	}
	return n
}
