package vfs

import "io"

// FS is a file system.
type FS interface {
	// OpenFile opens or creates a regular file for reading and writing. With o.Direct it fails with ErrNoDirect where the
	// file system goes through the page cache.
	OpenFile(name string, o OpenOptions) (File, error)
	// MkdirAll makes a directory, readable by its owner only, and those above it.
	MkdirAll(dir string) error
	// Remove deletes a file.
	Remove(name string) error
	// Lock takes a lock file for this process; ErrLocked names the holder. Close gives it back, and so does the process's
	// end.
	Lock(name string) (io.Closer, error)
	// FreeBytes is what the file system of a directory has room for.
	FreeBytes(dir string) (int64, error)
}

// OpenOptions say how to open a file.
type OpenOptions struct {
	Create bool // where it does not exist
	Direct bool // O_DIRECT
}

// File is a regular file.
type File interface {
	io.ReaderAt
	io.WriterAt
	// ReadVecAt fills several buffers with consecutive bytes; fewer bytes than asked come with io.EOF or another error.
	ReadVecAt(bufs [][]byte, off int64) (int, error)
	// WriteVecAt writes several buffers one after another.
	WriteVecAt(bufs [][]byte, off int64) (int, error)
	// Preallocate makes the file size bytes long with its blocks reserved: later writes find room. ErrNoSpace otherwise.
	Preallocate(size int64) error
	// Sync makes what was written survive a loss of power.
	Sync() error
	// Size is the file's length.
	Size() (int64, error)
	// Alignment is what offsets, lengths and addresses of direct I/O must be multiples of; 1 where the file is not direct.
	Alignment() int
	// FD is the descriptor for an engine of the system's; ok is false where there is none.
	FD() (fd int, ok bool)
	Close() error
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

func total(bufs [][]byte) (n int) {
	for _, b := range bufs {
		n += len(b)
	}
	return n
}
