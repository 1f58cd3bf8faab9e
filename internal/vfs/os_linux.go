package vfs

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

const directFlag = unix.O_DIRECT

func refusesDirect(err error) bool { return errors.Is(err, unix.EINVAL) }

// directAlignment asks the kernel what direct I/O of a file must be aligned to; kernels before 6.1 don't say: then pages.
func directAlignment(f *os.File) (int, error) {
	var st unix.Statx_t
	err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_DIOALIGN, &st)
	if err != nil || st.Mask&unix.STATX_DIOALIGN == 0 {
		return unix.Getpagesize(), nil
	}
	if st.Dio_offset_align == 0 {
		return 0, ErrNoDirect
	}
	return int(max(st.Dio_offset_align, st.Dio_mem_align, 512)), nil
}

// FreeBytes is what an unprivileged user may still write.
func (OS) FreeBytes(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("vfs: room in %s: %w", dir, err)
	}
	return int64(st.Bavail) * st.Bsize, nil
}

// Preallocate reserves blocks; a file system that cannot (NFS, FAT) gets a sparse file.
func (f *osFile) Preallocate(size int64) error {
	err := unix.Fallocate(int(f.Fd()), 0, 0, size)
	for errors.Is(err, unix.EINTR) {
		err = unix.Fallocate(int(f.Fd()), 0, 0, size)
	}
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		err = f.Truncate(size)
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT), errors.Is(err, unix.EFBIG):
		return fmt.Errorf("vfs: %s: %w: %w", f.Name(), err, ErrNoSpace)
	}
	if err != nil {
		return fmt.Errorf("vfs: %s: reserving %d bytes: %w", f.Name(), size, err)
	}
	return nil
}

// PunchHole gives blocks back.
func (f *osFile) PunchHole(off, size int64) error {
	err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, size)
	if errors.Is(err, unix.EOPNOTSUPP) {
		err = errors.ErrUnsupported
	}
	if err != nil {
		return fmt.Errorf("vfs: %s: giving %d bytes back: %w", f.Name(), size, err)
	}
	return nil
}

// Sync writes data and the length, without the times.
func (f *osFile) Sync() error {
	err := unix.Fdatasync(int(f.Fd()))
	for errors.Is(err, unix.EINTR) {
		err = unix.Fdatasync(int(f.Fd()))
	}
	if err != nil {
		return fmt.Errorf("vfs: %s: sync: %w", f.Name(), err)
	}
	return nil
}

// ReadVecAt reads with preadv.
func (f *osFile) ReadVecAt(bufs [][]byte, off int64) (int, error) {
	return f.vec(unix.Preadv, bufs, off, io.EOF)
}

// WriteVecAt writes with pwritev.
func (f *osFile) WriteVecAt(bufs [][]byte, off int64) (int, error) {
	return f.vec(unix.Pwritev, bufs, off, io.ErrShortWrite)
}

func (f *osFile) vec(call func(int, [][]byte, int64) (int, error), bufs [][]byte, off int64, short error) (int, error) {
	for {
		n, err := call(int(f.Fd()), bufs, off)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err == nil && n < total(bufs) {
			err = short
		}
		return max(n, 0), err
	}
}
