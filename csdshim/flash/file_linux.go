package flash

import (
	"golang.org/x/sys/unix"
)

// maxVectors is the most buffers of one call (IOV_MAX).
const maxVectors = 1024

func (f osFile) readv(bufs [][]byte, off int64) error {
	return vector(bufs, off, func(b [][]byte, off int64) (int, error) { return unix.Preadv(int(f.Fd()), b, off) })
}

func (f osFile) writev(bufs [][]byte, off int64) error {
	return vector(bufs, off, func(b [][]byte, off int64) (int, error) { return unix.Pwritev(int(f.Fd()), b, off) })
}

// vector moves all buffers, however the kernel cuts the calls.
func vector(bufs [][]byte, off int64, move func([][]byte, int64) (int, error)) error {
	list := make([][]byte, 0, min(len(bufs), maxVectors))
	for len(bufs) > 0 {
		list = append(list[:0], bufs[:min(len(bufs), maxVectors)]...)
		bufs = bufs[len(list):]
		for len(list) > 0 {
			n, err := move(list, off)
			if err == unix.EINTR {
				continue
			}
			if err != nil {
				return err
			}
			if n == 0 {
				return short(nil)
			}
			off += int64(n)
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

// Sync makes the file's data durable.
func (f osFile) Sync() error { return unix.Fdatasync(int(f.Fd())) }

func (f osFile) punch(off, sizeBytes int64) error {
	return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, sizeBytes)
}
