package flash

import (
	"errors"
	"io"
	"os"
)

// File is what the store needs of a file; tests put faulty ones in.
type File interface {
	io.ReaderAt
	io.WriterAt
	Sync() error
	Truncate(sizeBytes int64) error
	Close() error
}

// FS is where image and journal lie.
type FS interface {
	// Open opens or creates a file for reading and writing.
	Open(path string) (File, error)
	// Rename puts a file in another's place, durably.
	Rename(from, to string) error
	// Remove deletes a file; one that is not there is no error.
	Remove(path string) error
}

// system is the FS of the operating system.
type system struct{}

func (system) Open(path string) (File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (system) Rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return syncFolder(to)
}

func (system) Remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

type osFile struct{ *os.File }

// vectored is a File that moves several buffers with one call; off is the place of the first.
type vectored interface {
	readv(bufs [][]byte, off int64) error
	writev(bufs [][]byte, off int64) error
}

// puncher is a File that can give the space of a range back to the file system.
type puncher interface {
	punch(off, sizeBytes int64) error
}

func readv(f File, bufs [][]byte, off int64) error {
	if v, ok := f.(vectored); ok {
		return v.readv(bufs, off)
	}
	for _, b := range bufs {
		if n, err := f.ReadAt(b, off); n < len(b) {
			return short(err)
		}
		off += int64(len(b))
	}
	return nil
}

func writev(f File, bufs [][]byte, off int64) error {
	if v, ok := f.(vectored); ok {
		return v.writev(bufs, off)
	}
	for _, b := range bufs {
		if n, err := f.WriteAt(b, off); err != nil || n < len(b) {
			return short(err)
		}
		off += int64(len(b))
	}
	return nil
}

func short(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
